"""A bounded LRU cache of small files, written atomically."""

import os
import threading
from contextlib import suppress
from pathlib import Path

from ddh._core.atomic import write_atomic

KEPT_FRACTION = 0.8  # of the bound, after an eviction


class DiskCache:
    """Bytes by name (hexadecimal digits) in one folder, at most about `max_bytes` in all.

    A folder that cannot be written caches nothing and raises nothing. Safe for threads, and for
    several services that share the folder: each bounds what it sees.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        self._bytes: int | None = None  # not counted yet

    def get(self, name: str) -> bytes | None:
        """The bytes of a name, None where they are not cached."""
        path = self._path(name)
        with suppress(OSError):
            os.utime(path)  # most recently used
            return path.read_bytes()
        return None

    def put(self, name: str, content: bytes) -> None:
        """Cache bytes under a name."""
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
        except OSError:
            return
        with self._lock:
            if self._bytes is None:
                self._bytes = self._evict(self._max_bytes)
            else:
                self._bytes += len(content)
            if self._bytes > self._max_bytes:
                self._bytes = self._evict(KEPT_FRACTION * self._max_bytes)

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name[2:]

    def _evict(self, limit: float) -> int:
        """Delete the least recently used files beyond a limit; the bytes that are left."""
        files = []  # (time of last use, bytes, path)
        for path in self.folder.glob("??/*"):
            with suppress(OSError):
                state = path.stat()
                files.append((state.st_mtime, state.st_size, path))
        left = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if left <= limit:
                break
            with suppress(OSError):
                path.unlink()
            left -= size
        return left
