"""Li & van Gemert (2021), "Deep unsupervised image hashing by maximizing bit entropy"."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import DeepTraining, HashLayers, Objective, straight_through
from ddh.hashers.greedyhash import similarity_loss
from ddh.train.features import Pictures


def half_half(outputs: Tensor) -> Tensor:
    """Per bit +1 for the larger half of a batch and -1 for the other, the optimal transport
    of the outputs to a half-half distribution; the row in the middle of an odd batch is -1."""
    order = outputs.argsort(dim=0, descending=True, stable=True)
    rank = order.argsort(dim=0)
    return torch.where(rank < len(outputs) // 2, 1.0, -1.0).to(outputs.dtype)


def alignment(outputs: Tensor, codes: Tensor) -> Tensor:
    """The mean of (u - b)^2 / 2, whose gradient is the term that the paper adds, u - b."""
    return 0.5 * (outputs - codes.detach()).square().mean()


class BiHalf(DeepHasher):
    """Bits that are +1 for half of every batch, which maximises their entropy.

    The loss is that of `GreedyHash` on the half-half codes; their gradient is handed on to the
    outputs with `gamma` (u - b) added. Codes are cut at the mean of the training outputs per bit.
    """

    title = "Bi-half net"
    kind = "unsupervised deep"
    paper = "Li & van Gemert, Unsupervised image hashing by maximizing bit entropy, AAAI"
    year = 2021

    hidden: Sequence[int] | None = ()
    gamma: float = 1.0

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            codes = half_half(outputs)
            similar = similarity_loss(straight_through(codes, outputs), features[rows])
            return similar + self.gamma * alignment(outputs, codes)

        return loss

    @torch.no_grad()
    def _finish(self, training: DeepTraining, features: Tensor, pictures: Pictures | None) -> None:
        outputs = training.layers.apply_to_all(features)
        training.layers.linear[-1].bias.sub_(outputs.mean(dim=0))
