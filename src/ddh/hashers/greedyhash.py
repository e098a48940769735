"""Su et al. (2018), "Greedy hash: towards fast optimization for accurate hash coding in CNN"."""

from collections.abc import Sequence

from torch import Tensor

from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import (
    HashLayers,
    Objective,
    cosine_similarities,
    straight_through,
)
from ddh.objective.loss import sgn


def similarity_loss(codes: Tensor, features: Tensor) -> Tensor:
    """Mean of (cos(b_i, b_j) - cos(x_i, x_j))^2 over the pairs of different rows of a batch."""
    difference = cosine_similarities(codes) - cosine_similarities(features)
    pairs = len(codes) * (len(codes) - 1)
    return (difference - difference.diagonal().diag()).square().sum() / max(pairs, 1)


def penalty(outputs: Tensor) -> Tensor:
    """Mean of ||h| - 1|^3, the paper's term that draws the outputs to their signs (p = 3)."""
    return (outputs.abs() - 1).abs().pow(3).mean()


class GreedyHash(DeepHasher):
    """Codes whose cosine similarities equal those of the features, through signs that are kept.

    The forward pass takes b = sgn(h), the backward pass hands the gradient of b on to h. This is
    the unsupervised form of the paper: the similarities of the features stand for labels.
    """

    title = "Greedy hash"
    kind = "unsupervised deep"
    paper = "Su, Zhang, Han & Tian, Greedy hash: towards fast optimization, NeurIPS"
    year = 2018

    hidden: Sequence[int] | None = ()
    alpha: float = 0.1

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            codes = straight_through(sgn(outputs), outputs)
            return similarity_loss(codes, features[rows]) + self.alpha * penalty(outputs)

        return loss
