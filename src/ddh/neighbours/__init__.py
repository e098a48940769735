"""Features -> labels: neighbour lists, overlap, expansion, S (paper 2.1, Alg. 1)."""

from ddh.neighbours.approximate import shard_lists
from ddh.neighbours.approximation import Approximation
from ddh.neighbours.cosine import CosineSpace, cosine_space
from ddh.neighbours.expansion import approximate_labels, expand, pairwise_labels
from ddh.neighbours.faiss_index import Cells
from ddh.neighbours.labels import LabelGroups, label_groups
from ddh.neighbours.nearest import NearestLists, knn, nearest
from ddh.neighbours.statistics import (
    GraphStatistics,
    PrecisionPoint,
    precision_over_k,
    statistics,
)

__all__ = [
    "Approximation",
    "Cells",
    "CosineSpace",
    "GraphStatistics",
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
]
