"""Features -> labels: neighbour lists, overlap, expansion, S (paper 2.1, Alg. 1)."""

from ddh.neighbours.expansion import expand, pairwise_labels
from ddh.neighbours.groups import LabelGroups, label_groups
from ddh.neighbours.nearest import NearestLists, knn, nearest

__all__ = [
    "LabelGroups",
    "NearestLists",
    "expand",
    "knn",
    "label_groups",
    "nearest",
    "pairwise_labels",
]
