"""Features -> labels: neighbour lists, overlap, expansion, S (paper 2.1, Alg. 1)."""

from ddh.neighbours.expansion import expand, pairwise_labels
from ddh.neighbours.groups import LabelGroups, label_groups
from ddh.neighbours.nearest import NearestLists, knn, nearest
from ddh.neighbours.statistics import (
    GraphStatistics,
    PrecisionPoint,
    precision_over_k,
    statistics,
)

__all__ = [
    "GraphStatistics",
    "LabelGroups",
    "NearestLists",
    "PrecisionPoint",
    "expand",
    "knn",
    "label_groups",
    "nearest",
    "pairwise_labels",
    "precision_over_k",
    "statistics",
]
