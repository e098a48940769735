"""Training batches of two random views per image, made on the device."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ddh.backbones import Backbone
from ddh.pretrain.neighbour_positives import NeighbourPositives
from ddh.pretrain.pixel_cache import PixelCache
from ddh.pretrain.settings import PretrainSettings
from ddh.pretrain.transforms import random_view
from ddh.train.inputs import Inputs, Parts

VIEW_BYTES = 64 << 20  # of the views that are made at once

Views = tuple[Tensor, Tensor]


class ViewInputs(Inputs):
    """Two views per image; a neighbour may replace an image in the second one.

    Views of small images are made for several steps at once, because making them takes many short
    operations.
    """

    def __init__(self, pixels: PixelCache, backbone: Backbone, settings: PretrainSettings) -> None:
        self.pixels, self.backbone, self.settings = pixels, backbone, settings
        self.positives: NeighbourPositives | None = None

    def __len__(self) -> int:
        return len(self.pixels)

    def batches(self, parts: Parts, seeds: list[int]) -> Iterator[tuple[Tensor, Views]]:
        view_bytes = 12 * len(parts[0]) * self.backbone.preprocessing.size**2
        at_once = max(1, VIEW_BYTES // view_bytes)
        groups = [parts[i : i + at_once] for i in range(0, len(parts), at_once)]
        seeds = seeds[::at_once]
        pairs = [self._pairs(np.concatenate(g), s) for g, s in zip(groups, seeds, strict=True)]
        loaded = self.pixels.batches([pair.ravel() for pair in pairs])
        for group, pair, images, seed in zip(groups, pairs, loaded, seeds, strict=True):
            rows = torch.from_numpy(pair[0]).to(self.pixels.device)
            sizes = [len(part) for part in group]
            split = (torch.split(whole, sizes) for whole in (rows, *self.views(images, seed)))
            for part, first, second in zip(*split, strict=True):
                yield part, (first, second)

    def _pairs(self, rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """(2, n): the images of the first and of the second views."""
        if self.positives is None:
            return np.stack([rows, rows])
        rng = np.random.default_rng(seed)
        return np.stack([rows, self.positives.draw(rows, self.settings.neighbours_prob, rng)])

    def views(self, images: Tensor, seed: int) -> Views:
        """Normalised views of the first half of the images, and of the second half."""
        generator = torch.Generator(self.pixels.device).manual_seed(seed)
        size = self.backbone.preprocessing.size
        first, second = (
            self._normalised(random_view(half, size, view, generator))
            for view, half in zip(self.settings.views, images.chunk(2), strict=True)
        )
        return first, second

    def _normalised(self, values: Tensor) -> Tensor:
        """Of values in [0, 1]."""
        return (255 * values - self.backbone.pixel_mean) / self.backbone.pixel_std
