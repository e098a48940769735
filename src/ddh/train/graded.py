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
ITQ. From there, gradient descent on the paper's own objective (J1 with binary labels, and the
quantisation) moves on towards kinds. By

    sum_ij (z_i.z_j / L - s_ij)^2 = |Z^T Z|^2 / L^2 - (4 / L) tr(W^T F^T S F W) + constant

(centred Z), a step costs d x d x L whatever N is, and only the quantisation needs rows.

How far to go is decided by the collection itself: codes must keep the nearest neighbours of the
features almost as well as ITQ's do (`kept_neighbours`), and S must help them to find more images of
the same kinds (`kinds_found`), where clusters stand for kinds (`ddh.train.clusters`). Features of a
network that was trained on such images group the kinds by themselves, and S then only refines
what is near at the cost of kinds: memberships in S and in clusters have equal parts there. No class
label is needed for that. Short codes (up to SHORT bits) cannot keep the neighbours anyway, and are
trained to the end.
"""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
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
from ddh.train.clusters import Clusters, find_clusters

Floats = NDArray[np.float32]

DIMENSIONS = 512  # principal components at most
RIDGE = 1.0  # added to their variances, in units of the mean variance of a dimension
WEIGHTS = (3.0, 1.0, 0.3, 0.1)  # of memberships beside cosines
LEAST = 0.03  # tried after them without the ridge, where weights are near ITQ
STEPS = 400
LOOKS = (25, 50, 100, 200, STEPS)  # steps after which kept neighbours are counted
RATE = 0.05  # of Adam, relative to the mean size of the weights
QUANTISATION = 0.3
BATCH = 2048
ROTATION_ROWS, ROTATIONS = 50_000, 50
CLUSTERED_DIMENSIONS = 128  # principal components at most
SHORT = 32  # bits
LONG = 128
QUICK = 64  # bits that all ROTATION_ROWS are used for in a trial
# For memberships in S, and in both S and clusters: by how much the share of kept neighbours may be
# below ITQ's, for fewer and for LONG bits; and how much the heaviest must find of the kinds that
# ITQ's codes miss.
ALLOWED_LOSS = {"neighbourhoods": (0.04, 0.014), "both": (0.03, 0.01)}
GAIN = {"neighbourhoods": 0.08, "both": 0.0}
MANY = 20  # images per dimension
BLOCK = 8192
TINY = float(np.finfo(np.float32).tiny)


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

    `history` says what was tried and what its codes find of a sample's neighbours and kinds; its
    last entry is what was chosen. Memory: beside the features, 4 bytes x N x (DIMENSIONS +
    CLUSTERED_DIMENSIONS) and a few arrays of DIMENSIONS x DIMENSIONS.
    """
    rng = np.random.default_rng(seed)
    basis = Basis(features, normalize=normalize, centre=centre)
    problem = Problem(basis, graph, bits, rng)
    clusters = sample = None
    if bits > SHORT:
        clusters = find_clusters(basis.principal(CLUSTERED_DIMENSIONS), graph, rng.spawn(1)[0])
        sample = Sample(features, basis.rows, clusters, rng)
    most = 2 + 2 * len(WEIGHTS) + 3  # ITQ and S, then both with and without the ridge, and nearer
    with bar("Fitting codes", total=most) as progress:
        trials = Trials(problem, sample, progress.update)
        if trials.heaviest("neighbourhoods", problem.memberships):
            trials.descend(rng)
        elif clusters is not None:
            trials.heaviest("both", problem.with_clusters(clusters))
    weights = basis.components @ trials.best
    weight, bias = weights.T.astype(np.float32), -(basis.mean @ weights).astype(np.float32)
    return weight, bias, [*trials.history, trials.chosen]


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
        self.ridge = RIDGE * max(float(np.trace(gram)) / d, TINY)
        self.components = vectors / np.sqrt(self.variances + self.ridge)
        self.rows = np.empty((N, count), np.float32)
        matrix, shift = self.components.astype(np.float32), self.mean @ self.components
        for rows, block in blocks():
            self.rows[rows] = block @ matrix - shift.astype(np.float32)

    def principal(self, count: int) -> Floats:
        """The first principal components of the features, with their own variances."""
        scales = np.sqrt(self.variances[:count] + self.ridge).astype(np.float32)
        return self.rows[:, :count] * scales


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

    def with_clusters(self, clusters: Clusters) -> Reals:
        """Memberships in S and in clusters, in equal parts."""
        return _with_trace_1(self.memberships) + _with_trace_1(clusters.memberships(self.F))

    def start(
        self,
        weight: float,
        memberships: Reals | None = None,
        *,
        exact: bool = False,
        quick: bool = False,
    ) -> Floats:
        """The layer that is best for graded labels, turned by ITQ; for weight 0, ITQ itself.

        `memberships` are those in S by default. `exact` takes the cosines as they are without the
        ridge; `quick` turns long codes by fewer rows, so that time is linear in the bits.
        """
        variances, evened = self.basis.variances, self.basis.variances + self.basis.ridge
        layer: Reals = np.diag(np.sqrt(evened))[:, : len(self.rotation)]
        if weight:
            cosines = evened if exact else variances**2 / evened
            target = _with_trace_1(np.diag(cosines))
            memberships = self.memberships if memberships is None else memberships
            target += weight * _with_trace_1(memberships)
            values, vectors = top_eigenvectors(target, len(self.rotation))
            layer = vectors * np.sqrt(np.maximum(values, 0.0))
        rows = self.rotated[:: max(1, self.bits // QUICK)] if quick else self.rotated
        outputs, rotation = self.F[rows] @ layer.astype(np.float32), self.rotation
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


def _with_trace_1(matrix: Reals) -> Reals:
    return matrix / max(float(np.trace(matrix)), TINY)


class Found(NamedTuple):
    """What the codes of a sample find; None: not counted."""

    kept_neighbours: float | None = None  # share of the NEAREST by cosine, among the FIRST
    kinds_found: float | None = None  # share of images of the same clusters, `Clusters.found`

    def keeps_neighbours(self, other: "Found", loss: float) -> bool:
        """Whether as many of the nearest are found as by the other, but for a loss."""
        return (self.kept_neighbours or 0.0) >= (other.kept_neighbours or 0.0) - loss

    def finds_kinds(self, other: "Found", gain: float) -> bool:
        """Whether this share of the kinds that the other misses is found beside its own."""
        kinds = 1.0 if other.kinds_found is None else other.kinds_found
        return self.kinds_found is None or self.kinds_found >= kinds + gain * (1 - kinds)


class Trials:
    """Layers that were tried, what the codes of a sample find with them, and the best so far."""

    def __init__(
        self, problem: Problem, sample: "Sample | None", after_each: Callable[[], None]
    ) -> None:
        self.problem, self.sample, self.after_each = problem, sample, after_each
        self.history: list[dict[str, Any]] = []
        self.best = problem.start(0.0)
        self.itq = self.look(self.best, "none", 0.0)
        self.chosen = self.history[0]

    def look(self, layer: Floats, memberships: str, weight: float, step: int = 0) -> Found:
        """What a layer finds."""
        found = Found() if self.sample is None else self.sample.find(layer)
        tried = {"memberships": memberships, "weight": weight, "step": step}
        self.history.append({**tried, **found._asdict()})
        self.after_each()
        return found

    def accept(self, layer: Floats, found: Found) -> bool:
        """Take the newest layer for the best if it keeps enough neighbours."""
        loss = ALLOWED_LOSS[self.history[-1]["memberships"]][int(self.problem.bits >= LONG)]
        if not found.keeps_neighbours(self.itq, loss):
            return False
        self.best, self.chosen = layer, self.history[-1]
        return True

    def heaviest(self, name: str, memberships: Reals) -> bool:
        """Choose the largest weight that keeps enough neighbours; False: these are of no use."""
        quick = name == "both"
        for exact, weights in ((False, WEIGHTS), (True, (*WEIGHTS, LEAST))):
            start = partial(self.problem.start, memberships=memberships, exact=exact)
            too_much = None
            for weight in weights:
                layer = start(weight, quick=quick)
                found = self.look(layer, name, weight)
                if weight == WEIGHTS[0] and not found.finds_kinds(self.itq, GAIN[name]):
                    return False
                if self.accept(layer, found):
                    break
                too_much = weight
            else:
                continue
            for _ in range(2 if too_much else 0):  # twice nearer to the bound
                weight = float(np.sqrt(too_much * self.chosen["weight"]))
                layer = start(weight, quick=quick)
                if not self.accept(layer, self.look(layer, name, weight)):
                    too_much = weight
            if quick and self.problem.bits > QUICK:
                self.best = start(self.chosen["weight"])
            break
        return True

    def descend(self, rng: np.random.Generator) -> None:
        """Go on from the heaviest memberships in S, while enough neighbours are kept."""
        if self.chosen["weight"] != WEIGHTS[0]:
            return
        with threadpool_limits(1, "blas"):  # of small products, threads would wait for each other
            for step, layer in self.problem.descend(self.best, rng):
                found = self.look(layer, "neighbourhoods", WEIGHTS[0], step)
                if not self.accept(layer, found):
                    break


class Sample:
    """Some images, whose nearest neighbours among all must be found again by the codes."""

    QUERIES, NEAREST, FIRST = 1000, 10, 100
    COSINES = 10**8  # computed at most, or those of a fifth of the queries

    def __init__(
        self,
        features: NDArray[Any],
        rows: Floats,
        clusters: Clusters | None,
        rng: np.random.Generator,
    ) -> None:
        self.rows, self.clusters, N = rows, clusters, len(features)
        count = min(self.QUERIES, max(self.QUERIES // 5, self.COSINES // N))
        self.queries = np.sort(rng.permutation(N)[:count])
        count = min(self.NEAREST, N - 1)
        self.nearest = exact_rows(cosine_space(features), self.queries.astype(np.int32), count)
        wanted = self.FIRST + 1  # the image itself is one of them
        self.results = min(N, wanted if clusters is None else max(wanted, clusters.first))

    def find(self, layer: Floats) -> Found:
        """Encode all images and search for those of the sample."""
        codes = np.concatenate(
            [pack(sgn(self.rows[part] @ layer)) for part in spans(len(self.rows), BLOCK)]
        )
        found = search(codes[self.queries], codes, self.results).indices
        first = found[:, None, : self.FIRST + 1]
        kept = float((self.nearest[:, :, None] == first).any(axis=2).mean())
        clusters = self.clusters
        return Found(kept, None if clusters is None else clusters.found(self.queries, found))
