"""Fingerprints of files that have not changed, in SQLite: a second search reads only new files."""

import json
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from ddh._core.errors import DDHWarning
from ddh._core.threads import thread_imap
from ddh.duplicates.fingerprints import CODE_BYTES, Fingerprint, fingerprint
from ddh.duplicates.results import Picture, Skipped

VERSION = 3  # of the fingerprints and of how they are stored
WRITTEN_AT_ONCE = 500
POINT_BYTES = 16


def read_fingerprints(files: list[Path], cache: Path | None) -> Iterator[Fingerprint | Skipped]:
    """The fingerprint of each file, in order, or why it is skipped; `cache` is a file, made here.

    A cached fingerprint is used if the size and the time of the file are those that it was made of.
    A cache that cannot be read or written is done without.
    """
    if cache is None:
        yield from thread_imap(fingerprint, files)
        return
    known: dict[Path, Fingerprint] = {}
    with ExitStack() as opened:
        try:
            database = opened.enter_context(closing(_open(cache)))
            known = dict(_known(database, files))
        except (OSError, sqlite3.Error) as error:
            if type(error) is sqlite3.DatabaseError:
                warnings.warn(
                    f"the cache {cache} cannot be used ({error}): all files are read again; "
                    "delete it, and the next search makes a new one",
                    DDHWarning,
                    stacklevel=2,
                )
            yield from thread_imap(fingerprint, files)
            return
        made: list[Fingerprint] = []
        new = (file for file in files if file not in known)
        reading = thread_imap(fingerprint, new)
        for file in files:
            found = known[file] if file in known else next(reading)
            if file not in known and isinstance(found, Fingerprint):
                made.append(found)
            if len(made) == WRITTEN_AT_ONCE:
                _write(database, made)
                made = []
            yield found
        _write(database, made)


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=5)
    if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        database.execute("DROP TABLE IF EXISTS fingerprints")
        database.execute(f"PRAGMA user_version = {VERSION}")
    database.execute(
        "CREATE TABLE IF NOT EXISTS fingerprints (path BLOB PRIMARY KEY, head TEXT, data BLOB)"
    )
    database.commit()
    return database


def _key(path: Path) -> bytes:
    return bytes(path.absolute())


def _known(
    database: sqlite3.Connection, files: Iterable[Path]
) -> Iterator[tuple[Path, Fingerprint]]:
    query = "SELECT head, data FROM fingerprints WHERE path = ?"
    for file in files:
        row = database.execute(query, (_key(file),)).fetchone()
        try:
            state = file.stat()
            found = _unpack(file, *row) if row else None
        except (OSError, ValueError, KeyError, TypeError):  # gone, or written by something else
            continue
        if found and (found.picture.bytes, found.picture.mtime_ns) == (
            state.st_size, state.st_mtime_ns
        ):  # fmt: skip
            yield file, found


def _write(database: sqlite3.Connection, prints: list[Fingerprint]) -> None:
    try:
        with database:
            database.executemany(
                "INSERT OR REPLACE INTO fingerprints VALUES (?, ?, ?)", map(_pack, prints)
            )
    except sqlite3.Error:  # a full disk, or another search that writes: only speed is lost
        return


def _pack(one: Fingerprint) -> tuple[bytes, str, bytes]:
    picture = one.picture
    head = {
        "picture": [picture.width, picture.height, picture.bytes, picture.mtime_ns, picture.digest,
                    picture.format, picture.has_colour, picture.has_camera, picture.is_animated],
        "box": one.box, "codes": len(one.codes), "points": len(one.points),
    }  # fmt: skip
    points = one.points.astype("<f4")
    return _key(picture.path), json.dumps(head), b"".join(
        part.tobytes() for part in (one.codes, points, one.features)
    )  # fmt: skip


def _unpack(path: Path, head: str, data: bytes) -> Fingerprint:
    found = json.loads(head)
    codes, points = CODE_BYTES * int(found["codes"]), POINT_BYTES * int(found["points"])
    left, top, right, bottom = found["box"]
    return Fingerprint(
        Picture(path, *found["picture"]),
        np.frombuffer(data[:codes], np.uint8).reshape(-1, CODE_BYTES),
        np.frombuffer(data[codes : codes + points], "<f4").reshape(-1, 4).astype(np.float32),
        np.frombuffer(data[codes + points :], np.uint8).reshape(int(found["points"]), CODE_BYTES),
        (left, top, right, bottom),
    )
