"""Features -> labels: neighbour lists, overlap, expansion, S (paper 2.1, Alg. 1)."""

from ddh.neighbours.expansion import expand, pairwise_labels
from ddh.neighbours.nearest import NearestLists, knn, nearest

__all__ = ["NearestLists", "expand", "knn", "nearest", "pairwise_labels"]
