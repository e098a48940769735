"""A snapshot of all rows: the facets, colours and codes that the page needs as a whole."""

import hashlib
import io
import json
import threading
import time
import zipfile
from array import array
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh.index import Index, Row
from ddh.serve.disk_cache import DiskCache
from ddh.serve.items import folder_of
from ddh.serve.names import PackedTexts, folded

MAX_CATEGORIES = 255  # values of a metadata name that is a category; 255 itself means: none
NONE = bytes([MAX_CATEGORIES])
MAX_NAMES = 64  # of metadata
MAX_VALUES = 50  # listed per name
MAX_FOLDERS = 1000  # listed
FOLDER = "folder"  # colours by folder, unless a metadata name says it too
LIFETIME = 10.0  # a catalog is kept for at least ten times as long as it took to build
BLIND_SECONDS = 60.0  # lifetime for engines whose changes cannot be seen cheaply
BREATH_ROWS, BREATH_SECONDS = 512, 0.0005  # requests that wait come first while rows are read
CAMERA = "camera"
TAKEN = "taken"  # metadata: when the camera took the picture, as ISO 8601
UNSEARCHED = {TAKEN, "latitude", "longitude"}  # metadata that is no text to be typed
NO_DATE = np.iinfo(np.int64).min
DAY = 86_400  # seconds
EPOCH_DAY = datetime(1970, 1, 1).toordinal()
TICK = 50_000_000  # nanoseconds: times of files are no finer, with some room
WORTH_KEEPING = 2000  # rows; fewer are read as quickly from the index
VERSION = b"2"  # change it when the same rows would give another catalog
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Category:
    """The values of one metadata name, most frequent first, and which one each row has."""

    values: list[Scalar]
    of_row: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Catalog:
    """All rows at one moment, in the order written. Memory: codes, texts, some bytes per row.

    `texts` are what a row is found by: its key, date and metadata, folded. `taken` are seconds of
    the camera's clock, or of the file's where the camera says nothing.
    """

    keys: PackedTexts
    texts: PackedTexts
    taken: NDArray[np.int64]
    codes: NDArray[np.uint8]
    folders: list[str]
    folder_of_row: NDArray[np.int32]  # -1 where a row has no path
    categories: dict[str, Category]

    def __len__(self) -> int:
        return len(self.keys)

    def facets(self) -> dict[str, Any]:
        """Folders with the rows below them, and the values of metadata names."""
        direct = np.bincount(self.folder_of_row[self.folder_of_row >= 0], minlength=1)
        below: Counter[str] = Counter()
        for name, rows in zip(self.folders, direct.tolist(), strict=False):
            while name:
                below[name] += rows
                name = folder_of(name)
        names = sorted(below)[:MAX_FOLDERS]
        return {
            "folders": [{"name": name, "rows": below[name]} for name in names],
            "metadata": {
                name: category.values[:MAX_VALUES] for name, category in self.categories.items()
            },
        }

    def colours(self) -> dict[str, Category]:
        """The categories that a map can be coloured by."""
        shown = {n: c for n, c in self.categories.items() if len(c.values) > 1}
        if FOLDER not in shown and 1 < len(self.folders) <= MAX_CATEGORIES:
            ids = np.where(self.folder_of_row < 0, MAX_CATEGORIES, self.folder_of_row)
            shown[FOLDER] = Category(list(self.folders), ids.astype(np.uint8))
        if CAMERA in shown:
            shown[CAMERA] = shown.pop(CAMERA)  # last: it says least about what is seen
        return shown

    @cached_property
    def _by_hash(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Hashes of the keys in ascending order, and whose they are."""
        hashes = np.fromiter(map(hash, self.keys), np.int64, len(self.keys))
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    def rows_of(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Positions of keys, ascending; keys that are not there are left out."""
        hashes, order = self._by_hash
        wanted = np.fromiter(map(hash, keys), np.int64, len(keys))
        at = np.searchsorted(hashes, wanted)
        there = (at < len(hashes)) & (hashes[np.minimum(at, len(hashes) - 1)] == wanted)
        return np.unique(order[at[there]])

    @cached_property
    def by_date(self) -> NDArray[np.int64]:
        """Positions of all rows, the oldest picture first; those without a date at the end."""
        return np.argsort(np.where(self.taken == NO_DATE, -NO_DATE - 1, self.taken), kind="stable")

    @cached_property
    def by_name(self) -> NDArray[np.int64]:
        """Positions of all rows in the order of their keys."""
        return np.array(sorted(range(len(self)), key=self.keys.__getitem__), np.int64)

    def rows_below(self, folder: str) -> NDArray[np.int64]:
        """Positions of the rows below a folder, at any depth."""
        inside = [f"{name}/".startswith(f"{folder.rstrip('/')}/") for name in self.folders]
        return np.flatnonzero(np.array([*inside, False])[self.folder_of_row])


@dataclass
class _Column:
    """One metadata name while rows are read: value -> number, and the number of each row."""

    numbers: dict[tuple[bool, Scalar], int] = field(default_factory=dict)
    of_row: bytearray = field(default_factory=bytearray)  # up to the last row that has a value

    def add(self, row: int, value: Scalar) -> bool:
        """Record a value; False when there are too many to be categories."""
        # As filters compare: 1 equals 1.0 but not true.
        number = self.numbers.setdefault((isinstance(value, bool), value), len(self.numbers))
        self.of_row += NONE * (row - len(self.of_row)) + bytes([number])
        return number < MAX_CATEGORIES

    def category(self, total: int) -> Category:
        """Numbered by frequency, so that the first are those to be shown."""
        of_row = np.frombuffer(bytes(self.of_row).ljust(total, NONE), np.uint8)
        counts = np.bincount(of_row, minlength=256)[: len(self.numbers)]
        order = np.argsort(-counts, kind="stable")
        renumbered = np.full(256, MAX_CATEGORIES, np.uint8)
        renumbered[order] = np.arange(len(order))
        values = [value for _, value in self.numbers]
        return Category([values[i] for i in order], renumbered[of_row])


def build_catalog(index: Index) -> Catalog:
    """Read all rows of an index once."""
    keys, texts, taken = PackedTexts(), PackedTexts(), array("q")
    codes = bytearray()
    folders: dict[str, int] = {}
    folder_ids = array("i")
    columns: dict[str, _Column | None] = {}
    for number, row in enumerate(index.items()):
        if number % BREATH_ROWS == 0:
            time.sleep(BREATH_SECONDS)
        keys.append(row.key)
        codes += row.code.tobytes()
        folder = None if row.path is None else folder_of(row.path)
        folder_ids.append(-1 if folder is None else folders.setdefault(folder, len(folders)))
        taken.append(_seconds(row))
        texts.append(_text(row, taken[-1]))
        for name, value in row.metadata.items():
            if not isinstance(value, str | int | float) or name in UNSEARCHED:
                continue
            if name not in columns and len(columns) < MAX_NAMES:
                columns[name] = _Column()
            column = columns.get(name)
            if column is not None and not column.add(len(keys) - 1, value):
                columns[name] = None
    return Catalog(
        keys,
        texts,
        np.frombuffer(taken, np.int64) if len(taken) else np.empty(0, np.int64),
        np.frombuffer(bytes(codes), np.uint8).reshape(-1, index.code_bytes),
        list(folders),
        np.frombuffer(folder_ids, np.int32) if len(folder_ids) else np.empty(0, np.int32),
        {name: column.category(len(keys)) for name, column in columns.items() if column},
    )


def _seconds(row: Row) -> int:
    """When a picture was taken, on the clock of its place; of its file, where nothing says so."""
    said = row.metadata.get(TAKEN)
    if isinstance(said, str):
        with suppress(ValueError, OverflowError):
            time_of_day = (date := datetime.fromisoformat(said)).hour * 3600 + date.minute * 60
            return (date.toordinal() - EPOCH_DAY) * DAY + time_of_day + date.second
    if row.stamp is None:
        return NO_DATE
    seconds = row.stamp.mtime_ns // 1_000_000_000
    with suppress(ValueError, OverflowError, OSError):
        return seconds + time.localtime(seconds).tm_gmtoff
    return NO_DATE


def _text(row: Row, seconds: int) -> str:
    """What a row is found by, in one line."""
    parts = [row.key]
    if row.path is not None and row.path != row.key:
        parts.append(row.path)
    if seconds != NO_DATE and (words := _day_words(seconds // DAY)):
        parts.append(words)
    for name, value in row.metadata.items():
        if name not in UNSEARCHED and isinstance(value, str | int | float):
            parts.append(f"{name}:{str(value).lower() if isinstance(value, bool) else value}")
        elif isinstance(value, list):
            parts += [f"{name}:{each}" for each in value if isinstance(each, str)]
    return folded("\t".join(parts)).replace("\n", " ")


@lru_cache(maxsize=1 << 15)
def _day_words(day: int) -> str:
    """A day since 1970 as one types it; "" outside of the calendar."""
    with suppress(ValueError, OverflowError, OSError):
        date = time.gmtime(day * DAY)
        return f"{date.tm_year:04}-{date.tm_mon:02}-{date.tm_mday:02} {MONTHS[date.tm_mon - 1]}"
    return ""


def to_bytes(catalog: Catalog) -> bytes:
    """A catalog as a file; `from_bytes` reads it."""
    names = list(catalog.categories)
    values = [catalog.categories[name].values for name in names]
    about = json.dumps({"folders": catalog.folders, "names": names, "values": values})
    stream = io.BytesIO()
    np.savez(
        stream,
        about=np.frombuffer(about.encode("utf-8", "surrogatepass"), np.uint8),
        keys=np.frombuffer(catalog.keys.bytes, np.uint8),
        key_ends=catalog.keys.ends,
        texts=np.frombuffer(catalog.texts.bytes, np.uint8),
        text_ends=catalog.texts.ends,
        taken=catalog.taken,
        codes=catalog.codes,
        folder_of_row=catalog.folder_of_row,
        categories=np.array([catalog.categories[name].of_row for name in names], np.uint8),
    )
    return stream.getvalue()


def from_bytes(content: bytes) -> Catalog:
    """The catalog of a file; raises ValueError or KeyError where it is none."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        about = json.loads(arrays["about"].tobytes().decode("utf-8", "surrogatepass"))
        each = zip(about["names"], about["values"], arrays["categories"], strict=True)
        return Catalog(
            PackedTexts.from_arrays(arrays["keys"], arrays["key_ends"]),
            PackedTexts.from_arrays(arrays["texts"], arrays["text_ends"]),
            arrays["taken"],
            arrays["codes"],
            about["folders"],
            arrays["folder_of_row"],
            {name: Category(values, of_row) for name, values, of_row in each},
        )


class CatalogCache:
    """Keeps the last catalog and builds another when rows have changed. For worker threads.

    The catalog of a local index is also kept on disk, for the next start of the service.
    """

    def __init__(self, index: Index, kept: DiskCache | None = None) -> None:
        self._index, self._kept = index, kept
        self._lock = threading.Lock()
        self._catalog: Catalog | None = None
        self._state: object = None
        self._built_at = self._build_seconds = 0.0
        self._changed = False  # by this service itself

    def current(self) -> Catalog:
        """A catalog of the rows as they are, or were a short while ago."""
        with self._lock:
            if self._catalog is None or self._is_stale():
                state, started = self.index_state(), time.monotonic()
                self._changed = False
                self._catalog = self._read(state)
                self._state, self._built_at = state, time.monotonic()
                self._build_seconds = self._built_at - started
            return self._catalog

    def _read(self, state: object) -> Catalog:
        """The catalog of a state of the index, from the disk where it is there."""
        if self._kept is None or state is None:
            return build_catalog(self._index)
        told = f"{self._index.location}\0{self._index.model_id}\0{self._index.bits}\0{state}"
        digest = hashlib.blake2b(VERSION, digest_size=16)
        digest.update(told.encode("utf-8", "surrogateescape"))
        if content := self._kept.get(digest.hexdigest()):
            with suppress(ValueError, KeyError, OSError, zipfile.BadZipFile):
                return from_bytes(content)
        catalog = build_catalog(self._index)
        if len(catalog) >= WORTH_KEEPING:
            self._kept.put(digest.hexdigest(), to_bytes(catalog))
        return catalog

    def _is_stale(self) -> bool:
        age = time.monotonic() - self._built_at
        if self._changed:
            return True
        if age < LIFETIME * self._build_seconds:
            return False
        return self.index_state() != self._state or (self._state is None and age > BLIND_SECONDS)

    def index_state(self) -> object:
        """Sizes and times of a local index's files (not of shared memory), None if unknown.

        A state of this very moment equals no other: another change may leave the same times.
        """
        if self._index.engine != "local":
            return None
        now = time.time_ns()
        try:
            found = sorted(
                (path.name, state.st_size, state.st_mtime_ns)
                for path in Path(self._index.location).iterdir()
                if not path.name.endswith("-shm") and (state := path.stat()).st_size
            )
        except OSError:
            return None
        is_settled = all(mtime < now - TICK for *_, mtime in found)
        return found if is_settled else [*found, now]

    def invalidate(self) -> None:
        """Build anew at the next use: this service has written rows itself."""
        self._changed = True
