"""Batches: the unit of work of a job, cut from a listing, and what comes of one."""

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ddh._core.errors import DDHError
from ddh.index import Row

ID_BYTES = 10


class ImageFile(NamedTuple):
    """An image file: the key of its row, its path, and what tells whether it has changed."""

    key: str
    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Images for one call of a worker, and a digest that names the same work in every run."""

    files: list[ImageFile]
    id: str = field(init=False)

    def __post_init__(self) -> None:
        text = "".join(f"{file.key}\0{file.size}\0{file.mtime_ns}\n" for file in self.files)
        content = text.encode("utf-8", "surrogateescape")
        object.__setattr__(self, "id", hashlib.blake2b(content, digest_size=ID_BYTES).hexdigest())

    def __len__(self) -> int:
        return len(self.files)


def cut(files: Iterable[ImageFile], size: int) -> Iterator[Batch]:
    """Batches of at most `size` images, about three quarters of it on average."""
    # Once it is half full, a batch ends at a key with a certain checksum, so that adding or
    # removing an image changes its own batch and few of the following ones.
    batch: list[ImageFile] = []
    for file in files:
        batch.append(file)
        marked = zlib.crc32(file.key.encode("utf-8", "surrogateescape")) % max(1, size // 4) == 0
        if len(batch) == size or (2 * len(batch) >= size and marked):
            yield Batch(batch)
            batch = []
    if batch:
        yield Batch(batch)


@dataclass
class Outcome:
    """What a worker made of a batch."""

    batch_id: str
    worker: str = ""
    rows: list[Row] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    error: DDHError | None = None


@dataclass
class Report:
    """What a job has done; `retried` images were sent again after their worker had died."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)
    retried: int = 0
    workers: set[str] = field(default_factory=set)

    @property
    def rows(self) -> int:
        """Rows that are there now."""
        return self.new + self.changed + self.unchanged
