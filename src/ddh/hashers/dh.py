"""Liong et al. (2015), "Deep hashing for compact binary codes learning": DH, without labels."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import HashLayers, Objective
from ddh.objective.loss import sgn


def quantisation(codes: Tensor) -> Tensor:
    """J1 per row: ||b - h||^2 / 2 with b = sgn(h) held fixed."""
    return 0.5 * (sgn(codes) - codes).square().sum(dim=1).mean()


def variance(codes: Tensor) -> Tensor:
    """J2 per row, before its sign: tr(H H^T) / 2 of the centred outputs."""
    return 0.5 * (codes - codes.mean(dim=0)).square().sum(dim=1).mean()


def orthogonality(weight: Tensor) -> Tensor:
    """J3 of one layer (out, in): ||W W^T - I||^2 / 2, of the columns where there are more rows."""
    if weight.shape[0] > weight.shape[1]:
        weight = weight.T
    identity = torch.eye(weight.shape[0], dtype=weight.dtype, device=weight.device)
    return 0.5 * (weight @ weight.T - identity).square().sum()


def size(layer: nn.Linear) -> Tensor:
    """J4 of one layer: (||W||^2 + ||c||^2) / 2."""
    return 0.5 * (layer.weight.square().sum() + layer.bias.square().sum())


def principal_directions(x: Tensor, count: int) -> Tensor:
    """Rows: directions of the largest variance, as many of `count` as there are dimensions."""
    # In float64, which Apple's GPUs do not have.
    device = torch.device("cpu") if x.device.type == "mps" else x.device
    mean = x.mean(dim=0)
    covariance = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64, device=device)
    for part in x.split(8192):
        centred = (part - mean).to(device).double()
        covariance += centred.T @ centred
    vectors = torch.linalg.eigh(covariance).eigenvectors.flip(1)[:, :count].T
    # The sign of an eigenvector is free: the entry of largest size is made positive.
    largest = vectors.gather(1, vectors.abs().argmax(dim=1, keepdim=True))
    return (vectors * torch.where(largest < 0, -1.0, 1.0)).to(x)


class DH(DeepHasher):
    """A tanh network whose outputs are close to +-1, spread out and made by orthogonal layers.

    `lambda1`, `lambda2`, `lambda3` weigh variance, orthogonality and size of the layers when the
    data terms are means over rows. `hidden=None` takes the paper's widths, (bits + 40, bits + 16)
    and never more than there are dimensions. Codes and weights are updated in turns: every step
    takes b = sgn(h) anew.
    """

    title = "Deep hashing"
    kind = "unsupervised deep"
    paper = "Liong, Lu, Wang, Moulin & Zhou, Deep hashing for compact binary codes learning, CVPR"
    year = 2015

    hidden: Sequence[int] | None = None
    learning_rate: float = 3e-3
    weight_decay: float = 0.0
    lambda1: float = 0.9
    lambda2: float = 10.0
    lambda3: float = 1e-3

    def _sizes(self, dimensions: int) -> list[int]:
        if self.hidden is not None:
            return super()._sizes(dimensions)
        hidden = [min(self.bits + more, dimensions) for more in (40, 16)]
        return [dimensions, *hidden, self.bits]

    def _layers(self, dimensions: int) -> HashLayers:
        return HashLayers(self._sizes(dimensions), nn.Tanh)

    def _initialise(self, layers: HashLayers, features: Tensor) -> None:
        """Rows of a weight: principal directions, then random ones; outputs centred."""
        x = features
        for layer in layers.linear:
            outputs, inputs = layer.weight.shape
            extra = torch.randn(max(0, outputs - inputs), inputs, device=x.device) / inputs**0.5
            layer.weight.copy_(torch.cat((principal_directions(x, outputs), extra)))
            layer.bias.copy_(-layer.weight @ x.mean(dim=0))
            x = torch.tanh(layer(x))

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        """J1 - lambda1 J2 + lambda2 J3 + lambda3 J4 of tanh outputs."""

        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            codes = torch.tanh(outputs)
            total = quantisation(codes) - self.lambda1 * variance(codes)
            for layer in layers.linear:
                total = total + self.lambda2 * orthogonality(layer.weight)
                total = total + self.lambda3 * size(layer)
            return total

        return loss
