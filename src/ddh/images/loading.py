"""Batches of preprocessed pictures, decoded by threads that run ahead of whoever consumes them."""

import hashlib
import math
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh._core.threads import cpu_count, thread_imap
from ddh.images.decoding import UnreadableImage
from ddh.images.preprocessing import Preprocessing
from ddh.images.sources import ImageArray, ImageSource, PreparedArray

MAX_WORKERS = 16
DIGEST_BYTES = 16


@dataclass(frozen=True)
class Failure:
    """A picture that could not be used: its place in the source, its name, and why."""

    index: int
    name: str
    reason: str


_Task: TypeAlias = "Future[Failure | None]"


@dataclass(frozen=True)
class Batch:
    """Pictures of a source: `pixels[k]` is picture `indices[k]`; the unusable are `failures`."""

    indices: NDArray[np.int64]
    pixels: NDArray[np.uint8]
    failures: list[Failure] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.indices)


def load_batches(
    source: ImageSource,
    preprocessing: Preprocessing,
    batch_size: int,
    *,
    workers: int | None = None,
    indices: Iterable[int] | None = None,
    ahead: int = 2,
) -> Generator[Batch, None, None]:
    """Walk through a source in order (or through `indices`), `batch_size` pictures at a time.

    A picture that cannot be used is left out of its batch and reported in `failures`, so a batch
    may be smaller than `batch_size`, or empty. Arrays that already have the network's size are
    handed on as they are. Closing the generator stops the threads.

    Memory: (ahead + 2) batches of batch_size * size^2 * 3 bytes, the one in use included, and one
    decoded picture per worker.
    """
    if batch_size < 1 or ahead < 0 or (workers is not None and workers < 1):
        raise InputError("batch_size and workers are at least 1, ahead is at least 0")
    order = np.array(list(range(len(source)) if indices is None else indices), dtype=np.int64)
    if order.size and (order.min() < 0 or order.max() >= len(source)):
        raise InputError(f"indices must lie between 0 and {len(source) - 1}")
    parts = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    return load_parts(source, preprocessing, parts, workers=workers, ahead=ahead)


def load_parts(
    source: ImageSource,
    preprocessing: Preprocessing,
    parts: list[NDArray[np.int64]],
    *,
    workers: int | None = None,
    ahead: int = 2,
) -> Generator[Batch, None, None]:
    """As `load_batches`, for batches of any sizes: each part names the pictures of one."""
    if _as_they_are(source, preprocessing):
        return (Batch(part, source.pixels[part]) for part in parts)
    return _decode_batches(
        source, preprocessing, parts, workers or min(cpu_count(), MAX_WORKERS), ahead
    )


class PictureCache:
    """Prepared pictures of a source, kept in memory for epochs that read them again and again.

    At most `limit` bytes of them, the first of the source; the others are decoded every time.
    """

    def __init__(self, source: ImageSource, preprocessing: Preprocessing, limit: int) -> None:
        self.source, self.preprocessing = source, preprocessing
        shape = preprocessing.size, preprocessing.size, 3
        room = 0 if _as_they_are(source, preprocessing) else limit // math.prod(shape)
        self._pixels = np.empty((min(room, len(source)), *shape), np.uint8)  # unused: no memory yet
        self._kept = np.zeros(len(source), bool)

    def load_parts(self, parts: list[NDArray[np.int64]]) -> Generator[Batch, None, None]:
        """As `load_parts`; what it decodes is kept."""
        kept = [self._kept[part] for part in parts]
        missing = [part[~known] for part, known in zip(parts, kept, strict=True)]
        needed = [part for part in missing if len(part)]
        with closing(load_parts(self.source, self.preprocessing, needed)) as decoded:
            for part, known in zip(parts, kept, strict=True):
                if known.all():
                    yield Batch(part, self._pixels[part])
                else:
                    yield self._keep(part, known, next(decoded))

    def _keep(self, part: NDArray[np.int64], known: NDArray[np.bool_], batch: Batch) -> Batch:
        """The pictures of a part: those that were `known`, and those that were decoded."""
        fits = batch.indices < len(self._pixels)
        self._pixels[batch.indices[fits]] = batch.pixels[fits]
        self._kept[batch.indices[fits]] = True
        if not known.any():
            return batch
        usable = known | np.isin(part, batch.indices)
        pixels = np.empty((len(part), *self._pixels.shape[1:]), np.uint8)
        pixels[known] = self._pixels[part[known]]
        pixels[usable & ~known] = batch.pixels
        return Batch(part[usable], pixels[usable], batch.failures)


def _as_they_are(source: ImageSource, preprocessing: Preprocessing) -> TypeGuard[ImageArray]:
    """Whether the pictures of a source are in memory and need no preparation."""
    if not isinstance(source, ImageArray):
        return False
    return isinstance(source, PreparedArray) or preprocessing.keeps(*source.pixels.shape[1:3])


def _decode_batches(
    source: ImageSource,
    preprocessing: Preprocessing,
    parts: list[NDArray[np.int64]],
    workers: int,
    ahead: int,
) -> Generator[Batch, None, None]:
    def prepare(index: int, target: NDArray[np.uint8]) -> Failure | None:
        try:
            image = source.read_reduced(index, preprocessing.shorter_side)
            target[...] = preprocessing.apply(image)
        except InputError as error:
            reason = error.reason if isinstance(error, UnreadableImage) else str(error)
            return Failure(index, source.names[index], reason)
        return None

    pool = ThreadPoolExecutor(workers, thread_name_prefix="ddh-images")
    # batches whose pictures are still being decoded, each into its own row
    waiting: deque[tuple[NDArray[np.int64], NDArray[np.uint8], list[_Task]]] = deque()
    try:
        for part in parts:
            pixels = np.empty((len(part), preprocessing.size, preprocessing.size, 3), np.uint8)
            tasks = [pool.submit(prepare, int(i), pixels[k]) for k, i in enumerate(part)]
            waiting.append((part, pixels, tasks))
            if len(waiting) > ahead:
                yield _collect(*waiting.popleft())
        while waiting:
            yield _collect(*waiting.popleft())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _collect(indices: NDArray[np.int64], pixels: NDArray[np.uint8], tasks: list[_Task]) -> Batch:
    failures = [task.result() for task in tasks]
    if not any(failures):
        return Batch(indices, pixels)
    usable = np.array([failure is None for failure in failures])
    bad = [failure for failure in failures if failure is not None]
    return Batch(indices[usable], pixels[usable], bad)


def pixel_digest(source: ImageSource, indices: Iterable[int] | None = None) -> list[str]:
    """One digest (32 hexadecimal digits) per picture of its size and upright RGB pixels.

    Two pictures have the same digest exactly when they decode to the same pixels: the check that
    a query is not also in the database. Raises `InputError` for a picture that cannot be read.
    Memory: one decoded picture per thread.
    """
    chosen = range(len(source)) if indices is None else list(indices)
    if isinstance(source, ImageArray):  # no need of threads, nor of a Pillow image each
        height, width = source.pixels.shape[1:3]
        return [_digest(width, height, source.pixels[i].tobytes()) for i in chosen]

    def digest(i: int) -> str:
        image = source.read(i)
        return _digest(image.width, image.height, image.tobytes())

    digests = thread_imap(digest, chosen)
    return list(track(digests, "Pixel digests", total=len(chosen), unit="image"))


def _digest(width: int, height: int, rgb: bytes) -> str:
    content = f"{width}x{height}:".encode() + rgb  # the size too: 2 x 3 is not 3 x 2
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
