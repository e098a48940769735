"""Pictures -> features: the network at its fastest, with decoding running beside it.

On a GPU: bfloat16 and channels-last. On a CPU: batch norms folded into the convolutions,
channels-last, and bfloat16 where the processor has instructions for it. `ddh bench encode`
compares this with a plain loop.
"""

import copy
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
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
    """Features of the usable pictures: `values[k]` belongs to picture `usable[k]`."""

    values: NDArray[np.float32]
    usable: NDArray[np.int64]
    failures: list[Failure] = field(default_factory=list)


class Extractor:
    """A frozen copy of a backbone, made ready for speed on its device."""

    def __init__(self, backbone: Backbone, device: str | torch.device = "auto") -> None:
        self.device = choose(str(device))
        self.half = supports_bfloat16(self.device)
        network = copy.deepcopy(backbone).eval().requires_grad_(False)
        fold_batch_norm(network)
        self.network: Backbone = network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.batch_size = GPU_BATCH if self.device.type == "cuda" else CPU_BATCH

    @torch.inference_mode()
    def __call__(self, pixels: NDArray[np.uint8], seed: int | None = None) -> Tensor:
        """uint8 (n, h, w, 3) -> float32 (n, dimensions) on the device; of random views with a
        seed."""
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
        """Walk through a source; pictures that cannot be read are reported, not raised.

        `view` 0 is the pictures themselves; any other number stands for a random view of each.
        """
        batches = load_batches(
            source,
            self.network.preprocessing,
            batch_size or self.batch_size,
            indices=indices,
        )
        for batch in batches:
            features = (
                self(batch.pixels, _view_seed(view, batch.indices))
                if len(batch)
                else torch.empty(0, self.network.dimensions, device=self.device)
            )
            yield FeatureBatch(batch.indices, features, batch.failures)


def extract(
    backbone: Backbone,
    source: ImageSource,
    *,
    device: str | torch.device = "auto",
    batch_size: int | None = None,
    folder: Path | None = None,
    resume: bool = False,
    show: bool | None = None,
    view: int = 0,
) -> Features:
    """Features of a whole source, or of a random view of each picture, with a progress bar.

    With `folder` they are written there as they come, and `resume` goes on with what an
    interrupted run left. Several processes each do a shard of the pictures; they need a `folder`
    that all of them see. Memory: 4 bytes x pictures x dimensions (a mapped file with `folder`).
    """
    extractor = Extractor(backbone, device)
    store = _Store(source, backbone, folder, resume, view)
    todo = np.arange(store.rows.start + store.done, store.rows.stop)
    label = f"View {view}" if view else "Features"
    with bar(label, total=store.done + len(todo), unit="image", show=show) as progress:
        progress.update(store.done)
        for batch in extractor.stream(source, indices=todo, batch_size=batch_size, view=view):
            store.add(batch)
            progress.update(len(batch.indices) + len(batch.failures))
    return store.finish()


class _Store:
    """Rows of features in memory or in a mapped file, with a note of how far they have come."""

    def __init__(
        self, source: ImageSource, backbone: Backbone, folder: Path | None, resume: bool, view: int
    ) -> None:
        self.source, self.folder = source, folder
        self.processes = current()
        self.rows = self.processes.shard(len(source))
        self.failures: list[Failure] = []
        self.done = 0
        self.noted = time.monotonic()
        shape = (len(source), backbone.dimensions)
        if folder is None:
            if not self.processes.is_single:
                raise InputError("several processes need a work folder that all of them see")
            self.values = np.zeros(shape, np.float32)
            return
        folder.mkdir(parents=True, exist_ok=True)
        self.file, self.note = folder / "features.npy", self._note_of(self.processes.rank)
        self.identity = {
            "images": len(source),
            "names": _digest(source.names),
            "backbone": backbone.name,
            "weights": backbone.origin,
            "preprocessing": backbone.preprocessing.to_dict(),
        } | ({"view": view} if view else {})
        if resume and self.note.is_file() and self.file.is_file():
            self._take_up()
        self.processes.run_on_main(lambda: self._create(shape, resume))
        self.values = open_memmap(self.file, "r+")

    def _note_of(self, rank: int) -> Path:
        """The note of a process; of one alone, it covers all pictures."""
        assert self.folder is not None
        if self.processes.is_single:
            return self.folder / "features.json"
        rows = self.processes.shard(len(self.source), rank)
        return self.folder / f"features-{rows.start}-{rows.stop}.json"

    def _create(self, shape: tuple[int, int], resume: bool) -> None:
        """A file for all pictures, unless there is one to go on with."""
        if not (resume and self.file.is_file() and open_memmap(self.file, "r").shape == shape):
            open_memmap(self.file, "w+", np.float32, shape)

    def _take_up(self) -> None:
        noted = json.loads(self.note.read_text())
        if noted["identity"] != json.loads(json.dumps(self.identity)):
            raise ModelError(
                f"the features in {self.folder} are of other images or another backbone; "
                "resume with the same ones, or delete the folder to start again"
            )
        self.done = noted["done"]
        self.failures = [Failure(**entry) for entry in noted["failures"]]

    def add(self, batch: FeatureBatch) -> None:
        values = batch.features.cpu().numpy()
        if not np.isfinite(values).all():
            raise ModelError("the network gives NaN or infinite features; check its weights")
        self.values[batch.indices] = values
        self.failures.extend(batch.failures)
        self.done += len(batch.indices) + len(batch.failures)
        if self.folder is not None and time.monotonic() - self.noted > NOTE_SECONDS:
            self._write_note()

    def _write_note(self) -> None:
        assert isinstance(self.values, np.memmap)
        self.values.flush()
        note = {
            "identity": self.identity,
            "done": self.done,
            "failures": [vars(failure) for failure in self.failures],
        }
        write_atomic(self.note, json.dumps(note).encode())
        self.noted = time.monotonic()

    def finish(self) -> Features:
        if self.folder is not None:
            self._write_note()
            self._join()
        bad = np.array([failure.index for failure in self.failures], np.int64)
        usable = np.setdiff1d(np.arange(len(self.source)), bad)
        if not len(usable):
            reason = self.failures[0].reason if self.failures else "there are none"
            raise InputError(f"none of the {len(self.source)} images can be used: {reason}")
        return Features(self._of(usable), usable, self.failures)

    def _join(self) -> None:
        """Take in what the other processes have done."""
        if self.processes.is_single:
            return
        self.processes.barrier()
        self.values = open_memmap(self.file, "r")
        notes = [self._note_of(rank).read_text() for rank in range(self.processes.size)]
        self.failures = [Failure(**f) for note in notes for f in json.loads(note)["failures"]]

    def _of(self, usable: NDArray[np.int64]) -> NDArray[np.float32]:
        """The rows of the usable pictures; for several processes a file, which they share."""
        if len(usable) == len(self.values):
            return self.values
        if self.processes.is_single:
            return self.values[usable]
        assert self.folder is not None
        path = self.folder / "usable-features.npy"

        def write() -> None:
            shape = (len(usable), self.values.shape[1])
            rows = open_memmap(path, "w+", np.float32, shape)
            for start in range(0, len(usable), COPY_ROWS):
                part = slice(start, start + COPY_ROWS)
                rows[part] = self.values[usable[part]]
            rows.flush()

        self.processes.run_on_main(write)
        return open_memmap(path, "r")


def extract_views(
    backbone: Backbone,
    source: ImageSource,
    views: int,
    *,
    device: str | torch.device = "auto",
    folder: Path | None = None,
    resume: bool = False,
) -> Features:
    """Features of the pictures, then those of so many random views of each, in one matrix.

    Row k belongs to picture `usable[k]`. Memory: (1 + views) times that of `extract`.
    """

    def of(view: int) -> Features:
        apart = folder if folder is None or not view else folder / f"view-{view}"
        return extract(backbone, source, device=device, folder=apart, resume=resume, view=view)

    plain = of(0)
    if not views:
        return plain
    values = [plain.values, *(of(view).values for view in range(1, views + 1))]
    return Features(np.concatenate(values), np.tile(plain.usable, views + 1), plain.failures)


def _view_seed(view: int, indices: NDArray[np.int64]) -> int | None:
    """What the views of a batch are drawn from; None for the pictures themselves."""
    if not view:
        return None
    return int(np.random.SeedSequence((view, int(indices[0]))).generate_state(1)[0])


def _digest(names: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()
