"""Qiu et al. (2021), "Unsupervised hashing with contrastive information bottleneck"."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from ddh.hashers.deep_training import (
    HashLayers,
    Objective,
    cosine_similarities,
    straight_through,
)
from ddh.hashers.two_views import TwoViewHasher


def contrastive_loss(codes: Tensor, temperature: float) -> Tensor:
    """NT-Xent of stacked views (2 b, bits): row i must find row i + b among all rows but itself."""
    similarity = cosine_similarities(codes) / temperature
    itself = torch.eye(len(codes), dtype=torch.bool, device=codes.device)
    other_view = torch.arange(len(codes), device=codes.device).roll(len(codes) // 2)
    return cross_entropy(similarity.masked_fill(itself, -torch.inf), other_view)


def bernoulli_divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL(p || q) of Bernoulli bits with the logits of p and of q, q held fixed; per row."""
    target = target.detach()
    ones = torch.sigmoid(logits) * (logsigmoid(logits) - logsigmoid(target))
    zeros = torch.sigmoid(-logits) * (logsigmoid(-logits) - logsigmoid(-target))
    return (ones + zeros).sum(dim=1).mean()


class CIBHash(TwoViewHasher):
    """Codes by which an image recognises its other view, and no more information than that.

    Bits are drawn from Bernoulli distributions with the probabilities sigmoid(z), straight through;
    their contrastive loss has the `temperature`, and `beta` weighs the divergence of the
    distributions of the two views, both ways.
    """

    title = "Contrastive information bottleneck hashing"
    kind = "unsupervised deep"
    paper = "Qiu, Su, Ou, Yu & Chen, Hashing with contrastive information bottleneck, IJCAI"
    year = 2021

    temperature: float = 0.3
    beta: float = 1e-3

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            probability = torch.sigmoid(outputs)
            drawn = torch.where(torch.rand_like(probability) < probability, 1.0, -1.0)
            codes = straight_through(drawn, 2 * probability)
            one, other = outputs.chunk(2)
            divergence = bernoulli_divergence(one, other) + bernoulli_divergence(other, one)
            return contrastive_loss(codes, self.temperature) + self.beta * divergence / 2

        return loss
