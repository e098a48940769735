"""Check the files of a local index, and rebuild the index from the rows that are sound."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ddh.index
from ddh._core.errors import DDHError, InputError
from ddh._core.progress import bar
from ddh.codes import code_bytes
from ddh.index import local, local_store
from ddh.index.features import FeatureTransform
from ddh.index.header import IndexHeader
from ddh.index.pages import BLOCK_ROWS, PageFile, block_count, unsound_blocks
from ddh.index.rows import Codes, check_text, read_metadata, read_stamp

# What SQLite keeps apart from the rows.
_KEYS = "SELECT id, key FROM rows INDEXED BY sqlite_autoindex_rows_1"
_PATHS = "SELECT id, path FROM rows INDEXED BY rows_path WHERE path IS NOT NULL"


@dataclass
class IndexCheck:
    """What `check` found.

    Attributes
    ----------
    rows : int
        Sound rows.
    unchecked : int
        Those without a checksum, written by version 0.1.
    problems : list of str
        What is wrong; empty for a sound index.
    lost : list of str
        Keys of rows that cannot be recovered.
    damaged_copy : str or None
        Where a repair has put the damaged index.
    """

    location: str
    rows: int = 0
    unchecked: int = 0
    problems: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    damaged_copy: str | None = None


def check(location: str | os.PathLike[str], *, repair: bool = False) -> IndexCheck:
    """Check every row and page of a local index.

    Parameters
    ----------
    location : str or path
        Folder of the index; nobody may write to it meanwhile.
    repair : bool
        Rebuild a damaged index from its sound rows. The damaged one is kept beside it, with
        `.damaged` after its name.

    Returns
    -------
    IndexCheck
    """
    folder = Path(location).absolute()
    try:
        header = local.read_header(folder)
    except InputError:
        raise
    except DDHError as error:
        raise DDHError(f"{folder} is beyond repair, restore it from a copy: {error}") from error
    if header is None:
        raise InputError(f"{folder} is not a local index; databases have checks of their own")
    found = IndexCheck(str(folder))
    copy, new = (folder.with_name(folder.name + suffix) for suffix in (".damaged", ".repaired"))
    if repair and (in_the_way := [path for path in (copy, new) if path.exists()]):
        raise InputError(f"{in_the_way[0]} is in the way of a repair: move or delete it")
    width = code_bytes(header.bits)
    with closing(local_store.connect(folder / local_store.ROWS_NAME)) as db:
        examined = _Examination(db, folder, width, header.features, found)
        for _ in examined.batches():
            pass
        if found.problems and repair:
            again = _Examination(db, folder, width, header.features, IndexCheck(""))
            try:
                _rebuild(new, header, again)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise
    if found.problems and repair:
        folder.rename(copy)
        new.rename(folder)
        found.damaged_copy = str(copy)
    return found


def _rebuild(folder: Path, header: IndexHeader, examined: "_Examination") -> None:
    """A new index of the sound rows."""
    local.create(folder, header)
    with ddh.index.open(folder) as index:
        index.set_setting(**examined.settings())
        for rows in examined.batches():
            if rows and header.features and index.feature_transform is None:
                raise DDHError(
                    "the projection of the stored features is lost, and they mean nothing without "
                    "it: restore the index from a copy, or make it again"
                )
            if rows:
                index.upsert(**_columns(rows))


class _Examination:
    """One look at all rows, with what is found on the way."""

    def __init__(
        self, db: sqlite3.Connection, folder: Path, width: int, components: int, found: IndexCheck
    ) -> None:
        self.db, self.folder, self.width, self.found = db, folder, width, found
        self.components = components  # of the features of a row
        names = [name for _, name, *_ in self._try("PRAGMA table_info(rows)")]
        checksum = "checksum" if "checksum" in names else "NULL"
        value, table = ("value", " LEFT JOIN features USING (id)") if components else ("x''", "")
        columns = f"id, {local.COLUMNS}, {checksum}, {value}"
        self.select = f"SELECT {columns} FROM rows{table} WHERE id BETWEEN ? AND ?"

    def batches(self) -> Iterator[list[tuple[Any, ...]]]:
        """The sound rows in their order: columns, without id and checksum."""
        report = self.found.problems
        report += [text for (text,) in self._try("PRAGMA integrity_check(20)") if text != "ok"]
        if self.components:
            report += self._features()
        state = next(iter(self._try("SELECT generation, slots, live FROM state")), (0, 0, 0))
        generation, slots, live = (v if isinstance(v, int) and v >= 0 else 0 for v in state)
        codes, marks, sound = self._pages(generation, slots)
        keys = {i: key for i, key in self._try(_KEYS) if isinstance(i, int)}
        paths = dict(self._try(_PATHS))
        ids = [slots, *keys, *(v for (v,) in self._try("SELECT max(id) FROM rows") if v)]
        last = min(max(ids), len(marks))  # a damaged id may be any number
        wrong = int(marks[last:].sum())
        with bar("Checking", total=last, unit="row") as progress:
            for start in range(0, last, BLOCK_ROWS):
                page = (
                    codes[start : start + BLOCK_ROWS] if start // BLOCK_ROWS in sound else codes[:0]
                )
                batch = []
                empty = np.ones(min(BLOCK_ROWS, last - start), bool)
                for row_id, *columns in self._read(start + 1, min(last, start + BLOCK_ROWS)):
                    row = self._sound(columns, page[row_id - start - 1 : row_id - start])
                    empty[row_id - start - 1] = False
                    sorted_by = keys.get(row_id), paths.get(row_id)
                    if row is not None and all(
                        copy in (None, value)
                        for copy, value in zip(sorted_by, row[::2], strict=False)
                    ):
                        batch.append(row)
                        keys.pop(row_id, None)
                    elif isinstance(columns[0], str):
                        keys.setdefault(row_id, columns[0])
                self.found.rows += len(batch)
                wrong += int((marks[start : start + len(empty)] != empty).sum())
                yield batch
                progress.update(min(BLOCK_ROWS, last - start))
        self.found.lost = [str(keys[row_id]) for row_id in sorted(keys)]
        if self.found.lost:
            report.append(f"rows that cannot be recovered: {len(self.found.lost)}")
        if wrong:
            report.append(f"deletion marks that do not fit the rows: {wrong}")
        if self.found.rows != live:
            report.append(f"there are {self.found.rows} sound rows, {live} were written")

    def settings(self) -> dict[str, str]:
        """The settings that can be read."""
        found = self._try("SELECT name, value FROM settings")
        return {k: v for k, v in found if isinstance(k, str) and isinstance(v, str)}

    def _features(self) -> list[str]:
        """What is wrong with the stored features, apart from those of a row."""
        problems = []
        try:
            there = self._try("SELECT 1 FROM features LIMIT 1")
            if there and FeatureTransform.from_settings(self.settings()) is None:
                problems.append("the projection of the stored features is missing")
        except DDHError as error:
            problems.append(str(error))
        strays = self._try("SELECT count(*) FROM features WHERE id NOT IN (SELECT id FROM rows)")
        return problems + [f"features without a row: {n}" for (n,) in strays if n]

    def _try(self, query: str, values: tuple[int, ...] = ()) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        try:
            rows.extend(self.db.execute(query, values))
        except sqlite3.DatabaseError as error:
            self.found.problems.append(f"{local_store.ROWS_NAME}: {error}")
        return rows

    def _pages(self, generation: int, slots: int) -> tuple[Codes, NDArray[np.bool_], set[int]]:
        """The codes of the page file, the deletion marks, and the blocks with their checksums."""
        codes = PageFile(self.folder / f"codes-{generation:06d}.pages", self.width).map(slots)
        stored = self._try("SELECT checksum, deleted FROM blocks ORDER BY block")
        checksums = np.array([v if isinstance(v, int) else -1 for v, _ in stored], np.int64)
        none = bytes(BLOCK_ROWS // 8)
        marks = [v if isinstance(v, bytes) and len(v) == len(none) else none for _, v in stored]
        bits = np.unpackbits(np.frombuffer(b"".join(marks), np.uint8)).astype(bool)
        if len(stored) != block_count(slots) or any(
            v not in (None, m) for (_, v), m in zip(stored, marks, strict=True)
        ):
            self.found.problems.append("the blocks are not those of the rows")
        bad = unsound_blocks(codes, slots, checksums, checksums[:0])
        if bad:
            self.found.problems.append(f"damaged blocks of the page file: {len(bad)}")
        return codes, bits, set(range(len(stored))) - set(bad)

    def _read(self, first: int, last: int) -> list[tuple[Any, ...]]:
        """Rows by id, without those that SQLite cannot read."""
        try:
            return self.db.execute(self.select, (first, last)).fetchall()
        except sqlite3.DatabaseError:
            middle = (first + last) // 2
            return [] if first == last else self._read(first, middle) + self._read(middle + 1, last)

    def _sound(self, columns: list[Any], page: Codes) -> tuple[Any, ...] | None:
        """The row if it is what was written; its code may come from the page file."""
        key, code, *others, checksum, features = columns
        if type(features) is not bytes or len(features) != self.components:
            return None
        copy = page.tobytes() or code
        for candidate in (code, copy) if checksum is not None else (copy,):
            with suppress(TypeError, ValueError, RecursionError):
                whole = [candidate + features]
                right = local_store.row_checksums(whole, [key], *([v] for v in others))[0]
                if len(candidate) == self.width and checksum in (None, right):
                    check_text(key, "a key")
                    read_metadata(others[-1])
                    self.found.unchecked += checksum is None
                    if candidate != code:
                        self.found.problems.append(f"another code than in the page file: {key}")
                    return key, candidate, *others, features
        return None


def _columns(rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Rows as the arguments of `Index.upsert`."""
    return {
        "keys": [row[0] for row in rows],
        "codes": np.array([np.frombuffer(row[1], np.uint8) for row in rows], np.uint8),
        "paths": [row[2] for row in rows],
        "stamps": [read_stamp(*row[3:6]) for row in rows],
        "metadata": [read_metadata(row[6]) for row in rows],
        "features": np.array([np.frombuffer(row[7], np.int8) for row in rows])
        if rows[0][7]
        else None,
    }
