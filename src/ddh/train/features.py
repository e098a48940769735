"""Features of pictures: the network at its fastest, with decoding running beside it.

On a GPU: bfloat16 and channels-last. On a CPU: batch norms folded into the convolutions,
channels-last, and bfloat16 where the processor has instructions for it. `ddh bench encode`
compares this with a plain loop.
"""

import copy
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from torch import Tensor

from ddh._core.atomic import write_atomic
from ddh._core.errors import InputError, ModelError
from ddh._core.progress import bar
from ddh.backbones import Backbone, fold_batch_norm
from ddh.images import Failure, ImageSource, load_batches
from ddh.train.augmentation import augment
from ddh.train.device import choose, supports_bfloat16
from ddh.train.distributed import current
from ddh.train.identity import RunIdentity
from ddh.train.run_folder import read_json

CPU_BATCH, GPU_BATCH = 32, 256
NOTE_SECONDS = 5.0
COPY_ROWS = 65536


@dataclass(frozen=True)
class FeatureBatch:
    """Features of the pictures `indices` of a source; pictures that could not be read."""

    indices: NDArray[np.int64]
    features: Tensor
    failures: list[Failure]


@dataclass(frozen=True)
class Features:
    """Features of the readable pictures: `values[k]` belongs to picture `usable[k]`.

    `identity` says what they were made from, for features that are kept in a folder.
    """

    values: NDArray[np.floating]
    usable: NDArray[np.int64]
    failures: list[Failure] = field(default_factory=list)
    identity: RunIdentity | None = None


class Extractor:
    """A frozen copy of a backbone, prepared for fast inference on its device."""

    def __init__(self, backbone: Backbone, device: str | torch.device = "auto") -> None:
        self.device = choose(str(device))
        self.half = supports_bfloat16(self.device)
        network = copy.deepcopy(backbone).eval().requires_grad_(False)
        fold_batch_norm(network)
        self.network: Backbone = network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.batch_size = GPU_BATCH if self.device.type == "cuda" else CPU_BATCH

    @torch.inference_mode()
    def __call__(self, pixels: NDArray[np.uint8], seed: int | None = None) -> Tensor:
        """Features (n, dimensions) of uint8 (n, h, w, 3), float32 on the device; with a seed, of
        random views of the pictures."""
        x = self.network.normalise(torch.from_numpy(pixels).to(self.device, non_blocking=True))
        if seed is not None:
            x = augment(x, seed)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            if not self.network.preprocessing.flip_tta:
                return self.network(x).float()
            return (self.network(x).float() + self.network(x.flip(3)).float()) / 2

    def stream(
        self,
        source: ImageSource,
        *,
        indices: NDArray[np.int64] | None = None,
        batch_size: int | None = None,
        view: int = 0,
    ) -> Iterator[FeatureBatch]:
        """Features batch by batch; pictures that cannot be read are reported, not raised.

        `view` 0 is the pictures themselves; any other number stands for a random view of each.
        """
        preprocessing, size = self.network.preprocessing, batch_size or self.batch_size
        for batch in load_batches(source, preprocessing, size, indices=indices):
            features, seed = torch.empty(0, self.network.dimensions, device=self.device), None
            if view and len(batch):
                drawn = np.random.SeedSequence((view, int(batch.indices[0]))).generate_state(1)
                seed = int(drawn[0])
            if len(batch):
                features = self(batch.pixels, seed)
            yield FeatureBatch(batch.indices, features, batch.failures)


def extract(
    backbone: Backbone,
    source: ImageSource,
    *,
    views: int = 0,
    device: str | torch.device = "auto",
    batch_size: int | None = None,
    folder: Path | None = None,
    resume: bool = False,
    show: bool | None = None,
) -> Features:
    """Features of all pictures of a source, with a progress bar.

    With `views`, those of so many random views per picture follow, in the same order. Given a
    `folder`, features are written there as they come, named by what they are made from, and
    `resume` continues with what an interrupted run has left. Several processes, which each extract
    a shard of the pictures, need a folder that all of them see. Memory: 4 bytes x pictures x
    dimensions x (1 + views); without views, a mapped file if there is a folder.
    """
    extractor = Extractor(backbone, device)
    identity = None if folder is None else RunIdentity.of_images(source, backbone)
    found: list[Features] = []
    for view in range(views + 1):
        store = _Store(
            source,
            backbone.dimensions,
            folder,
            identity and identity.with_values(view=view),
            resume,
        )
        todo = np.arange(store.rows.start + store.done, store.rows.stop)
        label = f"View {view}" if view else "Features"
        with bar(label, total=store.done + len(todo), unit="image", show=show) as progress:
            progress.update(store.done)
            for batch in extractor.stream(source, indices=todo, batch_size=batch_size, view=view):
                store.add(batch)
                progress.update(len(batch.indices) + len(batch.failures))
        found.append(store.finish())
    plain = found[0]
    if not views:
        return plain
    values = np.concatenate([features.values for features in found])
    identity = identity and identity.with_values(views=views)
    return Features(values, np.tile(plain.usable, views + 1), plain.failures, identity)


class _Store:
    """Rows of features in memory or in a mapped file, with a note of how far they have come."""

    def __init__(
        self,
        source: ImageSource,
        dimensions: int,
        folder: Path | None,
        identity: RunIdentity | None,
        resume: bool,
    ) -> None:
        self.source, self.identity = source, identity
        self.processes = current()
        self.rows = self.processes.shard(len(source))
        self.failures: list[Failure] = []
        self.done = 0
        self.noted = time.monotonic()
        self.file: Path | None = None
        shape = (len(source), dimensions)
        if folder is None or identity is None:
            if not self.processes.is_single:
                raise InputError("several processes need a checkpoint_dir that all of them see")
            self.values = np.zeros(shape, np.float32)
            return
        folder.mkdir(parents=True, exist_ok=True)
        file = self.file = identity.path(folder, "features", ".npy")
        note = self._note(self.processes.rank)
        if resume and note.is_file() and file.is_file():
            noted = read_json(note)
            self.done = noted["done"]
            self.failures = [Failure(**entry) for entry in noted["failures"]]

        def create() -> None:
            if not (resume and file.is_file() and _mapped(file).shape == shape):
                open_memmap(file, "w+", np.float32, shape)

        self.processes.run_on_main(create)
        self.values = _mapped(file, "r+")

    def _note(self, rank: int) -> Path:
        """The note of a process; of a single one, it covers all pictures."""
        assert self.file is not None
        if self.processes.is_single:
            return self.file.with_suffix(".json")
        rows = self.processes.shard(len(self.source), rank)
        return self.file.with_name(f"{self.file.stem}-{rows.start}-{rows.stop}.json")

    def add(self, batch: FeatureBatch) -> None:
        values = batch.features.cpu().numpy()
        if not np.isfinite(values).all():
            raise ModelError("the network gives NaN or infinite features; check its weights")
        self.values[batch.indices] = values
        self.failures.extend(batch.failures)
        self.done += len(batch.indices) + len(batch.failures)
        if self.file is not None and time.monotonic() - self.noted > NOTE_SECONDS:
            self._write_note()

    def _write_note(self) -> None:
        assert isinstance(self.values, np.memmap)
        self.values.flush()
        note = {"done": self.done, "failures": [vars(failure) for failure in self.failures]}
        write_atomic(self._note(self.processes.rank), json.dumps(note).encode())
        self.noted = time.monotonic()

    def finish(self) -> Features:
        if self.file is not None:
            self._write_note()
            if not self.processes.is_single:  # read what the other processes have done
                self.processes.barrier()
                self.values = _mapped(self.file)
                notes = [read_json(self._note(rank)) for rank in range(self.processes.size)]
                self.failures = [Failure(**f) for note in notes for f in note["failures"]]
        bad = np.array([failure.index for failure in self.failures], np.int64)
        usable = np.setdiff1d(np.arange(len(self.source)), bad)
        if not len(usable):
            reason = self.failures[0].reason if self.failures else "there are none"
            raise InputError(f"none of the {len(self.source)} images can be used: {reason}")
        return Features(self._usable_rows(usable), usable, self.failures, self.identity)

    def _usable_rows(self, usable: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows of the readable pictures; several processes share them as a file."""
        if len(usable) == len(self.values):
            return self.values
        if self.processes.is_single or self.file is None:
            return self.values[usable]
        path = self.file.with_name(f"usable-{self.file.name}")

        def write() -> None:
            shape = (len(usable), self.values.shape[1])
            rows = open_memmap(path, "w+", np.float32, shape)
            for start in range(0, len(usable), COPY_ROWS):
                part = slice(start, start + COPY_ROWS)
                rows[part] = self.values[usable[part]]
            rows.flush()

        self.processes.run_on_main(write)
        return _mapped(path)


def _mapped(file: Path, mode: str = "r") -> NDArray[np.float32]:
    """A file of features as a mapped array."""
    try:
        return open_memmap(file, mode)
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} is damaged; delete it to start again") from error
