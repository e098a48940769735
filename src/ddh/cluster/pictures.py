"""The pictures of a job, and those of a URL as a source that fetches ahead of whoever decodes."""

import hashlib
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from PIL import Image

from ddh.images import ImageSource, UnreadableImage, decode
from ddh.images.decoding import DEFAULT_LIMITS, Limits
from ddh.index.collection import DIGEST_BYTES

FETCHES = 32  # at a time, where the file system answers several at once
AHEAD_PICTURES, AHEAD_BYTES = 64, 128 << 20

# What cannot be read at a second attempt either; anything else (a timeout, a lost connection, an
# overloaded server) is raised, so that the batch is tried again and no good picture is skipped.
FOR_GOOD = (FileNotFoundError, PermissionError, IsADirectoryError)


class Picture(NamedTuple):
    """A picture file: the key of its row, where it lies, and what tells whether it has changed."""

    key: str
    path: str
    size: int
    mtime_ns: int


class RemotePictures(ImageSource):
    """Pictures of an fsspec file system, each to be read once, roughly in order.

    Memory: the files of the next 64 pictures, or as many as make 128 MB.
    """

    def __init__(
        self, fs: Any, pictures: Sequence[Picture], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self.digests: dict[int, str] = {}
        self._fs, self._pictures, self._limits = fs, pictures, limits
        self._names = tuple(picture.key for picture in pictures)
        # Only file systems made for it may be called by several threads (an archive may not).
        self._pool = ThreadPoolExecutor(FETCHES if fs.async_impl else 1, "ddh-fetch")
        self._lock = threading.Lock()
        self._fetching: dict[int, Future[bytes]] = {}
        self._next, self._bytes_ahead = 0, 0
        self._fetch_ahead(0)  # while the batch before is still being encoded

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def read(self, i: int) -> Image.Image:
        return decode(self._content(i), name=self._names[i], limits=self._limits)

    def read_reduced(self, i: int, at_least: int) -> Image.Image:
        content = self._content(i)
        return decode(content, name=self._names[i], limits=self._limits, at_least=at_least)

    def take(self, indices: Iterable[int]) -> "RemotePictures":
        return RemotePictures(self._fs, [self._pictures[i] for i in indices], self._limits)

    def close(self) -> None:
        """Stop fetching."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _content(self, i: int) -> bytes:
        with self._lock:
            self._fetch_ahead(i)
            fetched = self._fetching.pop(i)
        try:
            content = fetched.result()
        except FOR_GOOD as error:
            reason = error.strerror or type(error).__name__
            raise UnreadableImage(self._names[i], f"cannot be opened: {reason}") from error
        finally:
            with self._lock:
                self._bytes_ahead -= self._pictures[i].size
        self.digests[i] = hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
        return content

    def _fetch_ahead(self, i: int) -> None:
        while self._next < len(self._pictures) and (
            self._next <= i or (self._next < i + AHEAD_PICTURES and self._bytes_ahead < AHEAD_BYTES)
        ):
            self._fetching[self._next] = self._pool.submit(self._fetch, self._next)
            self._bytes_ahead += self._pictures[self._next].size
            self._next += 1

    def _fetch(self, i: int) -> bytes:
        picture = self._pictures[i]
        if picture.size > self._limits.file_bytes:
            raise UnreadableImage(
                picture.key,
                f"the file has {picture.size:,} bytes, the limit is {self._limits.file_bytes:,}",
            )
        return self._fs.cat_file(picture.path)
