"""Where a training batch comes from: ready features, or pictures through the network."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from ddh.backbones import Backbone
from ddh.images import ImageSource, load_batches
from ddh.train.augmentation import augment
from ddh.train.device import supports_bfloat16


class Inputs(ABC):
    """Batches of phi(x), in a given order; row i is image i of the collection."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batches(
        self, order: NDArray[np.int64], batch_size: int, seeds: Iterator[int]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(rows, features) batch by batch; each batch draws one seed for its augmentation."""


class FeatureInputs(Inputs):
    """Standardised features on the device: the depth "head"."""

    def __init__(self, features: Tensor) -> None:
        self.features = features

    def __len__(self) -> int:
        return len(self.features)

    def batches(
        self, order: NDArray[np.int64], batch_size: int, seeds: Iterator[int]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        rows = torch.from_numpy(order).to(self.features.device)
        for part in rows.split(batch_size):
            yield part, self.features[part]


class NetworkInputs(Inputs):
    """Augmented pictures through the backbone: the depths "last stage" and "network".

    `usable` are the places in the source of the images that could be read. On a GPU the network
    runs in bfloat16 and, with `compiled`, through torch.compile, whose first steps take a minute;
    the features that come out are float32.
    """

    def __init__(
        self,
        backbone: Backbone,
        source: ImageSource,
        usable: NDArray[np.int64],
        mean: Tensor,
        scale: Tensor,
        *,
        unit: bool = False,
        compiled: bool = False,
    ) -> None:
        self.backbone, self.source, self.usable = backbone, source, usable
        self.mean, self.scale, self.unit = mean, scale, unit
        self.forward = torch.compile(backbone) if compiled else backbone
        self.half = mean.device.type == "cuda" and supports_bfloat16(mean.device)

    def __len__(self) -> int:
        return len(self.usable)

    def batches(
        self, order: NDArray[np.int64], batch_size: int, seeds: Iterator[int]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        row_of = np.full(len(self.source), -1)
        row_of[self.usable] = np.arange(len(self.usable))
        device = self.mean.device
        loaded = load_batches(
            self.source,
            self.backbone.preprocessing,
            batch_size,
            indices=self.usable[order],
            native=True,
        )
        for batch, seed in zip(loaded, seeds, strict=False):
            if not len(batch):
                continue
            rows = torch.from_numpy(row_of[batch.indices]).to(device)
            pixels = torch.from_numpy(batch.pixels).to(device)
            yield rows, self.standard_features(augment(self.backbone.normalise(pixels), seed))

    def standard_features(self, x: Tensor) -> Tensor:
        """(phi(x) - mean) / scale of normalised pictures."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.half):
            features = self.forward(x)
        features = normalize(features.float(), dim=1) if self.unit else features.float()
        return (features - self.mean) / self.scale
