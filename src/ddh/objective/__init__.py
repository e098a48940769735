"""The paper's objective (2.3, 2.4): all pairs exactly, at a cost that does not grow with N."""

from ddh.objective.loss import Terms, all_pairs, gradient, in_batch, quantisation, regulariser
from ddh.objective.memory import PairMemory
from ddh.objective.positives import GraphPositives, GroupPositives, Positives

__all__ = [
    "GraphPositives", "GroupPositives", "PairMemory", "Positives", "Terms", "all_pairs", "gradient",
    "in_batch", "quantisation", "regulariser",
]  # fmt: skip
