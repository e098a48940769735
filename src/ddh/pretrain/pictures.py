"""The pictures of a pretraining: decoded once, kept as bytes where batches are quick to take.

Arrays are used as they are. Files are decoded once to squares a little larger than the
network's input: 3 x side^2 bytes each, in memory or, with a folder, in a mapped file that a resumed
run finds again. They lie on the GPU when they fill no more than a quarter of what is free there.
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

from ddh._core.errors import InputError
from ddh._core.progress import bar
from ddh.backbones import Backbone
from ddh.images import Failure, ImageArray, ImageSource, load_batches

MARGIN = 1.15  # side of the kept squares, in units of the network's input
RESIDENT_SHARE = 4
DECODE_BATCH = 64


class Pictures:
    """uint8 pictures (n, h, w, 3) and where batches of them are wanted."""

    def __init__(
        self, pixels: NDArray[np.uint8], failures: list[Failure], device: torch.device
    ) -> None:
        self.failures, self.device = failures, device
        self._pixels = pixels
        self._resident: Tensor | None = None
        if device.type == "cuda" and pixels.nbytes * RESIDENT_SHARE < _free_bytes(device):
            self._resident = torch.from_numpy(np.ascontiguousarray(pixels)).to(device)

    def __len__(self) -> int:
        return len(self._pixels)

    def batches(self, parts: list[NDArray[np.int64]]) -> Iterator[Tensor]:
        """Each part's pictures on the device; the next one is gathered while one is in use."""
        if self._resident is not None:
            rows = torch.from_numpy(np.concatenate(parts)).to(self.device)  # one wait, not one each
            for part in rows.split([len(part) for part in parts]):
                yield self._resident[part]
            return
        with ThreadPoolExecutor(1) as pool:
            coming = None
            for part in parts:
                waited, coming = coming, pool.submit(self._gather, part)
                if waited is not None:
                    yield waited.result().to(self.device, non_blocking=True)
            if coming is not None:
                yield coming.result().to(self.device, non_blocking=True)

    def _gather(self, part: NDArray[np.int64]) -> Tensor:
        batch = torch.from_numpy(self._pixels[part])
        return batch.pin_memory() if self.device.type == "cuda" else batch


def _free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0]


def open_pictures(
    source: ImageSource, backbone: Backbone, device: torch.device, folder: Path | None
) -> Pictures:
    """The usable pictures of a source."""
    size = backbone.preprocessing.size
    if isinstance(source, ImageArray) and max(source.pixels.shape[1:3]) <= 2 * size:
        return Pictures(source.pixels, [], device)
    side = round(MARGIN * size)
    file = None if folder is None else folder / f"pictures-{side}.npy"
    note = None if folder is None else folder / f"pictures-{side}.json"
    if file is not None and note is not None and note.is_file():
        kept = json.loads(note.read_text())  # written last: the file is whole
        if kept["images"] == len(source):
            failures = [Failure(**entry) for entry in kept["failures"]]
            return Pictures(open_memmap(file, "r")[: kept["usable"]], failures, device)
    pixels, failures = _decode(source, backbone, side, file)
    if note is not None:
        entries = [vars(failure) for failure in failures]
        kept = {"images": len(source), "usable": len(pixels), "failures": entries}
        note.write_text(json.dumps(kept))
    return Pictures(pixels, failures, device)


def _decode(
    source: ImageSource, backbone: Backbone, side: int, file: Path | None
) -> tuple[NDArray[np.uint8], list[Failure]]:
    shape = (len(source), side, side, 3)
    pixels = np.empty(shape, np.uint8) if file is None else open_memmap(file, "w+", np.uint8, shape)
    square = replace(backbone.preprocessing, size=side, resize=None)
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
