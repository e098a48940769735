"""A write-ahead journal of file actions: JSON lines that are on the disk before their steps."""

import json
import os
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ddh._core.errors import DDHError, InputError
from ddh._core.jobs import jobs_folder

VERSION = 1
Entry = dict[str, Any]


def new_journal() -> Path:
    """A path for a new journal in the user's state folder."""
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return jobs_folder().with_name("journals") / f"dedup-{now}-{secrets.token_hex(2)}.jsonl"


class Journal:
    """Appends entries to a new file, or to the journal of an action that is undone."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        try:
            make_folders(path.parent)
            self._stream = path.open("ab" if resume else "xb")
        except FileExistsError:
            raise InputError(f"{path} is there already: give another --journal") from None
        except OSError as error:
            raise self._failed(error) from error
        if resume:
            self._append(b"")  # ends what a crash may have left of a line
        else:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self.write(ddh="journal", version=VERSION, started=now)
            sync_folder(path.parent)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def write(self, **entry: Any) -> None:
        """Append an entry, and wait until the disk has it."""
        self._append(json.dumps(entry).encode())

    def _append(self, line: bytes) -> None:
        try:
            self._stream.write(line + b"\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> DDHError:
        return DDHError(
            f"the journal {self.path} cannot be written ({error}): nothing more is done"
        )


def read_journal(path: Path) -> list[Entry]:
    """The entries of a journal; the rest of a line that a crash cut off is left out."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"the journal {path} cannot be read: {error.strerror}") from error
    entries: list[Entry] = []
    for line in filter(None, lines):
        with suppress(ValueError):  # its step was never taken
            entries.append(json.loads(line))
    head = entries[0] if entries and isinstance(entries[0], dict) else {}
    if head.get("ddh") != "journal":
        raise InputError(f"{path} is not a journal of `ddh dedup`")
    if head.get("version") != VERSION:
        raise InputError(f"{path} was written by another version of ddh: undo it with that one")
    return entries[1:]


def make_folders(folder: Path) -> None:
    """Create a folder and its parents, each on the disk."""
    if not folder.is_dir():
        make_folders(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
            sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can."""
    if os.name == "nt":  # folders cannot be opened there
        return
    with suppress(OSError):  # folders that cannot be listed, drives that cannot do it
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
