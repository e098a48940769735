"""Confident neighbours as positives: section 2.1 of the paper applied while features are learned.

j is a confident neighbour of i if each is in the other's K1 list and the two lists overlap enough.
It may replace the second view of i, which pulls images of the same kind together.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ddh.neighbours import knn
from ddh.neighbours.statistics import graph_of

BLOCK_BYTES = 64 << 20


class NeighbourPositives:
    """For each image the images that may replace its second view, as a sparse (n, n) graph."""

    def __init__(self, graph: sparse.csr_array) -> None:
        self.graph = graph
        self.degree = np.diff(graph.indptr)

    def draw(
        self, rows: NDArray[np.int64], probability: float, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """A random neighbour of each row with this probability, otherwise the row itself."""
        replaced = np.flatnonzero((rng.random(len(rows)) < probability) & (self.degree[rows] > 0))
        chosen = rows[replaced]
        pick = (rng.random(len(chosen)) * self.degree[chosen]).astype(np.int64)
        drawn = rows.copy()
        drawn[replaced] = self.graph.indices[self.graph.indptr[chosen] + pick]
        return drawn


def find_neighbour_positives(
    features: NDArray[np.float32], k1: int, min_overlap: float, device: str | None = None
) -> NeighbourPositives:
    """Mutual neighbours whose lists have at least the fraction `min_overlap` in common.

    Memory: that of `knn`, and 64 MB.
    """
    lists = knn(features, min(k1, len(features) - 1), centre=True, device=device)
    n, k = lists.shape
    listed = graph_of(lists)
    mutual = sparse.csr_array(listed.multiply(listed.T))
    mutual.sort_indices()
    first = np.repeat(np.arange(n), np.diff(mutual.indptr))
    good = _overlaps(lists, first, mutual.indices) >= min_overlap * k
    kept = sparse.csr_array(
        (np.ones(int(good.sum()), np.int8), (first[good], mutual.indices[good])), shape=(n, n)
    )
    return NeighbourPositives(kept)


def _overlaps(
    lists: NDArray[np.int32], first: NDArray[np.int64], second: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Number of common entries in the lists of each pair."""
    ordered = np.sort(lists, axis=1)
    counts = np.empty(len(first), np.int64)
    block = max(1, BLOCK_BYTES // (8 * lists.shape[1]))
    for start in range(0, len(first), block):
        part = slice(start, start + block)
        both = np.concatenate([ordered[first[part]], ordered[second[part]]], axis=1)
        both.sort(axis=1)
        counts[part] = (both[:, 1:] == both[:, :-1]).sum(axis=1)
    return counts
