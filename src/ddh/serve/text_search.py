"""Search by what a text means: vectors of all pictures by an image tower, compared with a text's.

The vectors are made in the background, once per picture, and kept in the cache folder (SQLite, half
precision); a search looks at those that are there. Memory: 2 bytes per component and picture.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core import jobs
from ddh.images import Limits, UnreadableImage, decode
from ddh.index import Index, Row
from ddh.serve.catalog import CatalogCache
from ddh.serve.find import Finder, Selection
from ddh.serve.items import Pictures, picture_name
from ddh.serve.towers import Towers

LOG = logging.getLogger("ddh.serve")
BATCH = 8
SCORED = 16_384  # rows at once: half precision becomes single
LOOK_SECONDS = 30.0  # between looks for new pictures

Half = NDArray[np.float16]


class TextSearch:
    """Ranks pictures by a text. `search` and `close` are for any thread."""

    def __init__(
        self, folder: Path, cache: Path, index: Index, pictures: Pictures, catalogs: CatalogCache
    ) -> None:
        self._towers = Towers(folder)
        self._index, self._pictures, self._catalogs = index, pictures, catalogs
        self._finder, self._lock, self._closing = Finder(), threading.Lock(), threading.Event()
        cache.mkdir(parents=True, exist_ok=True)
        self._file = cache / f"text-{self._towers.id}.sqlite"
        self._places: dict[str, int] = {}  # key -> row of the vectors
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
        try:
            with sqlite3.connect(self._file) as db:
                db.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (file TEXT PRIMARY KEY, mtime_ns INTEGER, "
                    "size INTEGER, vector BLOB) WITHOUT ROWID"
                )
                seen = -1
                while not self._closing.is_set():
                    if (rows := len(self._index)) != seen:
                        self._look(db)
                        seen = rows
                    self._closing.wait(LOOK_SECONDS)
            db.close()
        except Exception:
            LOG.exception("pictures cannot be read for the search by text")

    def _look(self, db: sqlite3.Connection) -> None:
        """Take up the vectors of all rows: those that are stored, then those of new pictures."""
        new: list[tuple[Row, Path]] = []
        for row in self._index.items():
            if self._closing.is_set():
                return
            if row.key in self._places:
                continue
            file = self._pictures.file(picture_name(row))
            if file is None:
                continue
            stored = db.execute(
                "SELECT vector FROM vectors WHERE file = ? AND mtime_ns = ? AND size = ?",
                _stamp(file),
            ).fetchone()
            if stored is None:
                new.append((row, file))
            elif stored[0]:
                self._take(row.key, np.frombuffer(stored[0], np.float16))
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
                images.append(decode(file, limits=Limits(), at_least=self._towers.size))
                readable.append((row, file))
            except UnreadableImage:
                with suppress(OSError):
                    _store(db, file, b"")
        if not images:
            return
        with self._lock:
            vectors = self._towers.pictures(images).astype(np.float16)
        for (row, file), vector in zip(readable, vectors, strict=True):
            with suppress(OSError):
                _store(db, file, vector.tobytes())
            self._take(row.key, vector)
        db.commit()

    def _take(self, key: str, vector: Half) -> None:
        with self._lock:
            row = len(self._keys)
            if row >= len(self._vectors):
                larger = np.empty((max(1024, 2 * row), len(vector)), np.float16)
                if row:
                    larger[:row] = self._vectors[:row]
                self._vectors = larger
            self._vectors[row] = vector
            self._places[key] = row
            self._keys.append(key)


def _stamp(file: Path) -> tuple[str, int, int]:
    state = file.stat()
    return str(file), state.st_mtime_ns, state.st_size


def _store(db: sqlite3.Connection, file: Path, vector: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", (*_stamp(file), vector))


def _batches(rows: Sequence[tuple[Row, Path]]) -> Iterator[list[tuple[Row, Path]]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, BATCH)):
        yield batch
