"""A bounded cache of small files: written whole or not at all, the oldest thrown away first."""

import os
import threading
from contextlib import suppress
from pathlib import Path

from ddh._core.atomic import write_atomic

KEPT_SHARE = 0.8  # of the bound, after old files were thrown away


class DiskCache:
    """Bytes by name (hexadecimal digits) in one folder, at most about `most_bytes` in all.

    A folder that cannot be written keeps nothing and harms nobody. Safe for threads, and for
    several services that share the folder: each bounds what it sees.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder, self._most_bytes = folder, most_bytes
        self._lock = threading.Lock()
        self._bytes: int | None = None  # not counted yet

    def get(self, name: str) -> bytes | None:
        """What is kept under a name."""
        path = self._path(name)
        try:
            content = path.read_bytes()
            os.utime(path)  # used just now, so thrown away late
        except OSError:
            return None
        return content

    def put(self, name: str, content: bytes) -> None:
        """Keep something under a name."""
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
        except OSError:
            return
        self._count(len(content))

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name[2:]

    def _count(self, added: int) -> None:
        with self._lock:
            if self._bytes is None:
                self._bytes = sum(size for _, size, _ in self._files())
            else:
                self._bytes += added
            if self._bytes > self._most_bytes:
                self._throw_away()

    def _throw_away(self) -> None:
        files = sorted(self._files())
        left = sum(size for _, size, _ in files)
        for _, size, path in files:
            if left <= KEPT_SHARE * self._most_bytes:
                break
            with suppress(OSError):
                path.unlink()
            left -= size
        self._bytes = left

    def _files(self) -> list[tuple[float, int, Path]]:
        """(time of last use, bytes, path) of every file."""
        found = []
        for path in self.folder.glob("??/*"):
            with suppress(OSError):
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
        return found
