"""The system's trash: files are sent there by send2trash, and found again where it can be read."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

# The trash of freedesktop.org has a documented layout; the others can only be opened by hand.
IS_READABLE = sys.platform not in ("darwin", "win32")


class Trashed(NamedTuple):
    """A file in the trash, and the file that says where it came from."""

    file: Path
    info: Path


def send(path: Path) -> None:
    """Move a file to the trash of its user; OSError where there is none."""
    from send2trash import send2trash

    send2trash(str(path))


class Trash:
    """Finds files in the trash by the paths that they had. Reads each trash once."""

    def __init__(self) -> None:
        self._known: dict[Path, dict[str, list[Trashed]]] = {}

    def find(self, path: Path) -> list[Trashed]:
        """The files in the trash that came from this path."""
        found = []
        for folder, base in _folders(path):
            if folder not in self._known:
                self._known[folder] = _read(folder, base)
            found += self._known[folder].get(_real(path), [])
        return [each for each in found if each.file.is_file()]


def _folders(path: Path) -> Iterator[tuple[Path, Path]]:
    """Where a file of this path may have gone, each with the folder that relative paths start at.

    See the Trash specification of freedesktop.org: the home trash, and two names in the top folder
    of the file's own disk.
    """
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    yield home / "Trash", home
    top = next(each for each in path.parents if each.exists())
    while not top.is_mount():
        top = top.parent
    yield top / ".Trash" / str(os.getuid()), top
    yield top / f".Trash-{os.getuid()}", top


def _read(folder: Path, base: Path) -> dict[str, list[Trashed]]:
    known: dict[str, list[Trashed]] = {}
    infos = sorted((folder / "info").glob("*.trashinfo")) if folder.is_dir() else []
    for info in infos:
        origin = _origin(info)
        if origin is not None:
            trashed = Trashed(folder / "files" / info.stem, info)
            known.setdefault(_real(base / origin), []).append(trashed)
    return known


def _origin(info: Path) -> Path | None:
    try:
        lines = info.read_bytes().splitlines()
    except OSError:
        return None
    paths = (line.removeprefix(b"Path=") for line in lines if line.startswith(b"Path="))
    path = next(paths, None)
    return None if path is None else Path(os.fsdecode(unquote_to_bytes(path)))


def _real(path: Path) -> str:
    """A path with the links in its folder resolved."""
    return str(Path(os.path.realpath(path.parent)) / path.name)
