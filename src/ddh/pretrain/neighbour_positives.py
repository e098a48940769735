"""Confident neighbours as positives: section 2.1 of the paper applied while features are learned.

j is a confident neighbour of i if each is in the other's K1 list and the two lists overlap enough.
It may replace the second view of i, which pulls images of the same kind together.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ddh.neighbours import knn
from ddh.neighbours.statistics import graph_of

BLOCK = 4096  # rows of the overlaps that exist at a time


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
    """Mutual neighbours whose lists have at least the fraction `min_overlap` in common."""
    lists = knn(features, min(k1, len(features) - 1), centre=True, device=device)
    n, k = lists.shape
    listed = sparse.csr_array(graph_of(lists), dtype=np.int32)
    mutual = sparse.csr_array(listed.multiply(listed.T))
    blocks = []
    for start in range(0, n, BLOCK):
        rows = slice(start, start + BLOCK)
        # plus 1: a mutual neighbour without any overlap is an entry too
        overlap = (listed[rows] @ listed.T).multiply(mutual[rows]) + mutual[rows]
        blocks.append(overlap >= min_overlap * k + 1)
    return NeighbourPositives(sparse.csr_array(sparse.vstack(blocks)))
