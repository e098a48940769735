"""Cao et al. (2017), "HashNet: deep learning to hash by continuation"."""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import HashLayers, Objective, shared_labels


def weighted_likelihood(codes: Tensor, similar: Tensor, alpha: float) -> Tensor:
    """HashNet, Eq. 4, per pair of a batch: log(1 + e^t) - s t with t = alpha <h_i, h_j>, weighted
    so that similar and other pairs count the same, however rare one kind is."""
    theta = alpha * codes @ codes.T
    # softplus is log(1 + e^t) in a form that does not overflow
    cost = softplus(theta) - similar * theta
    other = ~torch.eye(len(codes), dtype=torch.bool, device=codes.device)
    kinds = (similar & other, ~similar & other)
    means = [(cost * kind).sum() / kind.sum().clamp(min=1) for kind in kinds]
    return means[0] + means[1]


class HashNet(DeepHasher):
    """Likelihood of the pairs under tanh(beta z), sharpened step by step towards sgn(z).

    `alpha` scales the inner product of two codes; None means 10 / bits, as in the release.
    """

    title = "HashNet"
    kind = "supervised deep"
    labels = "required"
    paper = "Cao, Long, Wang & Yu, HashNet: deep learning to hash by continuation, ICCV"
    year = 2017

    batch_size: int = 128
    learning_rate: float = 3e-4
    alpha: float | None = None
    beta: float = 7.1

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        """The likelihood of tanh(beta z), beta growing from 1 to `beta` as training goes on."""
        alpha = 10.0 / self.bits if self.alpha is None else self.alpha

        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            # sqrt(1 + 0.005 iteration) of the release, over its 10,000 iterations: beta = 7.1
            beta, own = math.sqrt(1.0 + (self.beta**2 - 1.0) * progress), labels[rows]
            similar = shared_labels(own, own) > 0
            return weighted_likelihood(torch.tanh(beta * outputs), similar, alpha)

        return loss
