"""Confident neighbours as further views of a picture: the paper's 2.1 while features are learned.

A partner of i is a j with i and j in each other's K1 lists and a good part of the lists in common.
Trained as if it were a view of i, it draws together what belongs together.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ddh.neighbours import knn
from ddh.neighbours.statistics import graph_of

BLOCK_BYTES = 64 << 20


class Partners:
    """For each picture the pictures that may stand for its second view."""

    def __init__(self, graph: sparse.csr_array) -> None:
        self.graph = graph
        self.degree = np.diff(graph.indptr)

    def draw(
        self, rows: NDArray[np.int64], chance: float, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """With this chance one of each row's partners, else (and without any) the row itself."""
        others = np.flatnonzero((rng.random(len(rows)) < chance) & (self.degree[rows] > 0))
        chosen = rows[others]
        pick = (rng.random(len(chosen)) * self.degree[chosen]).astype(np.int64)
        partners = rows.copy()
        partners[others] = self.graph.indices[self.graph.indptr[chosen] + pick]
        return partners


def find_neighbour_positives(
    features: NDArray[np.float32], k1: int, least_overlap: float, device: str | None = None
) -> Partners:
    """Mutual neighbours with at least `least_overlap` of their lists in common.

    Memory: that of `knn`, and 64 MB.
    """
    lists = knn(features, min(k1, len(features) - 1), centre=True, device=device)
    n, k = lists.shape
    listed = graph_of(lists)
    mutual = sparse.csr_array(listed.multiply(listed.T))
    mutual.sort_indices()
    first = np.repeat(np.arange(n), np.diff(mutual.indptr))
    good = _overlaps(lists, first, mutual.indices) >= least_overlap * k
    kept = sparse.csr_array(
        (np.ones(int(good.sum()), np.int8), (first[good], mutual.indices[good])), shape=(n, n)
    )
    return Partners(kept)


def _overlaps(
    lists: NDArray[np.int32], first: NDArray[np.int64], second: NDArray[np.int32]
) -> NDArray[np.int64]:
    """How many entries the lists of each pair have in common."""
    ordered = np.sort(lists, axis=1)
    counts = np.empty(len(first), np.int64)
    block = max(1, BLOCK_BYTES // (8 * lists.shape[1]))
    for start in range(0, len(first), block):
        part = slice(start, start + block)
        both = np.concatenate([ordered[first[part]], ordered[second[part]]], axis=1)
        both.sort(axis=1)
        counts[part] = (both[:, 1:] == both[:, :-1]).sum(axis=1)
    return counts
