"""The hashing head from graded labels: codes that know the kind of a picture and the picture.

The paper's labels are binary: s_ij = +1 for the images of a neighbourhood, -1 for all others. Codes
that fit them group the kinds of images, and forget which image is which. Here the target of a pair
is graded,

    t_ij = x_i.x_j + weight * [j in S_i],     x: centred features,

with memberships in S divided by the root of both degrees, against hubs. For a linear hashing layer
z = W^T x, J1 over all pairs (Eq. 5) with these targets has a closed solution. With F the features
in the basis of their principal components, evened in variance (F^T F = I up to a ridge),

    min_W || F W W^T F^T / L - T ||^2    is solved by the top eigenvectors of  F^T T F

times the root of their eigenvalues, up to a rotation; the rotation is the one of ITQ, which
minimises the quantisation (Eq. 7). `weight = 0` is ITQ itself. The ridge keeps directions of little
variance from fitting S by heart, and takes some of their cosines too. Where that alone costs too
many neighbours, the cosines have their part as it is without a ridge: small weights are then near
ITQ. From there, gradient descent on the
paper's own objective (J1 with binary labels, and the quantisation) moves on towards kinds. By

    sum_ij (z_i.z_j / L - s_ij)^2 = |Z^T Z|^2 / L^2 - (4 / L) tr(W^T F^T S F W) + constant

(centred Z), a step costs d x d x L whatever N is, and only the quantisation needs rows.

How far to go is decided by the collection itself: codes must keep the nearest neighbours of the
features almost as well as ITQ's do (`kept_neighbours`), and must find more of S than ITQ's do
(`similar_found`): features that group the kinds by themselves gain nothing from S, and their codes
are ITQ's. No class label is needed for that. Short codes (up to SHORT bits) cannot keep the
neighbours anyway, and are trained to the end.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from ddh._core.arrays import l2_normalize, sgn
from ddh._core.linear_algebra import Reals, best_rotation, random_rotation, top_eigenvectors
from ddh._core.progress import bar
from ddh._core.spans import spans
from ddh._core.threads import thread_map
from ddh.codes import pack, search
from ddh.neighbours.approximate import exact_rows
from ddh.neighbours.cosine import cosine_space

Floats = NDArray[np.float32]

DIMENSIONS = 512  # principal components at most
RIDGE = 1.0  # added to their variances, in units of the mean variance of a dimension
WEIGHTS = (3.0, 1.0, 0.3, 0.1)  # of memberships in S beside cosines
STEPS = 400
LOOKS = (25, 50, 100, 200, STEPS)  # steps after which kept neighbours are counted
RATE = 0.05  # of Adam, relative to the mean size of the weights
QUANTISATION = 0.3
BATCH = 2048
ROTATION_ROWS, ROTATIONS = 50_000, 50
SHORT = 32  # bits
LONG = 128
# by how much the share of kept neighbours may be below ITQ's, for fewer and for LONG bits
ALLOWED_LOSS = 0.04, 0.014
MANY = 20  # images per dimension
BLOCK = 8192


def suits(images: int, dimensions: int, bits: int) -> bool:
    """Whether graded labels are the better ones: always, but for short codes of many images.

    Short codes have no room for more than kinds, and with many images for each dimension the
    training with binary labels, which nothing regularises, finds them more precisely.
    """
    return bits > SHORT or images < MANY * dimensions


def fit_graded(
    features: NDArray[Any],
    graph: sparse.csr_array,
    bits: int,
    *,
    seed: int,
    normalize: bool = True,
    centre: bool = True,
) -> tuple[Floats, Floats, list[dict[str, Any]]]:
    """(weight, bias, history) of the layer z = weight phi + bias on features phi.

    `history` says what was tried and what its codes find of a sample's neighbours and of S; its
    last entry is what was chosen. Memory: beside the features, 4 bytes x N x DIMENSIONS and a few
    arrays of DIMENSIONS x DIMENSIONS.
    """
    rng = np.random.default_rng(seed)
    basis = Basis(features, normalize=normalize, centre=centre)
    problem = Problem(basis, graph, bits, rng)
    sample = Sample(features, basis.rows, graph, rng) if bits > SHORT else None
    history: list[dict[str, Any]] = []
    with bar("Fitting codes", total=1 + len(WEIGHTS) + len(LOOKS)) as progress:

        def look(layer: Floats, weight: float, step: int = 0) -> Found:
            found = Found() if sample is None else sample.find(layer)
            history.append({"weight": weight, "step": step, **found._asdict()})
            progress.update()
            return found

        best = problem.start(0.0)
        bound = look(best, 0.0).less(ALLOWED_LOSS[int(bits >= LONG)])
        chosen = history[0]
        for exact in (False, True):
            too_much = None
            for weight in WEIGHTS:
                layer = problem.start(weight, exact=exact)
                found = look(layer, weight)
                if not found.finds_more_similar(bound):  # nor would a smaller weight
                    break
                if found.keeps_neighbours(bound):
                    best, chosen = layer, history[-1]
                    break
                too_much = weight
            if chosen["weight"]:
                break
        if too_much is not None and chosen["weight"]:  # twice nearer to the bound
            for _ in range(2):
                weight = float(np.sqrt(too_much * chosen["weight"]))
                layer = problem.start(weight, exact=exact)
                if look(layer, weight).keeps_neighbours(bound):
                    best, chosen = layer, history[-1]
                else:
                    too_much = weight
        steps = problem.descend(best, rng) if chosen["weight"] == WEIGHTS[0] else ()
        with threadpool_limits(1, "blas"):  # of small products, threads would wait for each other
            for step, layer in steps:
                if not look(layer, WEIGHTS[0], step).keeps_neighbours(bound):
                    break
                best, chosen = layer, history[-1]
    weights = basis.components @ best
    weight, bias = weights.T.astype(np.float32), -(basis.mean @ weights).astype(np.float32)
    return weight, bias, [*history, chosen]


class Basis:
    """Features in the basis of their principal components, with almost equal variances.

    `rows` is F: (x - mean) @ components, where x are the features, of unit length by `normalize`.
    """

    def __init__(self, features: NDArray[Any], *, normalize: bool, centre: bool) -> None:
        def blocks() -> Iterator[tuple[slice, Floats]]:
            for rows in spans(len(features), BLOCK):
                part = features[rows]
                yield rows, l2_normalize(part) if normalize else np.asarray(part, np.float32)

        N, d = features.shape
        total, gram = np.zeros(d), np.zeros((d, d))
        for _, block in blocks():
            total += block.sum(axis=0, dtype=np.float64)
            gram += block.T @ block
        self.mean = total / N if centre else np.zeros(d)
        gram = gram / N - np.outer(self.mean, self.mean)
        count = min(DIMENSIONS, d, N - 1)
        variances, vectors = top_eigenvectors(gram, count)
        self.variances = np.maximum(variances, 0.0)
        self.ridge = RIDGE * max(float(np.trace(gram)) / d, np.finfo(np.float32).tiny)
        self.components = vectors / np.sqrt(self.variances + self.ridge)
        self.rows = np.empty((N, count), np.float32)
        matrix, shift = self.components.astype(np.float32), self.mean @ self.components
        for rows, block in blocks():
            self.rows[rows] = block @ matrix - shift.astype(np.float32)


class Problem:
    """The objective for a linear layer on the rows F of a basis: z = layer^T f."""

    def __init__(
        self, basis: Basis, graph: sparse.csr_array, bits: int, rng: np.random.Generator
    ) -> None:
        self.F, self.basis, self.graph, self.bits = basis.rows, basis, graph, bits
        self.rotated = np.sort(rng.permutation(len(self.F))[:ROTATION_ROWS])
        components = min(bits, self.F.shape[1])
        self.rotation = random_rotation(bits, rng)[:components]

    @cached_property
    def memberships(self) -> Reals:
        """F^T S F, with memberships divided by the roots of both degrees, each row its own."""
        degrees = np.diff(self.graph.indptr) + 1.0
        F = self.F / np.sqrt(degrees, dtype=np.float32)[:, None]

        def part(rows: slice) -> Reals:
            product = self.graph[rows].astype(np.float32) @ F + F[rows]
            return (F[rows].T @ product).astype(np.float64)

        total: Reals = sum(thread_map(part, spans(len(F), BLOCK)), np.zeros(()))
        return (total + total.T) / 2

    def start(self, weight: float, *, exact: bool = False) -> Floats:
        """The layer that is best for graded labels, turned by ITQ; for weight 0, ITQ itself.

        `exact` takes the cosines as they are without the ridge.
        """
        variances, evened = self.basis.variances, self.basis.variances + self.basis.ridge
        layer: Reals = np.diag(np.sqrt(evened))[:, : len(self.rotation)]
        if weight:
            cosines = evened if exact else variances**2 / evened
            target = np.diag(cosines / max(cosines.sum(), np.finfo(np.float32).tiny))
            target += weight * self.memberships / np.trace(self.memberships)
            values, vectors = top_eigenvectors(target, len(self.rotation))
            layer = vectors * np.sqrt(np.maximum(values, 0.0))
        outputs, rotation = self.F[self.rotated] @ layer.astype(np.float32), self.rotation
        if len(rotation) == self.bits:  # with more bits, quantisation would make some of them equal
            rotation, _ = best_rotation(outputs, rotation, ROTATIONS)
        size = float(np.abs(outputs @ rotation.astype(np.float32)).mean())
        return (layer @ rotation / max(size, 1e-12)).astype(np.float32)  # outputs of mean size 1

    def descend(self, layer: Floats, rng: np.random.Generator) -> Iterator[tuple[int, Floats]]:
        """(step, layer) at LOOKS: Adam on J1 with binary labels, over all pairs, and Eq. 7.

        The gradient of J1 is exact; that of the quantisation is taken over BATCH random images.
        """
        N, L, variances = len(self.F), self.bits, self.basis.variances
        gram = (variances / (variances + self.basis.ridge)).astype(np.float32)[:, None]  # diagonal
        degree = self.graph.nnz / N
        positives = (2 * degree * self.memberships / N**2).astype(np.float32)
        first, second = np.zeros_like(layer), np.zeros_like(layer)
        for step in range(1, STEPS + 1):
            batch = self.F[rng.integers(0, N, min(BATCH, N))]
            z = batch @ layer
            correlated = gram * layer  # F^T F layer / N
            gradient = (4 / L**2) * correlated @ (layer.T @ correlated)
            gradient -= (4 / L) * positives @ layer
            gradient += (2 * QUANTISATION / z.size) * batch.T @ (z - sgn(z, np.float32))
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            rate = RATE * float(np.abs(layer).mean()) * (1 + np.cos(np.pi * step / STEPS)) / 2
            size = np.sqrt(second / (1 - 0.999**step)) + 1e-12
            layer = layer - (rate * first / (1 - 0.9**step) / size).astype(np.float32)
            if step in LOOKS:
                yield step, layer


class Found(NamedTuple):
    """What the codes of a sample find; None: not counted."""

    kept_neighbours: float | None = None  # share of the NEAREST by cosine, among the FIRST
    similar_found: float | None = None  # share of S_i's members among the first `degree`

    def less(self, loss: float) -> "Found":
        """The least that others must find, where they may lose this share of the neighbours."""
        kept = self.kept_neighbours
        return self if kept is None else self._replace(kept_neighbours=kept - loss)

    def keeps_neighbours(self, bound: "Found") -> bool:
        """Whether enough of the nearest are found."""
        return (self.kept_neighbours or 0.0) >= (bound.kept_neighbours or 0.0)

    def finds_more_similar(self, bound: "Found") -> bool:
        """Whether S is of use: always where nothing was counted."""
        return self.similar_found is None or self.similar_found > (bound.similar_found or 0.0)


class Sample:
    """Some images, whose nearest neighbours among all must be found again by the codes."""

    QUERIES, NEAREST, FIRST = 1000, 10, 100
    COSINES = 10**8  # computed at most, or those of a fifth of the queries

    def __init__(
        self,
        features: NDArray[Any],
        rows: Floats,
        graph: sparse.csr_array,
        rng: np.random.Generator,
    ) -> None:
        self.rows, N = rows, len(features)
        count = min(self.QUERIES, max(self.QUERIES // 5, self.COSINES // N))
        self.queries = np.sort(rng.permutation(N)[:count])
        count = min(self.NEAREST, N - 1)
        self.nearest = exact_rows(cosine_space(features), self.queries.astype(np.int32), count)
        pairs = graph[self.queries].tocoo()
        self.similar = pairs.row.astype(np.int64) * N + pairs.col  # a number for each pair of S
        self.degree = min(self.FIRST, -(-pairs.nnz // len(self.queries)))  # mean, rounded up

    def find(self, layer: Floats) -> Found:
        """Encode all images and search for those of the sample."""
        codes = np.concatenate(
            [pack(sgn(self.rows[part] @ layer)) for part in spans(len(self.rows), BLOCK)]
        )
        count = min(self.FIRST + 1, len(codes))  # the image itself is one of them
        found = search(codes[self.queries], codes, count).indices
        kept = (self.nearest[:, :, None] == found[:, None, :]).any(axis=2)
        first = found[:, : self.degree + 1] + np.arange(len(found))[:, None] * len(codes)
        return Found(float(kept.mean()), float(np.isin(first, self.similar).mean()))
