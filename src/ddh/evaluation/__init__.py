"""Honest figures: retrieval measures with ties treated exactly, protocols, recognition."""

from ddh.evaluation.average_precision import DENOMINATORS
from ddh.evaluation.curves import Curve
from ddh.evaluation.diagnostics import CodeDiagnostics, diagnose
from ddh.evaluation.leakage import refuse_shared_images, shared_images
from ddh.evaluation.lists import RankedLists
from ddh.evaluation.protocol import Protocol, Score, over_seeds
from ddh.evaluation.recognition import Recognition, recognise
from ddh.evaluation.retrieval import Retrieval, mean_average_precision
from ddh.evaluation.splits import (
    PROTOCOLS,
    RetrievalSplit,
    per_class,
    protocol_images,
    split_by_name,
)
from ddh.evaluation.vectors import mean_average_precision_of_vectors, nearest_by_cosine

__all__ = [
    "CodeDiagnostics",
    "Curve",
    "DENOMINATORS",
    "PROTOCOLS",
    "Protocol",
    "RankedLists",
    "Recognition",
    "Retrieval",
    "RetrievalSplit",
    "Score",
    "diagnose",
    "mean_average_precision",
    "mean_average_precision_of_vectors",
    "nearest_by_cosine",
    "over_seeds",
    "per_class",
    "protocol_images",
    "recognise",
    "refuse_shared_images",
    "shared_images",
    "split_by_name",
]
