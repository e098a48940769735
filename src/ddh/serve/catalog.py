"""One walk through all rows, and what the page wants to know of the collection as a whole."""

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

MOST_CATEGORIES = 255  # of a metadata name that counts as a category; 255 itself says: none
MOST_NAMES = 64  # of metadata
MOST_VALUES = 50  # told of a name
MOST_FOLDERS = 1000  # told
FOLDER = "folder"  # colours by folder, unless a metadata name says it too
PATIENCE = 10.0  # a survey lives ten times as long as it took to make
UNSEEN_SECONDS = 60.0  # for engines that do not tell whether anything has changed

Scalar = str | int | float | bool
Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Category:
    """The values of one metadata name, most frequent first, and which one each row has."""

    values: list[Scalar]
    of_row: NDArray[np.uint8]


@dataclass(frozen=True)
class Survey:
    """All rows at one moment, in the order written. Memory: codes, keys, some bytes a row."""

    keys: list[str]
    codes: NDArray[np.uint8]
    folders: list[str]
    folder_of_row: Ids  # -1 where a row has no path
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
        names = sorted(below)[:MOST_FOLDERS]
        return {
            "folders": [{"name": name, "rows": below[name]} for name in names],
            "metadata": {
                name: category.values[:MOST_VALUES] for name, category in self.categories.items()
            },
        }

    def colours(self) -> dict[str, Category]:
        """What a map can be coloured by."""
        shown = {n: c for n, c in self.categories.items() if len(c.values) > 1}
        if FOLDER not in shown and 1 < len(self.folders) <= MOST_CATEGORIES:
            ids = np.where(self.folder_of_row < 0, MOST_CATEGORIES, self.folder_of_row)
            shown[FOLDER] = Category(list(self.folders), ids.astype(np.uint8))
        return shown

    def rows_below(self, folder: str) -> NDArray[np.int64]:
        """Positions of the rows below a folder, at any depth."""
        inside = [f"{name}/".startswith(f"{folder.rstrip('/')}/") for name in self.folders]
        return np.flatnonzero(np.array([*inside, False])[self.folder_of_row])


@dataclass
class _Column:
    """One metadata name while rows go by: value -> number, and the rows that have one."""

    numbers: dict[tuple[bool, Scalar], int] = field(default_factory=dict)
    rows: "array[int]" = field(default_factory=lambda: array("q"))
    ids: "array[int]" = field(default_factory=lambda: array("B"))

    def add(self, row: int, value: Scalar) -> bool:
        """Note a value; False when there are too many to be categories."""
        # As filters compare: 1 equals 1.0 but not true.
        number = self.numbers.setdefault((isinstance(value, bool), value), len(self.numbers))
        if number >= MOST_CATEGORIES:
            return False
        self.rows.append(row)
        self.ids.append(number)
        return True

    def category(self, total: int) -> Category:
        """Numbered by frequency, so that the first are those to be shown."""
        ids = np.frombuffer(self.ids, np.uint8)
        counts = np.bincount(ids, minlength=len(self.numbers))
        order = np.argsort(-counts, kind="stable")
        renumbered = np.empty(len(order), np.uint8)
        renumbered[order] = np.arange(len(order))
        values = [value for _, value in self.numbers]
        of_row = np.full(total, MOST_CATEGORIES, np.uint8)
        of_row[np.frombuffer(self.rows, np.int64)] = renumbered[ids]
        return Category([values[i] for i in order], of_row)


def take(index: Index) -> Survey:
    """Walk through all rows of an index once."""
    keys: list[str] = []
    codes = bytearray()
    folders: dict[str, int] = {}
    folder_ids = array("i")
    columns: dict[str, _Column | None] = {}
    for row in index.items():
        place = len(keys)
        keys.append(row.key)
        codes += row.code.tobytes()
        folder = None if row.path is None else folder_of(row.path)
        folder_ids.append(-1 if folder is None else folders.setdefault(folder, len(folders)))
        for name, value in row.metadata.items():
            if not isinstance(value, str | int | float):
                continue
            if name not in columns and len(columns) < MOST_NAMES:
                columns[name] = _Column()
            column = columns.get(name)
            if column is not None and not column.add(place, value):
                columns[name] = None
    return Survey(
        keys,
        np.frombuffer(bytes(codes), np.uint8).reshape(-1, index.code_bytes),
        list(folders),
        np.frombuffer(folder_ids, np.int32) if len(folder_ids) else np.empty(0, np.int32),
        {name: column.category(len(keys)) for name, column in columns.items() if column},
    )


class Surveyor:
    """Keeps the last survey and takes another when rows have changed. For worker threads."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._survey: Survey | None = None
        self._state: object = None
        self._taken = self._took = 0.0

    def current(self) -> Survey:
        """A survey of the rows as they are, or were a little while ago."""
        with self._lock:
            if self._survey is None or self._is_old():
                state, started = self._look(), time.monotonic()
                self._survey = take(self._index)
                self._state, self._taken = state, time.monotonic()
                self._took = self._taken - started
            return self._survey

    def _is_old(self) -> bool:
        age = time.monotonic() - self._taken
        if age < PATIENCE * self._took:
            return False
        return self._look() != self._state or (self._state is None and age > UNSEEN_SECONDS)

    def _look(self) -> object:
        """Something that changes when rows do, None where that cannot be seen cheaply."""
        return file_state(Path(self._index.location)) if self._index.engine == "local" else None

    def changed(self) -> None:
        """This service has written rows itself."""
        with self._lock:
            self._taken, self._state = time.monotonic() - UNSEEN_SECONDS - 1, None


def file_state(folder: Path) -> object:
    """Sizes and times of the files of a local index; those of shared memory say nothing."""
    try:
        return sorted(
            (path.name, state.st_size, state.st_mtime_ns)
            for path in folder.iterdir()
            if not path.name.endswith("-shm") and (state := path.stat())
        )
    except OSError:
        return None
