"""Features -> labels: neighbour lists and Algorithm 1 of the paper (section 2.1)."""

from ddh.neighbours.alg1 import approximate_labels, expand, pairwise_labels
from ddh.neighbours.approximate import Approximation, HNSWIndex, IVFIndex, shard_lists, tune
from ddh.neighbours.cosine import CosineSpace, cosine_space
from ddh.neighbours.knn import NearestLists, knn, nearest
from ddh.neighbours.labels import LabelGroups, label_groups
from ddh.neighbours.statistics import (
    GraphStatistics,
    PrecisionPoint,
    precision_over_k,
    statistics,
)

__all__ = [
    "Approximation",
    "CosineSpace",
    "GraphStatistics",
    "HNSWIndex",
    "IVFIndex",
    "LabelGroups",
    "NearestLists",
    "PrecisionPoint",
    "approximate_labels",
    "cosine_space",
    "expand",
    "knn",
    "label_groups",
    "nearest",
    "pairwise_labels",
    "precision_over_k",
    "shard_lists",
    "statistics",
    "tune",
]
