"""Features of pictures: the network at its fastest, with decoding running beside it.

An `OnnxNetwork` runs as it is; a backbone of torch is prepared by `ddh.train.frozen`. `ddh bench
encode` compares them with each other and with a plain loop.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike, NDArray

from ddh._core.atomic import write_atomic
from ddh._core.errors import InputError, ModelError
from ddh._core.lazy import needs_torch
from ddh._core.progress import bar
from ddh._core.spans import spans
from ddh.backbones import Network, OnnxNetwork
from ddh.images import Failure, ImageSource, load_batches
from ddh.train.distributed import current
from ddh.train.identity import RunIdentity
from ddh.train.run_folder import read_json

CPU_BATCH = 32
NOTE_SECONDS = 5.0
COPY_ROWS = 65536

RowBatches = Iterator[tuple[NDArray[Any], list[Failure]]]


@dataclass(frozen=True)
class FeatureBatch:
    """Features of the pictures `indices` of a source; pictures that could not be read."""

    indices: NDArray[np.int64]
    features: NDArray[np.float32]
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


@dataclass(frozen=True)
class Pictures:
    """Pictures behind rows of features: row i is picture `usable[i]` of the source."""

    backbone: Any
    source: ImageSource
    usable: NDArray[np.int64]


class Extractor:
    """A frozen network, prepared for fast inference on its device."""

    def __init__(self, backbone: "Network", device: Any = "auto") -> None:
        self.preprocessing, self.dimensions = backbone.preprocessing, backbone.dimensions
        self.batch_size = CPU_BATCH
        if isinstance(backbone, OnnxNetwork):
            if str(device) not in ("auto", "cpu"):
                raise InputError(
                    f"the encoder {backbone.encoder} runs on the CPU, not on {device}: for a GPU, "
                    "fit a model with the encoder 'torch'"
                )
            self.precision = "int8" if backbone.encoder.endswith("int8") else "float32"
            self._features: Any = backbone
        else:
            from ddh.train.frozen import FrozenBackbone

            frozen = FrozenBackbone(backbone, device)
            self.precision, self.batch_size = frozen.precision, frozen.batch_size
            self._features = frozen

    def __call__(self, pixels: NDArray[np.uint8], seed: int | None = None) -> NDArray[np.float32]:
        """Features (n, dimensions) of uint8 (n, h, w, 3), float32; with a seed, of random
        views."""
        if seed is not None:
            with needs_torch("the setting `views`"):
                from ddh.train.frozen import random_views

            pixels = random_views(pixels, seed)
        if not self.preprocessing.flip_tta:
            return self._features(pixels)
        return (self._features(pixels) + self._features(pixels[:, :, ::-1])) / np.float32(2)

    def stream(
        self,
        source: ImageSource,
        *,
        indices: NDArray[np.int64] | None = None,
        batch_size: int | None = None,
        view: int = 0,
    ) -> Iterator[FeatureBatch]:
        """Features batch by batch, of a random view of each picture unless `view` is 0; pictures
        that cannot be read are reported, not raised."""
        size = batch_size or self.batch_size
        for batch in load_batches(source, self.preprocessing, size, indices=indices):
            features = np.empty((0, self.dimensions), np.float32)
            if len(batch):
                drawn = np.random.SeedSequence((view, int(batch.indices[0]))).generate_state(1)
                features = self(batch.pixels, int(drawn[0]) if view else None)
            yield FeatureBatch(batch.indices, features, batch.failures)


def extract(
    backbone: "Network",
    source: ImageSource,
    *,
    views: int = 0,
    device: Any = "auto",
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

    def values(view: int, indices: NDArray[np.int64]) -> RowBatches:
        for batch in extractor.stream(source, indices=indices, batch_size=batch_size, view=view):
            rows = batch.features
            if not np.isfinite(rows).all():
                raise ModelError("the network gives NaN or infinite features; check its weights")
            yield rows, batch.failures

    for view in range(views + 1):
        own = identity and identity.with_values(view=view)
        file = own.path(folder, "features", ".npy") if folder and own else None
        store = RowStore(source, (backbone.dimensions,), np.float32, file, resume)
        store.fill(f"View {view}" if view else "Features", values(view, store.todo), show)
        found.append(Features(*store.finish(), own))
    plain = found[0]
    if not views:
        return plain
    joined = np.concatenate([features.values for features in found])
    identity = identity and identity.with_values(views=views)
    return Features(joined, np.tile(plain.usable, views + 1), plain.failures, identity)


class RowStore:
    """Rows made from the readable pictures of a source, in memory or in a mapped file.

    A note beside the file says how far they have come, for a run that continues (`resume`).
    Several processes need a file; each fills the rows of its shard.
    """

    def __init__(
        self,
        source: ImageSource,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        file: Path | None,
        resume: bool,
    ) -> None:
        self.source, self.file, self.processes = source, file, current()
        self.failures: list[Failure] = []
        self.done, self.noted = 0, time.monotonic()
        whole = (len(source), *shape)
        if file is None:
            if not self.processes.is_single:
                raise InputError("several processes need a checkpoint_dir that all of them see")
            self.values: NDArray[Any] = np.empty(whole, dtype)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        if resume and file.is_file() and self._note(self.processes.rank).is_file():
            self.done, self.failures = self._noted(self.processes.rank)

        def create() -> None:
            if not (resume and file.is_file() and _mapped(file).shape == whole):
                open_memmap(file, "w+", dtype, whole)

        self.processes.run_on_main(create)
        self.values = _mapped(file, "r+")

    @property
    def todo(self) -> NDArray[np.int64]:
        """The pictures of this process that have no row yet."""
        shard = self.processes.shard(len(self.source))
        return np.arange(shard.start + self.done, shard.stop)

    def fill(self, label: str, batches: RowBatches, show: bool | None = None) -> None:
        """Add the rows of the pictures `todo`, and the failures among them, batch by batch."""
        start, total = self.processes.shard(len(self.source)).start, self.done + len(self.todo)
        with bar(label, total=total, unit="image", show=show) as progress:
            progress.update(self.done)
            for rows, failures in batches:
                first = start + self.done - len(self.failures)
                self.values[first : first + len(rows)] = rows
                self.failures.extend(failures)
                self.done += len(rows) + len(failures)
                progress.update(len(rows) + len(failures))
                if self.file is not None and time.monotonic() - self.noted > NOTE_SECONDS:
                    self._write_note()

    def finish(self) -> tuple[NDArray[Any], NDArray[np.int64], list[Failure]]:
        """(rows, the pictures that they are of, failures) of all processes."""
        values = self.values[: self.done - len(self.failures)]
        if self.file is not None:
            self._write_note()
            if not self.processes.is_single:
                values = self._join(self.file)
        bad = np.array([failure.index for failure in self.failures], np.int64)
        usable = np.setdiff1d(np.arange(len(self.source)), bad)
        if not len(usable):
            reason = self.failures[0].reason if self.failures else "there are none"
            raise InputError(f"none of the {len(self.source)} images can be used: {reason}")
        return values, usable, self.failures

    def _note(self, rank: int) -> Path:
        assert self.file is not None
        rows = self.processes.shard(len(self.source), rank)
        return self.file.with_name(f"{self.file.stem}-rows-{rows.start}-{rows.stop}.json")

    def _noted(self, rank: int) -> tuple[int, list[Failure]]:
        noted = read_json(self._note(rank))
        return noted["done"], [Failure(**entry) for entry in noted["failures"]]

    def _write_note(self) -> None:
        assert isinstance(self.values, np.memmap)
        self.values.flush()
        note = {"done": self.done, "failures": [vars(failure) for failure in self.failures]}
        write_atomic(self._note(self.processes.rank), json.dumps(note).encode())
        self.noted = time.monotonic()

    def _join(self, file: Path) -> NDArray[Any]:
        """The rows of all processes; where there are failures, without gaps in another file."""
        self.processes.barrier()
        values, path = _mapped(file), file.with_name(f"usable-{file.name}")
        by_rank = [self._noted(rank)[1] for rank in range(self.processes.size)]
        self.failures = [failure for failures in by_rank for failure in failures]
        if not self.failures:
            return values

        def write() -> None:
            shape = (len(values) - len(self.failures), *values.shape[1:])
            rows, end = open_memmap(path, "w+", values.dtype, shape), 0
            for rank, failures in enumerate(by_rank):
                shard = self.processes.shard(len(values), rank)
                for part in spans(shard.stop - len(failures), COPY_ROWS, shard.start):
                    start, end = end, end + part.stop - part.start
                    rows[start:end] = values[part]
            rows.flush()

        self.processes.run_on_main(write)
        return _mapped(path)


def _mapped(file: Path, mode: str = "r") -> NDArray[Any]:
    try:
        return open_memmap(file, mode)
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} is damaged; delete it to start again") from error
