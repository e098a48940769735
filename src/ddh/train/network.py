"""The network of the paper's 2.2: a backbone and, on top of it, the hashing layer."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ddh.backbones import Backbone
from ddh.train.distributed import SINGLE, Processes
from ddh.train.linear import initial_layer
from ddh.train.settings import Depth


class HashingLayer(nn.Linear):
    """z = W^T phi + c (Eq. 10); the code is sgn(z). Starts from N(0, 0.01) as the release does."""

    def __init__(self, dimensions: int, bits: int, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):  # the draw of nn.Linear is not wanted
            super().__init__(dimensions, bits)
        weight, bias = initial_layer(dimensions, bits, seed)
        with torch.no_grad():
            self.weight.copy_(torch.from_numpy(weight))
            self.bias.copy_(torch.from_numpy(bias))


def prepare(backbone: Backbone, depth: Depth, device: torch.device) -> None:
    """Freeze what does not learn, put the rest in training mode, and move all to the device.

    Batch norms keep the statistics of trained weights: codes are made with these, and those of a
    short training would not fit the hashing layer. Random weights have none to keep.
    """
    freeze(backbone.to(device, memory_format=torch.channels_last))  # type: ignore[call-overload]
    for module in backbone.last_stage() if depth == "last stage" else [backbone]:
        module.requires_grad_(True).train()
    if backbone.origin != "random":
        for module in backbone.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()


def freeze(backbone: Backbone) -> None:
    """Evaluation mode for the whole backbone."""
    backbone.requires_grad_(False).eval()


def end_training(backbone: Backbone) -> None:
    """Freeze a backbone that has learned, and say so in its origin."""
    freeze(backbone.cpu())
    backbone.origin = f"trained from {backbone.origin}"


def standardise(
    features: Tensor, centre: bool, processes: Processes = SINGLE
) -> tuple[Tensor, Tensor]:
    """(mean, scale) over all processes that give phi an average squared length of its dimension.

    They put every backbone's features on one scale for the hashing layer and are folded into W and
    c after the training, so the model stays the one linear layer of Eq. 10.
    """
    if processes.is_single:
        mean = features.mean(dim=0) if centre else torch.zeros_like(features[0])
        scale = (features - mean).square().mean().sqrt()
    else:
        values = features.double()
        count = processes.sums([len(values)], values.device)[0]
        total = processes.sum_with_grad(values.sum(dim=0))
        mean = total / count if centre else torch.zeros_like(total)
        squares = processes.sum_with_grad((values - mean).square().sum())
        scale = (squares / (count * features.shape[1])).sqrt()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return mean.to(features.dtype), scale.to(features.dtype)


@torch.no_grad()
def unfold(
    layer: nn.Linear, weight: NDArray[Any], bias: NDArray[Any], mean: Tensor, scale: Tensor
) -> None:
    """Set `layer` so that `fold` gives this weight and bias."""
    W, c = (torch.from_numpy(value).to(layer.weight) for value in (weight, bias))
    layer.weight.copy_(W * scale)
    layer.bias.copy_(c + W @ mean)


@torch.no_grad()
def fold(layer: nn.Linear, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """(weight, bias) on raw features that equal `layer` on standardised ones."""
    weight = layer.weight / scale
    return weight, layer.bias - weight @ mean
