"""What every backbone offers: pixels in, one feature vector per image out (the paper, 2.2)."""

from abc import ABC, abstractmethod
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ddh._core.errors import InputError
from ddh.backbones.variants import file_digest
from ddh.backbones.weights import load_exactly, read_state
from ddh.images import Preprocessing


class Backbone(nn.Module, ABC):
    """phi(x; theta) of the paper: a network up to the layer that feeds the hashing layer.

    `forward` takes normalised pixels, float (n, 3, h, w), and returns (n, dimensions). The
    preprocessing belongs to the backbone; `normalise` is its last part, done on the device.
    """

    name: str
    dimensions: int
    preprocessing: Preprocessing
    pixel_mean: Tensor
    pixel_std: Tensor
    #: Where the weights came from: the origin in words, and a digest of them.
    origin: str = "random"
    #: Prefixes of names in weights files that belong to a classifier.
    classifier: tuple[str, ...] = ()

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.preprocessing = preprocessing
        mean = torch.tensor(preprocessing.mean, dtype=torch.float32).view(1, 3, 1, 1)
        std = torch.tensor(preprocessing.std, dtype=torch.float32).view(1, 3, 1, 1)
        self.register_buffer("pixel_mean", mean, persistent=False)
        self.register_buffer("pixel_std", std, persistent=False)

    def load_file(self, path: Path) -> None:
        """Load a local state dict with the network's own names; its classifier is dropped."""
        load_exactly(self, read_state(path), ignore=self.classifier, source=path.name)
        self.origin = f"file sha256:{file_digest(path)[:16]}"

    @abstractmethod
    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels (n, 3, h, w) -> features (n, dimensions)."""

    @abstractmethod
    def last_stage(self) -> list[nn.Module]:
        """The modules that the training depth "last stage" trains besides the hashing layer."""

    def options(self) -> dict[str, Any]:
        """Arguments of the constructor that shape the network, for the saved model."""
        return {}

    def normalise(self, pixels: Tensor) -> Tensor:
        """uint8 (n, size, size, 3) from `preprocessing.apply` -> normalised (n, 3, size, size)."""
        size = self.preprocessing.size
        if pixels.shape[1:] != (size, size, 3):
            raise InputError(
                f"{self.name} takes pictures of {size} x {size} pixels, got {tuple(pixels.shape)}: "
                "resize them with preprocessing.apply"
            )
        x = pixels.permute(0, 3, 1, 2).to(self.pixel_mean.dtype)
        x = (x - self.pixel_mean) / self.pixel_std
        return x.contiguous(memory_format=torch.channels_last)


def fold_batch_norm(network: nn.Module) -> None:
    """Fold every batch norm into the convolution before it; for encoding only, changes the module.

    The pair must be neighbours in a Sequential. The result is the same function up to rounding.
    """
    for parent in list(network.modules()):
        if not isinstance(parent, nn.Sequential):
            continue
        for first, second in pairwise(list(parent._modules)):
            conv, norm = parent._modules[first], parent._modules[second]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                fused = torch.nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), norm.eval())
                parent._modules[first], parent._modules[second] = fused, nn.Identity()
