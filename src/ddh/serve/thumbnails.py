"""Thumbnails: pictures decoded within limits and always re-encoded as JPEG.

Everyday formats are decoded here; all others, whose libraries are many and less tried, in processes
of their own with a deadline.
"""

import hashlib
from pathlib import Path
from queue import SimpleQueue

from ddh.images.decoding import DEFAULT_LIMITS
from ddh.images.isolated import IsolatedThumbnails
from ddh.images.thumbnail import is_plain, thumbnail_jpeg
from ddh.serve.disk_cache import DiskCache

LARGE = 1600  # longer side of `/pictures`, which is not cached: they are viewed one at a time
QUALITY = {160: 80, 320: 82, 640: 85, LARGE: 88}
VERSION = "1"  # change it when the same file would give other bytes


def thumbnail_tag(file: Path, side: int) -> str:
    """A tag of a thumbnail and of its file's state; raises OSError where there is no file."""
    state = file.stat()
    text = f"{VERSION}\0{file}\0{state.st_mtime_ns}\0{state.st_size}\0{side}"
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


class Thumbnails:
    """Thumbnails of files, most of them from the cache. For as many threads as `processes`."""

    def __init__(self, cache: DiskCache, seconds: float, processes: int) -> None:
        self._cache = cache
        self._all = [IsolatedThumbnails(DEFAULT_LIMITS, seconds) for _ in range(processes)]
        self._free: SimpleQueue[IsolatedThumbnails] = SimpleQueue()
        for each in self._all:
            self._free.put(each)

    def jpeg(self, tag: str, file: Path, side: int) -> bytes:
        """The thumbnail of a tag; raises `UnreadableImage`."""
        content = None if side == LARGE else self._cache.get(tag)
        if content is None:
            content = self._make(file, side)
            if side != LARGE:
                self._cache.put(tag, content)
        return content

    def _make(self, file: Path, side: int) -> bytes:
        if is_plain(file):
            return thumbnail_jpeg(file, side, QUALITY[side], name=file.name)
        process = self._free.get()
        try:
            return process.jpeg(file.read_bytes(), file.name, side, QUALITY[side])
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End the processes."""
        for each in self._all:
            each.close()
