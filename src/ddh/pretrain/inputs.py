"""Training batches of two random views per image: decoded images, and views made on the device.

Small square arrays are used as they are. Other images are decoded once, to squares slightly larger
than the network's input, or of their own size if they are tiny: 3 x side^2 bytes each, in memory
or, given a folder, in a mapped file.
Pixels that fill at most a quarter of the free GPU memory are moved there.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ddh._core.errors import DDHError
from ddh.backbones import Backbone
from ddh.images import Failure, ImageArray, ImageSource, Preprocessing, load_batches
from ddh.pretrain.neighbour_positives import NeighbourPositives
from ddh.pretrain.recipe import TINY
from ddh.pretrain.settings import PretrainSettings
from ddh.pretrain.transforms import ViewSettings, random_view
from ddh.train.features import RowStore
from ddh.train.identity import images_digest
from ddh.train.inputs import Inputs, Parts

MARGIN = 1.15  # side of the decoded squares, relative to the network's input
RESIDENT_FRACTION = 4
DECODE_BATCH = 64
SAMPLE = 100  # images whose size is looked at
VIEW_BYTES = 64 << 20  # of the views that are made at once

Views = tuple[Tensor, Tensor]


class ViewInputs(Inputs):
    """Two views per image of `pixels` (n, h, w, 3); a neighbour may replace the second one's image.

    Views of small images are made for several steps at once, because making them takes many short
    operations.
    """

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        backbone: Backbone,
        settings: PretrainSettings,
        device: torch.device,
    ) -> None:
        self.pixels, self.backbone, self.settings, self.device = pixels, backbone, settings, device
        self.size = backbone.preprocessing.size
        self.view_size = settings.view_size or self.size
        self.positives: NeighbourPositives | None = None
        self._resident: Tensor | None = None
        if device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            if pixels.nbytes * RESIDENT_FRACTION < free:
                self._resident = torch.from_numpy(np.ascontiguousarray(pixels)).to(device)

    def __len__(self) -> int:
        return len(self.pixels)

    def batches(self, parts: Parts, seeds: list[int]) -> Iterator[tuple[Tensor, Views]]:
        view_bytes = 12 * len(parts[0]) * self.view_size**2
        at_once = max(1, VIEW_BYTES // view_bytes)
        groups = [parts[i : i + at_once] for i in range(0, len(parts), at_once)]
        seeds = seeds[::at_once]
        pairs = [self._pairs(np.concatenate(g), s) for g, s in zip(groups, seeds, strict=True)]
        loaded = self.images([pair.ravel() for pair in pairs])
        for group, pair, images, seed in zip(groups, pairs, loaded, seeds, strict=True):
            rows = torch.from_numpy(pair[0]).to(self.device)
            sizes = [len(part) for part in group]
            split = (torch.split(whole, sizes) for whole in (rows, *self.views(images, seed)))
            for part, first, second in zip(*split, strict=True):
                yield part, (first, second)

    def images(self, parts: Parts) -> Iterator[Tensor]:
        """The images of each part on the device; the next part is gathered in the background."""
        if self._resident is not None:
            rows = torch.from_numpy(np.concatenate(parts)).to(self.device)  # synchronises once
            for batch in torch.split(rows, [len(part) for part in parts]):
                yield self._resident[batch]
            return

        def gather(part: NDArray[np.int64]) -> Tensor:
            batch = torch.from_numpy(self.pixels[part])
            return batch.pin_memory() if self.device.type == "cuda" else batch

        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(gather, parts[0])
            for part in parts[1:]:
                ready, coming = coming, pool.submit(gather, part)
                yield ready.result().to(self.device, non_blocking=True)
            yield coming.result().to(self.device, non_blocking=True)

    def _pairs(self, rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """(2, n): the images of the first and of the second views."""
        if self.positives is None:
            return np.stack([rows, rows])
        rng = np.random.default_rng(seed)
        return np.stack([rows, self.positives.draw(rows, self.settings.neighbours_prob, rng)])

    def views(
        self, images: Tensor, seed: int, transforms: tuple[ViewSettings, ViewSettings] | None = None
    ) -> Views:
        """Normalised views of the first half of the images, and of the second half.

        Views by other transforms than those of training have the size of the network's input.
        """
        generator = torch.Generator(self.device).manual_seed(seed)
        size = self.view_size if transforms is None else self.size
        first, second = (
            self.normalised(255 * random_view(half, size, view, generator))
            for view, half in zip(transforms or self.settings.views, images.chunk(2), strict=True)
        )
        return first, second

    def normalised(self, x: Tensor) -> Tensor:
        """Pixel values 0 to 255 (n, 3, h, w) as the network takes them."""
        return (x - self.backbone.pixel_mean) / self.backbone.pixel_std


def decode(
    source: ImageSource, preprocessing: Preprocessing, folder: Path | None
) -> tuple[NDArray[np.uint8], list[Failure]]:
    """The readable images of a source as pixels (n, h, w, 3), and the failures."""
    if isinstance(source, ImageArray):
        height, width = source.pixels.shape[1:3]
        if height == width <= 2 * preprocessing.size:
            return source.pixels, []
    side, largest = round(MARGIN * preprocessing.size), longer_side(source)
    if 0 < largest <= TINY:
        side = min(side, largest)
    square = replace(preprocessing, size=side, resize=None)
    file = None
    if folder is not None:
        file = folder / f"pixels-{images_digest(source, **square.to_dict())}.npy"
    store = RowStore(source, (square.size, square.size, 3), np.uint8, file, resume=True)
    batches = load_batches(source, square, DECODE_BATCH, indices=store.todo)
    store.fill("Decoding", ((batch.pixels, batch.failures) for batch in batches))
    pixels, _, failures = store.finish()
    return pixels, failures


def longer_side(source: ImageSource) -> int:
    """Longer side of the largest image in a sample, or of the first that is not tiny; 0 if none of
    them can be read."""
    largest = 0
    for i in np.linspace(0, len(source) - 1, min(SAMPLE, len(source))).astype(int):
        try:
            largest = max(largest, *source.read(int(i)).size)
        except DDHError:
            continue  # the loader will report it
        if largest > TINY:
            break  # photographs take long to read
    return largest
