"""Li, Wang & Kang (2016), "Feature learning based deep supervised hashing with pairwise labels"."""

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import HashLayers, Objective, shared_labels
from ddh.objective.loss import sgn


def negative_log_likelihood(u: Tensor, memory: Tensor, similar: Tensor) -> Tensor:
    """DPSH, Eq. 2, per pair: log(1 + e^t) - s t with t = u_i . u_j / 2, every u_j of the memory."""
    theta = 0.5 * u @ memory.T
    # softplus is log(1 + e^-|t|) + max(t, 0): it does not overflow
    return (softplus(theta) - similar * theta).mean()


def quantisation(u: Tensor) -> Tensor:
    """DPSH, Eq. 4's second term, per entry: (u - sgn u)^2."""
    return (u - sgn(u)).square().mean()


class PairwiseLikelihood(nn.Module):
    """The likelihood of a batch against the last outputs of all n training rows (n, bits)."""

    memory: Tensor

    def __init__(self, labels: Tensor, bits: int, eta: float) -> None:
        super().__init__()
        self.labels, self.eta = labels, eta
        self.register_buffer("memory", torch.zeros(len(labels), bits, device=labels.device))

    def forward(self, outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
        self.memory[rows] = outputs.detach()
        similar = shared_labels(self.labels[rows], self.labels) > 0
        likelihood = negative_log_likelihood(outputs, self.memory, similar)
        return likelihood + self.eta * quantisation(outputs)


class DPSH(DeepHasher):
    """Likelihood of all pairs of a batch with the whole training set, and quantisation.

    Both terms are means, so `eta` is the one of the mean form (the paper's sum form would be
    10 to 100). A step takes O(batch_size n) memory; no n x n array is ever made.
    """

    title = "Deep pairwise-supervised hashing"
    kind = "supervised deep"
    labels = "required"
    paper = "Li, Wang & Kang, Deep supervised hashing with pairwise labels, IJCAI"
    year = 2016

    learning_rate: float = 3e-3
    eta: float = 0.1

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        return PairwiseLikelihood(labels, self.bits, self.eta)
