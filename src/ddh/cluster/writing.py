"""What comes of a batch, and the index engines as a place to write its rows to."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import ddh.index
from ddh._core.errors import InputError
from ddh.cluster.pictures import Picture
from ddh.index.location import without_password
from ddh.index.rows import Codes, FileStamp, Written


@dataclass(frozen=True)
class Rows:
    """Keys, packed codes and stamps of encoded pictures."""

    keys: list[str]
    codes: Codes
    stamps: list[FileStamp]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass
class Outcome:
    """What came of a batch: rows to be written by the driver, or how many were written here."""

    rows: Rows | None = None
    written: Written = field(default_factory=lambda: Written(0, 0))
    unchanged: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)


class Writer(Protocol):
    """Where rows go. It is pickled, used on the driver or in the workers, by several threads.

    Both calls may be repeated: a row that is there is not written a second time.
    """

    def open(self) -> None:
        """Connect, or raise an error that says why that is not possible from here."""
        ...

    def left(self, pictures: list[Picture]) -> list[Picture]:
        """The pictures whose rows are not there, or are of older files."""
        ...

    def write(self, batch_id: str, rows: Rows) -> Written:
        """Write the rows of a batch, all of them on disk when the call returns."""
        ...


def settle_url(index: ddh.index.Index, url: str, *, moved: bool = False) -> str:
    """Take a URL as the collection of an index or as a part of it; the part's name, "" for all."""
    url = without_password(url).rstrip("/")
    root = index.settings().get("root")
    if root is None or moved:
        index.remember(root=url)
        return ""
    if url == root or url.startswith(f"{root}/"):
        return url[len(root) :].lstrip("/")
    raise InputError(
        f"this index holds the pictures of {root}, and {url} is not in it: use another index for "
        "it, or --moved if it is the same collection in a new place"
    )


class IndexWriter:
    """Rows of an index, by key: the stamps in the index say what is done, whoever did it."""

    def __init__(self, location: str, bits: int, model_id: str) -> None:
        self.location, self.bits, self.model_id = location, bits, model_id
        self._opened: ddh.index.Index | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}

    def open(self) -> None:
        self._opened = ddh.index.open(
            self.location, bits=self.bits, model_id=self.model_id, create=False
        )

    def _index(self) -> ddh.index.Index:
        assert self._opened is not None, "open comes first"
        return self._opened

    def left(self, pictures: list[Picture]) -> list[Picture]:
        rows = self._index().get_many([picture.key for picture in pictures])
        stamps = {row.key: row.stamp[:2] for row in rows if row.stamp is not None}
        return [
            picture
            for picture in pictures
            if stamps.get(picture.key) != (picture.mtime_ns, picture.size)
        ]

    def write(self, batch_id: str, rows: Rows) -> Written:
        index = self._index()
        before = {row.key: row.metadata for row in index.get_many(rows.keys)}
        metadata = [before.get(key) for key in rows.keys]
        return index.upsert(
            rows.keys, rows.codes, paths=rows.keys, stamps=rows.stamps, metadata=metadata
        )

    def close(self) -> None:
        """Close the index, where it was opened."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
