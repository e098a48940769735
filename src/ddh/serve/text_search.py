"""Search by what a text means: vectors of all pictures by an image tower, compared with a text's.

The vectors are made in the background, once per picture, and kept in the cache folder (SQLite, half
precision); a search looks at those that are there. Memory: 2 bytes per component and picture.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core import jobs
from ddh._core.output import escaped
from ddh.images import UnreadableImage, decode
from ddh.images.decoding import DEFAULT_LIMITS
from ddh.index import FileStamp, Index, IndexRecoded, Row
from ddh.serve.catalog import CatalogCache
from ddh.serve.find import Finder, Selection
from ddh.serve.items import Pictures, picture_name
from ddh.serve.towers import Towers

LOG = logging.getLogger("ddh.serve")
BATCH = 8
SCORED = 16_384  # rows at once: half precision becomes single
LOOK_SECONDS = 30.0  # between looks at whether rows have changed
BLIND_SECONDS = 600.0  # the same where only their number can be seen cheaply

Half = NDArray[np.float16]


class TextSearch:
    """Ranks pictures by a text. `search` and `close` are for any thread."""

    def __init__(
        self, folder: Path, cache: Path, index: Index, pictures: Pictures, catalogs: CatalogCache
    ) -> None:
        self._towers = Towers(folder)
        self._index, self._pictures, self._catalogs = index, pictures, catalogs
        self._finder, self._lock = Finder(index), threading.Lock()
        self._closing = threading.Event()
        cache.mkdir(parents=True, exist_ok=True)
        self._file = cache / f"text-{self._towers.id}.sqlite"
        self._stamps: dict[str, FileStamp | None] = {}  # of the rows whose vectors are here
        self._keys: list[str] = []
        self._vectors: Half = np.empty((0, 0), np.float16)
        self._thread = threading.Thread(target=self._run, name="text", daemon=True)
        self._thread.start()

    @property
    def covered(self) -> int:
        """Pictures that can be found so far."""
        return len(self._keys)

    def search(self, text: str, folder: str, where: dict[str, Any]) -> list[tuple[str, float]]:
        """Keys of all covered pictures that the filters select, and their cosines, best first."""
        with self._lock:
            query = self._towers.text(text)
            keys, vectors = self._keys[:], self._vectors[: len(self._keys)]
        scores = np.empty(len(keys), np.float32)
        for start in range(0, len(keys), SCORED):
            part = vectors[start : start + SCORED].astype(np.float32)
            scores[start : start + SCORED] = part @ query
        order = np.argsort(-scores, kind="stable")
        if folder or where:
            catalog = self._catalogs.current()
            selection = Selection(folder=folder, where=tuple(sorted(where.items())))
            rows = self._finder.rows(catalog, selection, {})
            kept = {catalog.keys[row] for row in rows.tolist()}
            order = np.array([i for i in order.tolist() if keys[i] in kept], np.int64)
        return [(keys[i], float(scores[i])) for i in order.tolist()]

    def close(self) -> None:
        """Stop to look at pictures."""
        self._closing.set()
        self._thread.join()

    # -- in the background -------------------------------------------------------------------

    def _run(self) -> None:
        seen: object = None
        while not self._closing.is_set():
            try:
                state = self._catalogs.index_state()
                if state is None:
                    state = len(self._index), time.monotonic() // BLIND_SECONDS
                if state != seen:
                    with closing(sqlite3.connect(self._file)) as db:
                        self._look(db)
                    seen = state
            except IndexRecoded:  # the service follows it: look again then
                pass
            except Exception:
                LOG.exception("pictures cannot be read for the search by text")
            self._closing.wait(LOOK_SECONDS)

    def _look(self, db: sqlite3.Connection) -> None:
        """Take up the vectors of all rows: those that are stored, then those of new pictures."""
        db.execute(
            "CREATE TABLE IF NOT EXISTS vectors (file TEXT PRIMARY KEY, mtime_ns INTEGER, "
            "size INTEGER, vector BLOB) WITHOUT ROWID"
        )
        if self._keys:
            self._drop_former()
        new: list[tuple[Row, Path]] = []
        for row in self._index.items():
            if self._closing.is_set():
                return
            if row.key in self._stamps:
                continue
            try:
                file = self._pictures.file(picture_name(row))
                if file is None:
                    continue
                stored = db.execute(
                    "SELECT vector FROM vectors WHERE file = ? AND mtime_ns = ? AND size = ?",
                    _stamp(file),
                ).fetchone()
            except OSError:  # gone in this moment
                continue
            if stored is None:
                new.append((row, file))
            elif stored[0]:
                self._take(row, np.frombuffer(stored[0], np.float16))
        if new:
            with jobs.job("text", "search by text"):
                stage = jobs.stage("Reading pictures for the search by text", len(new), "picture")
                for batch in _batches(new):
                    if self._closing.is_set():
                        return
                    self._encode(db, batch)
                    if stage is not None:
                        stage.advance(len(batch))

    def _encode(self, db: sqlite3.Connection, batch: Sequence[tuple[Row, Path]]) -> None:
        images, readable = [], []
        for row, file in batch:
            try:
                images.append(decode(file, limits=DEFAULT_LIMITS, at_least=self._towers.size))
                readable.append((row, file))
            except UnreadableImage:
                with suppress(OSError):
                    _store(db, file, b"")
        if images:
            with self._lock:
                vectors = self._towers.pictures(images).astype(np.float16)
            for (row, file), vector in zip(readable, vectors, strict=True):
                with suppress(OSError):
                    _store(db, file, vector.tobytes())
                self._take(row, vector)
        db.commit()

    def _drop_former(self) -> None:
        """Forget the rows that are gone, and those whose files have changed."""
        kept = {
            row.key
            for row in self._index.items()
            if row.key in self._stamps and self._stamps[row.key] == row.stamp
        }
        if len(kept) == len(self._keys):
            return
        places = [place for place, key in enumerate(self._keys) if key in kept]
        with self._lock:
            self._keys = [self._keys[place] for place in places]
            self._vectors = self._vectors[places]
            self._stamps = {key: self._stamps[key] for key in self._keys}

    def _take(self, taken: Row, vector: Half) -> None:
        with self._lock:
            row = len(self._keys)
            if row >= len(self._vectors):
                larger = np.empty((max(1024, 2 * row), len(vector)), np.float16)
                if row:
                    larger[:row] = self._vectors[:row]
                self._vectors = larger
            self._vectors[row] = vector
            self._stamps[taken.key] = taken.stamp
            self._keys.append(taken.key)


def _stamp(file: Path) -> tuple[str, int, int]:
    state = file.stat()
    return escaped(file), state.st_mtime_ns, state.st_size


def _store(db: sqlite3.Connection, file: Path, vector: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", (*_stamp(file), vector))


def _batches(rows: Sequence[tuple[Row, Path]]) -> Iterator[list[tuple[Row, Path]]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, BATCH)):
        yield batch
