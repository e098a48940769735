"""The files of a local index: rows in SQLite, which is the truth, and their codes in pages.

A write is one SQLite transaction: rows, deletion marks and the checksums of the blocks it
touches become visible together or not at all. The codes go into the page file before the
commit, behind the last committed slot, where no reader looks. So after a crash at any moment
the rows are whole, and a block of the page file either has the checksum that was committed or
is rebuilt from the rows. The row with id i has slot i - 1; ids only grow, and only
`compact` numbers them anew, under a new generation with a page file of its own.
"""

import operator
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import DDHError
from ddh._core.progress import track
from ddh.codes import code_bytes
from ddh.index.pages import (
    BLOCK_ROWS,
    PageFile,
    block_count,
    block_span,
    extend_checksums,
    unsound_blocks,
)
from ddh.index.rows import Codes, recoded
from ddh.index.scan import Slots, Tombstones

ROWS_NAME = "rows.sqlite"
WAIT_SECONDS = 120.0  # for another process that writes
INSERTED_ROWS = 64  # a statement
ATTEMPTS = 5  # to find the page file sound after repairing it
GATHERED_ROWS = 1 << 18  # at once while compacting
RECODED_FACTS = ("bits", "model_id")  # what other codes change

ROWS_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS rows (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, code BLOB NOT NULL, path TEXT,
        mtime_ns INTEGER, size INTEGER, digest TEXT, metadata TEXT, checksum INTEGER)""",
    "CREATE INDEX IF NOT EXISTS rows_path ON rows (path) WHERE path IS NOT NULL",
)
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS state (
        version INTEGER NOT NULL,     -- grows with every write
        generation INTEGER NOT NULL,  -- which page file
        slots INTEGER NOT NULL,       -- used, those of deleted rows included
        live INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS blocks (
        block INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, deleted BLOB)""",
    *ROWS_SCHEMA,
)

FEATURES_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS features (id INTEGER PRIMARY KEY, value BLOB NOT NULL)"
)


@dataclass(frozen=True)
class Snapshot:
    """What one transaction sees."""

    version: int
    generation: int
    slots: int
    live: int
    codes: Codes
    checksums: NDArray[np.int64]
    deleted: Tombstones
    file: tuple[int, int] | None


class LocalStore:
    """Transactions over both files. Readers see the last commit; writers take turns."""

    def __init__(self, folder: Path, width: int, facts: Mapping[str, str] | None = None) -> None:
        self.folder, self.width = folder, width
        self.facts = {name: (facts or {}).get(name) for name in RECODED_FACTS} if facts else None
        self.db = connect(folder / ROWS_NAME)
        self._lock = threading.RLock()
        self._snapshot: Snapshot | None = None

    def close(self) -> None:
        with self._lock:
            self._snapshot = None
            self.db.close()

    def pages(self, generation: int) -> PageFile:
        """The page file of one generation."""
        return PageFile(self.folder / f"codes-{generation:06d}.pages", self.width)

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """A consistent view of rows and codes; damage found on the way is repaired first."""
        with self._lock, plain_errors(self.folder):
            try:
                yield self._begin_reading()
            finally:
                if self.db.in_transaction:
                    self.db.execute("COMMIT")

    def _begin_reading(self) -> Snapshot:
        for _ in range(ATTEMPTS):
            self.db.execute("BEGIN")
            snapshot, bad = self._look()
            if not bad:
                return snapshot
            self.db.execute("ROLLBACK")
            with self.writing():  # which repairs
                pass
        raise DDHError(f"the page file of {self.folder} does not keep what is written to it")

    @contextmanager
    def writing(self) -> Iterator["Write"]:
        """A write transaction; it is on disk when the block ends, and undone if it raises."""
        with self._lock, plain_errors(self.folder):
            try:
                self.db.execute("BEGIN IMMEDIATE")
                snapshot, bad = self._look()
                if bad:
                    self._rebuild(snapshot, bad)
                    snapshot, _ = self._look()
                yield Write(self, snapshot)
                self.db.execute("COMMIT")
            except BaseException:
                self._snapshot = None
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def _look(self) -> tuple[Snapshot, list[int]]:
        """The snapshot of the running transaction, and the blocks that must be rebuilt."""
        state = self.db.execute("SELECT * FROM state").fetchone()
        if state is None or [type(value) for value in state] != [int] * 4:
            raise damaged(self.folder, f"its state is {state}")
        version, generation, slots, live = state
        snapshot = self._snapshot
        if snapshot is not None and snapshot.version == version:
            return snapshot, []
        self._refuse_other_codes()
        stored = self.db.execute("SELECT checksum, deleted FROM blocks ORDER BY block").fetchall()
        marks = [bytes(BLOCK_ROWS // 8) if deleted is None else deleted for _, deleted in stored]
        if (
            not 0 <= live <= slots
            or len(stored) != block_count(slots)
            or any(
                type(checksum) is not int or type(mark) is not bytes or len(mark) != BLOCK_ROWS // 8
                for (checksum, _), mark in zip(stored, marks, strict=True)
            )
        ):
            raise damaged(self.folder, "its blocks are not those of its rows")
        checksums = np.array([checksum for checksum, _ in stored], np.int64)
        pages = self.pages(generation)
        identity, codes = pages.identity(), pages.map(slots)
        same = snapshot is not None and (snapshot.generation, snapshot.file) == (
            generation,
            identity,
        )
        trusted = snapshot.checksums if snapshot is not None and same else checksums[:0]
        bitmap = np.frombuffer(b"".join(marks), np.uint8)
        if np.bitwise_count(bitmap).sum() != slots - live:
            raise damaged(self.folder, "its deletion marks are not those of its rows")
        deleted = Tombstones(bitmap, slots, slots - live)
        found = Snapshot(version, generation, slots, live, codes, checksums, deleted, identity)
        bad = unsound_blocks(codes, slots, checksums, trusted)
        self._snapshot = None if bad else found
        return found, bad

    def _refuse_other_codes(self) -> None:
        """Somebody may have given the rows codes of another model since the index was opened."""
        if self.facts is None:
            return
        now = dict(self.db.execute("SELECT name, value FROM facts"))
        if any(now.get(name) != value for name, value in self.facts.items()):
            raise recoded(self.folder, now.get("model_id"))

    def _rebuild(self, snapshot: Snapshot, bad: list[int]) -> None:
        """Write blocks anew from the rows; slots of deleted rows become zero."""
        pages = self.pages(snapshot.generation)
        for block in track(bad, "Rebuilding pages", unit="block"):
            span = block_span(block, snapshot.slots)
            codes = np.zeros((span.stop - span.start, self.width), np.uint8)
            found = self.db.execute(
                "SELECT id, code FROM rows WHERE id BETWEEN ? AND ?", (span.start + 1, span.stop)
            ).fetchall()
            if found:
                slots = np.array([row_id for row_id, _ in found]) - (span.start + 1)
                codes[slots] = self.unpack([code for _, code in found])
            pages.write(span.start, codes)
            checksum = extend_checksums(0, 0, codes)[0]
            self.db.execute("UPDATE blocks SET checksum = ? WHERE block = ?", (checksum, block))

    def unpack(self, blobs: list[bytes]) -> Codes:
        """Stored codes as (n, width)."""
        if any(type(blob) is not bytes or len(blob) != self.width for blob in blobs):
            raise damaged(self.folder, "a row has a code of another length")
        return np.frombuffer(b"".join(blobs), np.uint8).reshape(-1, self.width)

    def shrink(self) -> None:
        """Give the database's free pages back to the disk, unless somebody is using it now."""
        with self._lock, suppress(sqlite3.OperationalError):
            self.db.execute("VACUUM")
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def drop_other_pages(self, generation: int) -> None:
        """Remove page files of other generations; whoever has an earlier one mapped keeps it.

        A later one is of a compaction: cut off, unless another process holds the lock of writers.
        """
        found = {
            path.stem.removeprefix("codes-"): path for path in self.folder.glob("codes-*.pages")
        }
        others = {path: int(number) for number, path in found.items() if number.isdigit()}
        with self._lock, suppress(sqlite3.OperationalError, OSError):
            for path in [path for path, number in others.items() if number < generation]:
                path.unlink()
            if all(number <= generation for number in others.values()):
                return
            try:
                self.db.execute("PRAGMA busy_timeout = 0")
                self.db.execute("BEGIN IMMEDIATE")
                (now,) = self.db.execute("SELECT generation FROM state").fetchone()
                for path in [path for path, number in others.items() if number > now]:
                    path.unlink()
            finally:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                self.db.execute(f"PRAGMA busy_timeout = {int(1000 * WAIT_SECONDS)}")


class Write:
    """What a write transaction may do to slots; the rows themselves are the caller's part."""

    def __init__(self, store: LocalStore, snapshot: Snapshot) -> None:
        self._store, self._db, self.snapshot = store, store.db, snapshot

    def append(self, codes: Codes) -> range:
        """Put codes into the next slots and return the ids that their rows must have."""
        snapshot = self.snapshot
        tail = int(snapshot.checksums[-1]) if len(snapshot.checksums) else 0
        self._store.pages(snapshot.generation).write(snapshot.slots, codes)
        self._db.executemany(
            "INSERT INTO blocks (block, checksum) VALUES (?, ?) "
            "ON CONFLICT (block) DO UPDATE SET checksum = excluded.checksum",
            extend_checksums(tail, snapshot.slots, codes).items(),
        )
        self._db.execute(
            "UPDATE state SET version = version + 1, slots = slots + ?, live = live + ?",
            (len(codes), len(codes)),
        )
        return range(snapshot.slots + 1, snapshot.slots + len(codes) + 1)

    def mark_deleted(self, ids: list[int]) -> None:
        """Mark the slots of rows that are being deleted."""
        slots: Slots = np.asarray(ids, np.int64) - 1
        blocks = slots // BLOCK_ROWS
        for block in np.unique(blocks).tolist():
            marks = np.unpackbits(self._marks(block))
            marks[slots[blocks == block] - block * BLOCK_ROWS] = 1
            self._db.execute(
                "UPDATE blocks SET deleted = ? WHERE block = ?",
                (np.packbits(marks).tobytes(), block),
            )
        self._db.execute("UPDATE state SET version = version + 1, live = live - ?", (len(ids),))

    def _marks(self, block: int) -> Codes:
        size = BLOCK_ROWS // 8
        return self.snapshot.deleted.bitmap[block * size : (block + 1) * size]

    def renumber(self) -> int:
        """Move all live rows to slots without gaps, in a new page file; the new generation."""
        snapshot, generation = self.snapshot, self.snapshot.generation + 1
        pages = self._store.pages(generation)
        pages.path.unlink(missing_ok=True)  # of a compaction that was cut off
        checksums: dict[int, int] = {}
        slots = 0
        for live in snapshot.deleted.live():
            for start in range(0, len(live), GATHERED_ROWS):
                codes = snapshot.codes[live[start : start + GATHERED_ROWS]]
                pages.write(slots, codes)
                tail = checksums.get(slots // BLOCK_ROWS, 0)
                checksums |= extend_checksums(tail, slots, codes)
                slots += len(codes)
        self._renumber_rows()
        self._db.execute("DELETE FROM blocks")
        self._db.executemany(
            "INSERT INTO blocks (block, checksum) VALUES (?, ?)", checksums.items()
        )
        self._db.execute(
            "UPDATE state SET version = version + 1, generation = ?, slots = ?",
            (generation, slots),
        )
        return generation

    def recode(self, facts: Mapping[str, str], encode: Callable[[list[bytes]], Codes]) -> int:
        """Give all rows new codes, made from their stored features, and note new facts.

        The codes go into a page file of the next generation, which is returned; slots of deleted
        rows become zero.
        """
        snapshot, generation = self.snapshot, self.snapshot.generation + 1
        pages = PageFile(self._store.pages(generation).path, code_bytes(int(facts["bits"])))
        pages.path.unlink(missing_ok=True)  # of an attempt that was cut off
        keep_checksums(self._db)
        blocks = range(block_count(snapshot.slots))
        for block in track(blocks, "Encoding", unit="block"):
            span = block_span(block, snapshot.slots)
            codes = self._recode_rows(span, pages.width, encode)
            pages.write(span.start, codes)
            checksum = extend_checksums(0, 0, codes)[0]
            self._db.execute("UPDATE blocks SET checksum = ? WHERE block = ?", (checksum, block))
        self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
        self._db.execute("UPDATE state SET version = version + 1, generation = ?", (generation,))
        return generation

    def _recode_rows(
        self, span: slice, width: int, encode: Callable[[list[bytes]], Codes]
    ) -> Codes:
        """The new codes of a span of slots, written to their rows."""
        codes = np.zeros((span.stop - span.start, width), np.uint8)
        found = self._db.execute(
            "SELECT id, value, key, path, mtime_ns, size, digest, metadata "
            "FROM rows LEFT JOIN features USING (id) WHERE id BETWEEN ? AND ?",
            (span.start + 1, span.stop),
        ).fetchall()
        if not found:
            return codes
        ids, features, *others = zip(*found, strict=True)
        if None in features:
            raise damaged(self._store.folder, "a row has no features")
        new = encode(list(features))
        codes[np.array(ids) - (span.start + 1)] = new
        blobs = pack_blobs(new)
        checksums = row_checksums(list(map(operator.add, blobs, features)), *others)
        self._db.executemany(
            "UPDATE rows SET code = ?, checksum = ? WHERE id = ?",
            zip(blobs, checksums, ids, strict=True),
        )
        return codes

    def _renumber_rows(self) -> None:
        """Give the rows the ids 1, 2, ... in the order of their old ones."""
        columns = "key, code, path, mtime_ns, size, digest, metadata, checksum"
        keep_checksums(self._db)
        self._db.execute("ALTER TABLE rows RENAME TO old_rows")
        self._db.execute("DROP INDEX rows_path")
        for statement in ROWS_SCHEMA:
            self._db.execute(statement)
        self._db.execute(
            f"INSERT INTO rows (id, {columns}) "
            f"SELECT row_number() OVER (ORDER BY id), {columns} FROM old_rows ORDER BY id"
        )
        if self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'features'").fetchone():
            self._renumber_features()
        self._db.execute("DROP TABLE old_rows")

    def _renumber_features(self) -> None:
        for statement in (
            "ALTER TABLE features RENAME TO old_features",
            FEATURES_SCHEMA,
            "INSERT INTO features SELECT new, value FROM old_features JOIN (SELECT id, "
            "row_number() OVER (ORDER BY id) AS new FROM old_rows) USING (id) ORDER BY new",
            "DROP TABLE old_features",
        ):
            self._db.execute(statement)


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose transactions are begun by hand and flushed to disk at each commit.

    Where nothing can be written, the rows are read as they are: they must not change meanwhile.
    """
    target = path.absolute().as_uri()
    if not os.access(path.parent, os.W_OK):
        log = path.with_name(f"{path.name}-wal")
        left = log.exists() and log.stat().st_size > 0  # rows that `path` does not hold yet
        target += "?mode=ro" if left else "?mode=ro&immutable=1"
    db = sqlite3.connect(
        target, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False, uri=True
    )
    with plain_errors(path.parent):
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA cache_size = -65536")
    return db


def damaged(folder: Path, reason: object) -> DDHError:
    """The error for files that hold what no writer has put there."""
    return DDHError(
        f"the index {folder} is damaged ({reason}): try `ddh index check {folder} --repair`, or "
        "restore it from a copy"
    )


@contextmanager
def plain_errors(folder: Path) -> Iterator[None]:
    """What SQLite and the disk say, as an error for people; broken rules of rows pass through."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.ProgrammingError as error:
        raise DDHError(f"the index {folder} is closed: open it again") from error
    except (sqlite3.OperationalError, OSError) as error:
        if any(sign in str(error) for sign in ("no such table", "no such column", "to UTF-8")):
            raise damaged(folder, error) from error
        raise DDHError(f"the index {folder} cannot be used now: {error}") from error
    except sqlite3.DatabaseError as error:
        raise damaged(folder, f"{ROWS_NAME} is not a sound SQLite database: {error}") from error


def use_write_ahead_log(db: sqlite3.Connection) -> None:
    """Let readers go on while somebody writes; kept in the file from then on."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:  # SQLite does not wait here for another process
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def keep_checksums(db: sqlite3.Connection) -> None:
    """Give the rows of an index of version 0.1 the column for their checksums, empty so far."""
    if "checksum" not in {name for _, name, *_ in db.execute("PRAGMA table_info(rows)")}:
        db.execute("ALTER TABLE rows ADD COLUMN checksum INTEGER")


def row_checksums(codes: Sequence[bytes], *others: Sequence[Any]) -> list[int]:
    """CRC-32 of what each row holds, column by column; one without any value costs nothing.

    Stored features follow the code of their row.
    """
    checksums = list(map(zlib.crc32, codes))
    for number, column in enumerate(others):
        if any(value is not None for value in column):
            checksums = [
                before if value is None else zlib.crc32(f"{number}:{value}".encode(), before)
                for value, before in zip(column, checksums, strict=True)
            ]
    return checksums


def insert_columns(
    db: sqlite3.Connection, table: str, columns: Mapping[str, Sequence[Any]]
) -> None:
    """Insert rows given by columns, many rows a statement: that halves the time of one by one."""
    values = list(chain.from_iterable(zip(*columns.values(), strict=True)))
    row = f"({', '.join('?' * len(columns))})"
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
    step = INSERTED_ROWS * len(columns)
    whole = len(values) // step * step
    db.executemany(
        statement + ", ".join([row] * INSERTED_ROWS),
        (values[start : start + step] for start in range(0, whole, step)),
    )
    db.executemany(
        statement + row,
        (values[start : start + len(columns)] for start in range(whole, len(values), len(columns))),
    )


def pack_blobs(codes: Codes) -> list[bytes]:
    """Codes as one bytes object a row, trailing zero bytes included."""
    return np.ascontiguousarray(codes).view(f"V{codes.shape[1]}").ravel().tolist()
