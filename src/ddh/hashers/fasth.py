"""Lin, Shen, Shi, van den Hengel & Suter (2014), "Fast supervised hashing with decision trees"."""

import math
from typing import Literal

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from ddh._core.arrays import sgn
from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh.hashers.base import Floats, Hasher
from ddh.hashers.boosted_trees import boost, evaluate, stack
from ddh.hashers.label_pairs import labelled_pairs


class FastH(Hasher):
    """Codes of the training rows by graph cuts, then boosted trees that predict them; bit by bit.

    Bit r minimises sum_ij a_ij z_i z_j with a_ij from the `loss` of the bits before (Sec. 3.1).
    Blocks of rows that all share a label have a_ij <= 0 inside, so each is solved exactly, given
    the others, by a minimum cut (Sec. 3.2). Then boosted trees learn z, and their
    predictions replace z for the bits to come. Rows of class -1 are not drawn. More bits than
    dimensions are fine. Memory: a few labelled x labelled arrays.

    Parameters
    ----------
    loss : {"hinge", "ksh"}
        Loss of a pair's Hamming distance.
    trees, depth : int
        Number of boosted trees per bit, and their depth.
    split_features : int, optional
        Random features tried per split; by default the square root of their number.
    labelled : int
        Rows to learn from, drawn at random.
    block_rows : int
        Largest number of rows per graph cut.
    """

    title = "Fast supervised hashing with decision trees"
    kind = "supervised"
    labels = "required"
    paper = "Lin, Shen, Shi, van den Hengel & Suter, Fast supervised hashing, CVPR"
    year = 2014

    loss: Literal["hinge", "ksh"] = "hinge"
    trees: int = 200
    depth: int = 4
    split_features: int | None = None
    labelled: int = 2000
    block_rows: int = 100

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        assert y is not None
        if self.loss not in ("hinge", "ksh"):
            raise InputError(f"loss is 'hinge' or 'ksh', not {self.loss!r}")
        rows, S = labelled_pairs(y, self.labelled, rng)
        features = np.ascontiguousarray(X[rows], np.float32)
        similar = S.dense() > 0
        blocks = similar_blocks(similar, self.block_rows, rng)
        distances = np.zeros(similar.shape, np.int32)
        ensembles = []
        for r in track(range(self.bits), "Boosted bits", unit="bit"):
            A = pair_weights(similar, distances, r, self.bits, self.loss)
            z = cut_blocks(A, first_codes(A, rng), blocks)
            trees = boost(
                features,
                z,
                trees=self.trees,
                depth=self.depth,
                features=self.split_features or math.isqrt(X.shape[1]),
                rng=rng,
            )
            ensembles.append(trees)
            predicted = sgn(evaluate(features, stack([trees]))[:, 0])
            distances += predicted[:, None] != predicted
        self.features_, self.thresholds_, self.values_ = stack(ensembles)

    def _outputs(self, X: Floats) -> Floats:
        return evaluate(X, (self.features_, self.thresholds_, self.values_))


def pair_weights(
    similar: NDArray[np.bool_],
    distances: NDArray[np.int32],
    found: int,
    bits: int,
    loss: str,
) -> NDArray[np.int32]:
    """a_ij of the next bit, a whole number, up to a factor: (l at z_i z_j = 1) - (l at -1).

    d are Hamming distances over the `found` bits. "ksh": a = -(r y_ij - sum of z_i z_j). "hinge":
    eight times a, with l = d^2 for similar pairs and max(0, bits / 2 - d)^2 for others.
    """
    if loss == "ksh":
        products = found - 2 * distances
        weights = products - (found + 1) * np.where(similar, 1, -1)
    else:
        margin = np.maximum(bits - 2 * distances, 0)
        later = np.maximum(bits - 2 * distances - 2, 0)
        weights = np.where(similar, -4 * (2 * distances + 1), margin**2 - later**2)
    weights = weights.astype(np.int32)
    np.fill_diagonal(weights, 0)
    return weights


def similar_blocks(
    similar: NDArray[np.bool_], most_rows: int, rng: np.random.Generator
) -> list[NDArray[np.intp]]:
    """Cut the rows into blocks of at most `most_rows` whose members all share a label (Alg. 2)."""
    free = np.ones(len(similar), bool)
    blocks = []
    for i in rng.permutation(len(similar)):
        if not free[i]:
            continue
        members = [int(i)]
        free[i] = False
        candidates = similar[i] & free
        while len(members) < most_rows and candidates.any():
            j = int(candidates.argmax())
            members.append(j)
            free[j] = False
            candidates &= similar[j] & free
        blocks.append(np.array(members))
    return blocks


def first_codes(A: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.int8]:
    """Signs of the top eigenvector of -A, the relaxed minimum (Sec. 3.2)."""
    start = rng.standard_normal(len(A))
    if len(A) < 3:
        return sgn(start)
    matrix = -A.astype(np.float32)
    return sgn(scipy.sparse.linalg.eigsh(matrix, 1, which="LA", v0=start, tol=1e-3)[1][:, 0])


def cut_blocks(
    A: NDArray[np.int32], z: NDArray[np.int8], blocks: list[NDArray[np.intp]], rounds: int = 2
) -> NDArray[np.int8]:
    """Minimise sum_ij a_ij z_i z_j block by block, each exactly; the energy never rises."""
    z = z.copy()
    for _ in range(rounds):
        for block in blocks:
            inside = A[np.ix_(block, block)].astype(np.int64)
            total = A[block] @ z.astype(np.int64)
            fields = 2 * (total - inside @ z[block])
            z[block] = minimum_energy(inside, fields)
    return z


def minimum_energy(couplings: NDArray[np.int64], fields: NDArray[np.int64]) -> NDArray[np.int8]:
    """z in {-1, +1}^n that minimises sum_ij couplings_ij z_i z_j + sum_i fields_i z_i.

    Couplings are integers <= 0 and symmetric, so the energy is submodular and its minimum a cut
    (Kolmogorov & Zabih 2004): z_i = +1 on the source's side.
    """
    n = len(fields)
    source, sink = n, n + 1
    # an unordered pair that is cut costs -4 couplings_ij more than one that is not
    capacity = np.zeros((n + 2, n + 2), np.int64)
    capacity[:n, :n] = -4 * couplings
    np.fill_diagonal(capacity, 0)
    # z_i = -1 costs -2 fields_i more than z_i = +1
    capacity[source, :n] = np.maximum(-2 * fields, 0)
    capacity[:n, sink] = np.maximum(2 * fields, 0)
    if capacity.max() > np.iinfo(np.int32).max:
        raise OverflowError("the energy does not fit into 32-bit flows: use fewer rows or bits")
    graph = scipy.sparse.csr_array(capacity.astype(np.int32))
    residual = graph - maximum_flow(graph, source, sink).flow
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, source, return_predecessors=False)
    z = np.full(n + 2, -1, np.int8)
    z[reached] = 1
    return z[:n]
