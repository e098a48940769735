"""Honest figures: retrieval measures with ties treated exactly, protocols, recognition."""

from ddh.evaluation.average_precision import DENOMINATORS
from ddh.evaluation.curves import Curve
from ddh.evaluation.diagnostics import CodeDiagnostics, diagnose
from ddh.evaluation.leakage import pixel_digests, refuse_shared_images
from ddh.evaluation.protocol import Protocol, Score, over_seeds
from ddh.evaluation.retrieval import Retrieval, mean_average_precision

__all__ = [
    "CodeDiagnostics",
    "Curve",
    "DENOMINATORS",
    "Protocol",
    "Retrieval",
    "Score",
    "diagnose",
    "mean_average_precision",
    "over_seeds",
    "pixel_digests",
    "refuse_shared_images",
]
