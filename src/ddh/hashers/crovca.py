"""Moummad et al. (2025), "Image hashing via cross-view code alignment"."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from ddh.hashers.deep_training import DeepTraining, HashLayers, Objective, standardize_batch
from ddh.hashers.two_views import TwoViewHasher
from ddh.train.features import Pictures


def alignment(one: Tensor, other: Tensor) -> Tensor:
    """Binary cross-entropy of the logits of one view against the bits of the other, held fixed."""
    return binary_cross_entropy_with_logits(one, (other > 0).to(one.dtype))


def coding_rate(outputs: Tensor, eps: float) -> Tensor:
    """log det(I + d / (n eps) Z^T Z) / 2 of the rows z / |z|, times the release's (n + d) / nd."""
    n, d = outputs.shape
    unit = normalize(outputs, dim=1)
    identity = torch.eye(d, dtype=outputs.dtype, device=outputs.device)
    rate = torch.linalg.slogdet(identity + d / (n * eps) * unit.T @ unit).logabsdet / 2
    return rate * (n + d) / (n * d)


class CroVCA(TwoViewHasher):
    """Bits of one view predict those of the other, while the codes fill the space.

    `rate` weighs the coding rate, which is maximised, and `eps` is its distortion. Outputs are
    normalised per batch, and centred on the training rows at the end.
    """

    title = "Cross-view code alignment"
    kind = "unsupervised deep"
    paper = "Moummad, Zaher, Goeau & Joly, Image hashing via cross-view code alignment, arXiv"
    year = 2025

    batch_size: int = 256
    weight_decay: float = 1e-2
    rate: float = 0.1
    eps: float = 0.05

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            one, other = map(standardize_batch, outputs.chunk(2))
            aligned = (alignment(one, other) + alignment(other, one)) / 2
            rates = (coding_rate(one, self.eps) + coding_rate(other, self.eps)) / 2
            return aligned - self.rate * rates

        return loss

    @torch.no_grad()
    def _finish(self, training: DeepTraining, features: Tensor, pictures: Pictures | None) -> None:
        self._initialise(training.layers, features)  # what the normalisation did, for all rows
