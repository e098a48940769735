"""A snapshot of all rows: the facets, colours and codes that the page needs as a whole."""

import threading
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh.index import Index
from ddh.serve.items import folder_of

MAX_CATEGORIES = 255  # values of a metadata name that is a category; 255 itself means: none
NONE = bytes([MAX_CATEGORIES])
MAX_NAMES = 64  # of metadata
MAX_VALUES = 50  # listed per name
MAX_FOLDERS = 1000  # listed
FOLDER = "folder"  # colours by folder, unless a metadata name says it too
LIFETIME = 10.0  # a catalog is kept for at least ten times as long as it took to build
BLIND_SECONDS = 60.0  # lifetime for engines whose changes cannot be seen cheaply

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Category:
    """The values of one metadata name, most frequent first, and which one each row has."""

    values: list[Scalar]
    of_row: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Catalog:
    """All rows at one moment, in the order written. Memory: codes, keys, some bytes per row."""

    keys: list[str]
    codes: NDArray[np.uint8]
    folders: list[str]
    folder_of_row: NDArray[np.int32]  # -1 where a row has no path
    categories: dict[str, Category]
    duplicates: dict[tuple[int, str], list[NDArray[np.int64]]] = field(default_factory=dict)

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
        return shown

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
    keys: list[str] = []
    codes = bytearray()
    folders: dict[str, int] = {}
    folder_ids = array("i")
    columns: dict[str, _Column | None] = {}
    for row in index.items():
        keys.append(row.key)
        codes += row.code.tobytes()
        folder = None if row.path is None else folder_of(row.path)
        folder_ids.append(-1 if folder is None else folders.setdefault(folder, len(folders)))
        for name, value in row.metadata.items():
            if not isinstance(value, str | int | float):
                continue
            if name not in columns and len(columns) < MAX_NAMES:
                columns[name] = _Column()
            column = columns.get(name)
            if column is not None and not column.add(len(keys) - 1, value):
                columns[name] = None
    return Catalog(
        keys,
        np.frombuffer(bytes(codes), np.uint8).reshape(-1, index.code_bytes),
        list(folders),
        np.frombuffer(folder_ids, np.int32) if len(folder_ids) else np.empty(0, np.int32),
        {name: column.category(len(keys)) for name, column in columns.items() if column},
    )


class CatalogCache:
    """Keeps the last catalog and builds another when rows have changed. For worker threads."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._catalog: Catalog | None = None
        self._state: object = None
        self._built_at = self._build_seconds = 0.0

    def current(self) -> Catalog:
        """A catalog of the rows as they are, or were a short while ago."""
        with self._lock:
            if self._catalog is None or self._is_stale():
                state, started = self._index_state(), time.monotonic()
                self._catalog = build_catalog(self._index)
                self._state, self._built_at = state, time.monotonic()
                self._build_seconds = self._built_at - started
            return self._catalog

    def _is_stale(self) -> bool:
        age = time.monotonic() - self._built_at
        if age < LIFETIME * self._build_seconds:
            return False
        return self._index_state() != self._state or (self._state is None and age > BLIND_SECONDS)

    def _index_state(self) -> object:
        """Sizes and times of a local index's files (not of shared memory), None if unknown."""
        if self._index.engine != "local":
            return None
        try:
            return sorted(
                (path.name, state.st_size, state.st_mtime_ns)
                for path in Path(self._index.location).iterdir()
                if not path.name.endswith("-shm") and (state := path.stat())
            )
        except OSError:
            return None

    def invalidate(self) -> None:
        """Build anew at the next use: this service has written rows itself."""
        with self._lock:
            self._built_at, self._state = time.monotonic() - BLIND_SECONDS - 1, None
