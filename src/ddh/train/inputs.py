"""Sources of training batches: precomputed features, or pictures through the network."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize as l2_normalize
from torch.utils.checkpoint import checkpoint

from ddh._core.memory import memory_bytes
from ddh.images import PictureCache
from ddh.train.augmentation import augment
from ddh.train.device import compiled, largest_batch, supports_bfloat16
from ddh.train.distributed import SINGLE, Shard
from ddh.train.features import Pictures
from ddh.train.network import standardise

Parts = list[NDArray[np.int64]]

CACHED_FRACTION = 4  # of the memory, that prepared pictures may fill


class Inputs(ABC):
    """Batches in a given order; row i is image i of the collection."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def total(self) -> int:
        """Images of the collection, those that are not drawn included."""
        return len(self)

    @abstractmethod
    def batches(self, parts: Parts, seeds: list[int]) -> Iterator[tuple[Tensor, Any]]:
        """(rows within this process's shard, batch) for each part, the row numbers of one step."""


class FeatureInputs(Inputs):
    """Standardised features on the device: the depth "head"."""

    def __init__(self, features: Tensor, shard: Shard | None = None) -> None:
        self.features, self.shard = features, shard or Shard(SINGLE, len(features))

    def __len__(self) -> int:
        return self.shard.total

    def batches(self, parts: Parts, seeds: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
        own = [part[self.shard.own(part)] - self.shard.rows.start for part in parts]
        rows = torch.from_numpy(np.concatenate(own)).to(self.features.device)
        for batch in rows.split([len(part) for part in own]):
            yield batch, self.features[batch]


class NetworkInputs(Inputs):
    """Augmented pictures through the backbone: the depths "last stage" and "network".

    Pictures are decoded in the first epoch and kept, in up to a quarter of the memory. Features are
    scaled to unit length first if `normalize`, then standardised by `mean` and `scale`, or by those
    of the batch where the network is `fresh`: the features of random weights are almost alike, and
    when they learn, what they have in common moves further than what tells them apart. With
    `trained` only those rows are drawn. On a GPU, a network that trains for many `steps` is
    compiled. Where its memory does not hold batches of `batch_size`, the network takes them in
    parts and computes each a second time for its gradient.
    """

    def __init__(
        self,
        pictures: Pictures,
        mean: Tensor,
        scale: Tensor,
        *,
        normalize: bool = False,
        fresh: bool = False,
        steps: int = 0,
        batch_size: int = 0,
        shard: Shard | None = None,
        trained: NDArray[np.int64] | None = None,
    ) -> None:
        self.pictures = pictures
        self.cache = PictureCache(
            pictures.source, pictures.backbone.preprocessing, memory_bytes() // CACHED_FRACTION
        )
        self.trained = np.arange(len(pictures.usable)) if trained is None else trained
        self.mean, self.scale, self.normalize, self.fresh = mean, scale, normalize, fresh
        self.shard = shard or Shard(SINGLE, len(pictures.usable))
        self.forward = compiled(
            self.shard.processes.parallel(pictures.backbone), mean.device, steps
        )
        self.half = mean.device.type == "cuda" and supports_bfloat16(mean.device)
        self.at_once = 0  # images through the network; 0: a whole batch
        if batch_size and mean.device.type == "cuda" and self.shard.processes.is_single:
            self.fit_memory(batch_size)

    def __len__(self) -> int:
        return len(self.trained)

    def fit_memory(self, batch_size: int) -> None:
        """Choose how many images go through the network at once."""
        size = self.pictures.backbone.preprocessing.size

        def step(n: int) -> None:  # beside the pixels of a batch, augmented and not
            pixels = self.mean.new_zeros(3 * batch_size, 3, size, size)
            self._features(pixels[:n]).sum().backward()

        fitting = largest_batch(batch_size, step, self.pictures.backbone)
        self.at_once = fitting if fitting < batch_size else 0

    def _features(self, x: Tensor) -> Tensor:
        """Features by the network as it is; raw ones, in single precision."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.half):
            if not 0 < self.at_once < len(x):
                return self.forward(x).float()
            parts = x.split(self.at_once)
            done = [checkpoint(self.forward, part, use_reentrant=False) for part in parts]
            return torch.cat(done).float()

    @property
    def total(self) -> int:
        return len(self.pictures.usable)

    def batches(self, parts: Parts, seeds: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
        backbone, usable = self.pictures.backbone, self.pictures.usable
        parts = [self.trained[part] for part in parts]
        own = [self.shard.own(part) for part in parts]
        wanted = [usable[part[places]] for part, places in zip(parts, own, strict=True)]
        loaded = self.cache.load_parts(wanted)
        for batch, part, places, seed in zip(loaded, parts, own, seeds, strict=True):
            read = places[np.isin(usable[part[places]], batch.indices)]
            rows = torch.from_numpy(part[read] - self.shard.rows.start).to(self.mean.device)
            if len(read):
                pixels = torch.from_numpy(batch.pixels).to(self.mean.device)
                x = augment(backbone.normalise(pixels), seed, part=(read, len(part)))
            elif self.shard.processes.is_single:
                yield rows, self.mean.new_empty(0, len(self.mean))
                continue
            else:  # goes through the network too: the processes stay in step
                size = backbone.preprocessing.size
                x = self.mean.new_zeros(0, 3, size, size)
            features = self._features(x)
            if self.normalize:
                features = l2_normalize(features, dim=1)
            mean, scale = self.mean, self.scale
            if self.fresh:
                mean, scale = standardise(features, True, self.shard.processes)
            yield rows, (features - mean) / scale
