"""Decoded images of a pretraining run: decoded once, kept as bytes that batches are taken from.

Small arrays are used as they are. Files are decoded to squares slightly larger than the network's
input: 3 x side^2 bytes each, in memory or, given a folder, in a memory-mapped file. The file is
named by a digest of the images and of their preprocessing, so only a run on the same
images finds it again. Pixels that fill at most a quarter of the free GPU memory are moved there.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from torch import Tensor

from ddh._core.atomic import write_atomic
from ddh._core.errors import InputError
from ddh._core.progress import bar
from ddh.images import (
    Failure,
    ImageArray,
    ImageSource,
    Preprocessing,
    load_batches,
)
from ddh.train.identity import images_digest

MARGIN = 1.15  # side of the decoded squares, relative to the network's input
RESIDENT_FRACTION = 4
DECODE_BATCH = 64


class PixelCache:
    """uint8 images (n, h, w, 3), served in batches on a device."""

    def __init__(
        self, pixels: NDArray[np.uint8], failures: list[Failure], device: torch.device
    ) -> None:
        self.failures, self.device = failures, device
        self._pixels = pixels
        self._resident: Tensor | None = None
        if device.type == "cuda" and pixels.nbytes * RESIDENT_FRACTION < _free_bytes(device):
            self._resident = torch.from_numpy(np.ascontiguousarray(pixels)).to(device)

    def __len__(self) -> int:
        return len(self._pixels)

    def batches(self, parts: list[NDArray[np.int64]]) -> Iterator[Tensor]:
        """The images of each part on the device; the next part is gathered in the background."""
        if self._resident is not None:
            rows = torch.from_numpy(np.concatenate(parts)).to(self.device)  # synchronises once
            for batch in torch.split(rows, [len(part) for part in parts]):
                yield self._resident[batch]
            return
        with ThreadPoolExecutor(1) as pool:
            coming = None
            for part in parts:
                ready, coming = coming, pool.submit(self._gather, part)
                if ready is not None:
                    yield ready.result().to(self.device, non_blocking=True)
            if coming is not None:
                yield coming.result().to(self.device, non_blocking=True)

    def _gather(self, part: NDArray[np.int64]) -> Tensor:
        batch = torch.from_numpy(self._pixels[part])
        return batch.pin_memory() if self.device.type == "cuda" else batch


def _free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0]


def open_pixels(
    source: ImageSource, preprocessing: Preprocessing, device: torch.device, folder: Path | None
) -> PixelCache:
    """Decode the readable images of a source, or map what an earlier run has decoded."""
    size = preprocessing.size
    if isinstance(source, ImageArray):
        height, width = source.pixels.shape[1:3]
        if height == width <= 2 * size:
            return PixelCache(source.pixels, [], device)
    square = replace(preprocessing, size=round(MARGIN * size), resize=None)
    if folder is None:
        return PixelCache(*_decode(source, square, None), device)
    file = folder / f"pixels-{images_digest(source, **square.to_dict())}.npy"
    note = file.with_suffix(".json")
    if note.is_file():
        kept = json.loads(note.read_text())  # written last: the pixels are complete
        failures = [Failure(**entry) for entry in kept["failures"]]
        return PixelCache(open_memmap(file, "r")[: kept["usable"]], failures, device)
    pixels, failures = _decode(source, square, file)
    kept = {"usable": len(pixels), "failures": [vars(failure) for failure in failures]}
    write_atomic(note, json.dumps(kept).encode())
    return PixelCache(pixels, failures, device)


def _decode(
    source: ImageSource, square: Preprocessing, file: Path | None
) -> tuple[NDArray[np.uint8], list[Failure]]:
    shape = (len(source), square.size, square.size, 3)
    pixels = np.empty(shape, np.uint8) if file is None else open_memmap(file, "w+", np.uint8, shape)
    failures: list[Failure] = []
    used = 0
    with bar("Decoding", total=len(source), unit="image") as progress:
        for batch in load_batches(source, square, DECODE_BATCH):
            pixels[used : used + len(batch)] = batch.pixels
            used += len(batch)
            failures.extend(batch.failures)
            progress.update(len(batch) + len(batch.failures))
    if not used:
        reason = failures[0].reason if failures else "there are none"
        raise InputError(f"none of the {len(source)} images can be used: {reason}")
    if isinstance(pixels, np.memmap):
        pixels.flush()
    return pixels[:used], failures
