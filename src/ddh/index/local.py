"""The default engine: an index in a folder of its own, on this machine."""

import json
import operator
import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import DDHError, InputError
from ddh.codes import Neighbours, code_bytes
from ddh.index import local_store, scan
from ddh.index.base import Index
from ddh.index.features import Stored
from ddh.index.filters import Filter, Scalar
from ddh.index.header import IndexHeader, OpenOptions
from ddh.index.local_store import ROWS_NAME, LocalStore, Snapshot, Write, connect, plain_errors
from ddh.index.ranking import Ranking, Scores, as_optional
from ddh.index.rows import Codes, Columns, Hit, Row, read_metadata, read_stamp

FETCHED_ROWS = 4096
COLUMNS = "key, code, path, mtime_ns, size, digest, metadata"
SET_SETTING = "INSERT OR REPLACE INTO settings VALUES (?, ?)"


class LocalIndex(Index):
    """Rows in SQLite, codes in a memory-mapped page file; see `local_store` for what they promise.

    Resident memory is about that of the codes once they have been searched.
    """

    engine = "local"

    def __init__(self, location: str, options: OpenOptions) -> None:
        folder = Path(location).absolute()  # the working directory may change later
        self.location = str(folder)
        self.header = read_header(folder) or create(folder, options.new_header(location))
        options.check(location, self.header)
        self._store = self._open_store()
        self._lists: scan.Lists | None = None
        with self._store.reading() as snapshot:
            generation = snapshot.generation
        self._store.drop_other_pages(generation)

    def _open_store(self) -> LocalStore:
        return LocalStore(Path(self.location), code_bytes(self.bits), self.header.as_text())

    # -- writing -----------------------------------------------------------------------------

    def _add(self, rows: Columns) -> None:
        try:
            with self._store.writing() as write:
                self._insert(write.append(rows.codes), rows)
        except sqlite3.IntegrityError as error:
            with self._store.reading():
                existing = [key for (key,) in self._among("SELECT key", "key", rows.keys)]
            if not existing:
                raise self._damaged(str(error)) from error
            raise self._refuse_existing(existing) from error

    def _upsert(self, rows: Columns) -> int:
        try:
            with self._store.writing() as write:
                replaced = self._remove(write, rows.keys)
                self._insert(write.append(rows.codes), rows)
        except sqlite3.IntegrityError as error:
            raise self._damaged(str(error)) from error
        return replaced

    def _delete(self, keys: list[str]) -> int:
        with self._store.writing() as write:
            return self._remove(write, keys)

    def _remove(self, write: Write, keys: list[str]) -> int:
        ids = [row_id for (row_id,) in self._among("SELECT id", "key", keys)]
        self._among("DELETE", "id", ids)
        if self.header.features:
            self._among("DELETE", "id", ids, table="features")
        write.mark_deleted(ids)
        return len(ids)

    def _insert(self, ids: range, rows: Columns) -> None:
        stamps = zip(*(stamp or (None, None, None) for stamp in rows.stamps), strict=True)
        codes, others = local_store.pack_blobs(rows.codes), (rows.paths, *stamps, rows.metadata)
        whole = codes
        if rows.features is not None:
            stored = local_store.pack_blobs(rows.features.view(np.uint8))
            whole = list(map(operator.add, codes, stored))
        checksums = local_store.row_checksums(whole, rows.keys, *others)
        local_store.keep_checksums(self._store.db)
        names = f"id, {COLUMNS}, checksum".split(", ")
        values = (ids, rows.keys, codes, *others, checksums)
        columns: dict[str, Sequence[Any]] = {
            name: column
            for name, column in zip(names, values, strict=True)
            if any(value is not None for value in column)  # each column costs binding time
        }
        local_store.insert_columns(self._store.db, "rows", columns)
        if rows.features is not None:
            local_store.insert_columns(self._store.db, "features", {"id": ids, "value": stored})

    def _among(
        self, what: str, column: str, values: Iterable[str | int], table: str = "rows"
    ) -> sqlite3.Cursor:
        return self._store.db.execute(
            f"{what} FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))",
            (json.dumps(list(values)),),
        )

    # -- searching ---------------------------------------------------------------------------

    def _search(
        self, queries: Codes, k: int, offset: int, only: Filter, approximate: bool
    ) -> list[list[Hit]]:
        with self._store.reading() as snapshot:
            excluded = self._excluded(snapshot, only)
            lists = self._current_lists(snapshot) if approximate else None
            found = scan.nearest(queries, snapshot.codes, offset + k, excluded, lists)
            page = (column[:, offset:] for column in found)
            return self._hits(snapshot, list(map(Neighbours, *page)))

    def _search_ranked(
        self,
        queries: Codes,
        k: int,
        offset: int,
        only: Filter,
        approximate: bool,
        ranking: Ranking,
    ) -> list[list[Hit]]:
        """As in the base class, but no row is read that is not an answer."""
        with self._store.reading() as snapshot:
            excluded, depth = self._excluded(snapshot, only), ranking.depth(offset + k)
            lists = self._current_lists(snapshot) if approximate else None
            found = scan.nearest(queries, snapshot.codes, depth, excluded, lists)
            order, scores = ranking.order(
                snapshot.codes[found.indices],
                lambda first: self._slot_features(np.take_along_axis(found.indices, first, axis=1)),
            )
            page = slice(offset, offset + k)
            best = [np.take_along_axis(column, order[:, page], axis=1) for column in found]
            return self._hits(snapshot, list(map(Neighbours, *best)), scores[:, page])

    def _search_radius(self, queries: Codes, radius: int, only: Filter) -> list[list[Hit]]:
        with self._store.reading() as snapshot:
            found = scan.within(queries, snapshot.codes, radius, self._excluded(snapshot, only))
            return self._hits(snapshot, found)

    def _current_lists(self, snapshot: Snapshot) -> scan.Lists:
        """Lists of the codes, made when they are first asked for and when many rows are new."""
        if self._lists is None or not self._lists.fits(snapshot.generation, snapshot.slots):
            self._lists = scan.Lists(snapshot.generation, snapshot.codes)
        return self._lists

    def _excluded(self, snapshot: Snapshot, only: Filter) -> scan.Tombstones:
        if not only:
            return snapshot.deleted
        return scan.Tombstones.of_all_but(self._slots(snapshot, only), snapshot.slots)

    def _slots(self, snapshot: Snapshot, only: Filter) -> scan.Slots:
        condition, values = _condition(only)
        found = self._store.db.execute(f"SELECT id FROM rows WHERE {condition} ORDER BY id", values)
        slots = np.fromiter((row_id for (row_id,) in found), np.int64) - 1
        if len(slots) and not 0 <= slots[0] <= slots[-1] < snapshot.slots:
            raise self._damaged("rows have no slot")
        return slots

    def _hits(
        self, snapshot: Snapshot, answers: list[Neighbours], scores: Scores | None = None
    ) -> list[list[Hit]]:
        slots = [answer.indices for answer in answers]
        ids = (np.unique(np.concatenate(slots)) + 1).tolist() if slots else []
        found = self._among("SELECT id, key, path, metadata", "id", ids)
        rows = {row_id - 1: columns for row_id, *columns in found}
        if len(rows) < len(ids):
            raise self._damaged("rows are missing")
        hits = []
        for query, (distances, indices) in enumerate(answers):
            scored = [None] * len(indices) if scores is None else as_optional(scores[query])
            codes = snapshot.codes[indices]
            near = zip(distances.tolist(), indices.tolist(), codes, scored, strict=True)
            hits.append(
                [
                    Hit(key, distance, path, self._metadata(metadata), code, score)
                    for distance, slot, code, score in near
                    for key, path, metadata in [rows[slot]]
                ]
            )
        return hits

    def _slot_features(self, slots: scan.Slots) -> NDArray[np.int8]:
        """The stored features of slots, (..., components)."""
        unique, place = np.unique(slots, return_inverse=True)
        found = self._among("SELECT id, value", "id", (unique + 1).tolist(), "features").fetchall()
        stored = np.zeros((len(unique), self.header.features), np.int8)
        if found:
            at = np.searchsorted(unique, np.array([row_id for row_id, _ in found]) - 1)
            values = b"".join(self._sound_features(value) for _, value in found)
            stored[at] = np.frombuffer(values, np.int8).reshape(len(at), -1)
        return stored[place.reshape(slots.shape)]

    def _features(self, keys: list[str]) -> Iterable[tuple[str, bytes]]:
        with self._store.reading():
            found = self._among("SELECT key, value", "key", keys, "rows JOIN features USING (id)")
            return [(key, self._sound_features(value)) for key, value in found]

    def _each_feature(self) -> Iterator[bytes]:
        with self._store.reading():
            found = self._store.db.execute("SELECT value FROM features ORDER BY id")
            yield from (self._sound_features(value) for (value,) in found)

    def _sound_features(self, value: Any) -> bytes:
        if type(value) is not bytes or len(value) != self.header.features:
            raise self._damaged("a row has features of another length")
        return value

    def _recode(
        self, header: IndexHeader, settings: dict[str, str], encode: Callable[[Stored], Codes]
    ) -> None:
        def encoded(blobs: list[bytes]) -> Codes:
            return encode(np.frombuffer(b"".join(blobs), np.int8).reshape(len(blobs), -1))

        with self._store.writing() as write:
            generation = write.recode(header.as_text(), encoded)
            self._store.db.executemany(SET_SETTING, settings.items())
        self._take_over(header)
        self._store.drop_other_pages(generation)

    def _present_header(self) -> IndexHeader | None:
        return read_header(Path(self.location))

    def _take_over(self, header: IndexHeader) -> None:
        former, self.header = self._store, header
        self._store, self._lists = self._open_store(), None
        former.close()

    # -- reading rows ------------------------------------------------------------------------

    def _pick(self, only: Filter, choose: Callable[[Codes], scan.Slots]) -> list[Row]:
        with self._store.reading() as snapshot:
            live = [np.empty(0, np.int64), *snapshot.deleted.live()]
            slots = self._slots(snapshot, only) if only else np.concatenate(live)
            chosen = slots[choose(snapshot.codes[slots])] + 1
            found = self._among(f"SELECT id, {COLUMNS}", "id", chosen.tolist())
            rows = {row_id: self._row(columns) for row_id, *columns in found}
        if len(rows) < len(chosen):
            raise self._damaged("rows are missing")
        return [rows[row_id] for row_id in chosen.tolist()]

    def _get(self, keys: list[str]) -> list[Row]:
        with self._store.reading():
            return [self._row(found) for found in self._among(f"SELECT {COLUMNS}", "key", keys)]

    def _row(self, columns: Any) -> Row:
        key, code, path, mtime_ns, size, digest, metadata = columns
        packed = self._store.unpack([code])[0]
        stamp = read_stamp(mtime_ns, size, digest)
        return Row(key, packed, path, stamp, self._metadata(metadata))

    def _metadata(self, stored: str | None) -> dict[str, Any]:
        try:
            return read_metadata(stored)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._damaged("metadata that is no JSON") from error

    def _damaged(self, reason: str) -> DDHError:
        return local_store.damaged(Path(self.location), reason)

    def _items(self, only: Filter, after: str | None) -> Iterator[Row]:
        condition, values = _condition(only)
        if after is not None:
            condition += " AND id > (SELECT id FROM rows WHERE key = ?)"
            values.append(after)
        with self._store.reading():
            pass  # or an error, where the rows have other codes now
        folder = Path(self.location)
        # a connection of its own: one view from first to last
        with plain_errors(folder), closing(connect(folder / ROWS_NAME)) as db:
            found = db.execute(f"SELECT {COLUMNS} FROM rows WHERE {condition} ORDER BY id", values)
            while page := found.fetchmany(FETCHED_ROWS):
                yield from map(self._row, page)

    def __len__(self) -> int:
        with self._store.reading() as snapshot:
            return snapshot.live

    # -- the index itself --------------------------------------------------------------------

    def settings(self) -> dict[str, str]:
        with self._store.reading():
            return dict(self._store.db.execute("SELECT name, value FROM settings"))

    def set_setting(self, **settings: str) -> None:
        with self._store.writing():
            self._store.db.executemany(SET_SETTING, settings.items())

    def _storage(self) -> tuple[int, int | None, dict[str, str]]:
        with self._store.reading() as snapshot:
            disk_bytes = sum(file.stat().st_size for file in Path(self.location).iterdir())
            pages = self._store.pages(snapshot.generation).path.name
            details = {"page file": pages}
            if self._lists is not None:
                details["approximate"] = f"recall {self._lists.index.measured_recall:.4f} measured"
            return snapshot.deleted.dead, disk_bytes, details

    def compact(self) -> None:
        """Number the rows anew without gaps, write a new page file, and shrink the database."""
        try:
            with self._store.writing() as write:
                snapshot = write.snapshot
                generation = write.renumber() if snapshot.deleted.dead else snapshot.generation
        except sqlite3.IntegrityError as error:
            raise self._damaged(str(error)) from error
        self._store.drop_other_pages(generation)
        self._store.shrink()

    def close(self) -> None:
        self._lists = None
        self._store.close()


def read_header(folder: Path) -> IndexHeader | None:
    """What the index in this folder is; None where there is no index."""
    if folder.is_file():
        raise InputError(f"{folder} is a file; a local index is a folder, choose another name")
    if not (folder / ROWS_NAME).is_file():
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(
                f"{folder} is a folder with other things in it, not an index: choose another name "
                f"(`ddh add {shlex.quote(str(folder))}` makes pictures ready to be searched)"
            )
        return None
    with plain_errors(folder), closing(connect(folder / ROWS_NAME)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'facts'").fetchone():
            return None
        facts = dict(db.execute("SELECT name, value FROM facts"))
    try:
        return IndexHeader.from_text(facts)
    except (KeyError, TypeError, ValueError) as error:
        raise local_store.damaged(folder, f"its facts are {facts}") from error


def create(folder: Path, header: IndexHeader) -> IndexHeader:
    """Make an empty index, and say what is there then: another process may have been faster."""
    folder.mkdir(parents=True, exist_ok=True)
    with plain_errors(folder), closing(connect(folder / ROWS_NAME)) as db:
        local_store.use_write_ahead_log(db)
        db.execute("BEGIN IMMEDIATE")
        for statement in local_store.SCHEMA:
            db.execute(statement)
        if header.features:
            db.execute(local_store.FEATURES_SCHEMA)
        if not db.execute("SELECT 1 FROM state").fetchone():
            db.executemany("INSERT INTO facts VALUES (?, ?)", header.as_text().items())
            db.execute("INSERT INTO state VALUES (1, 1, 0, 0)")
        db.execute("COMMIT")
        return IndexHeader.from_text(dict(db.execute("SELECT name, value FROM facts")))


def _condition(only: Filter) -> tuple[str, list[Scalar]]:
    """The filter in SQL, with the values of its question marks."""
    parts, values = ["1"], list[Scalar]()
    for name, value in only.equal:
        at = f'$."{name}"'
        if isinstance(value, bool):
            parts.append("json_type(metadata, ?) = ?")
            values += [at, "true" if value else "false"]
        else:
            types = "('text')" if isinstance(value, str) else "('integer', 'real')"
            parts.append(f"json_type(metadata, ?) IN {types} AND json_extract(metadata, ?) = ?")
            values += [at, at, value]
    if only.folder:
        parts.append("path >= ? AND path < ?")
        values.extend(only.folder)
    return " AND ".join(parts), values
