"""Images of an fsspec file system as a source that reads files ahead of the decoder."""

import hashlib
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from PIL import Image

from ddh.cluster.batches import ImageFile
from ddh.images import ImageSource, UnreadableImage, decode
from ddh.images.decoding import DEFAULT_LIMITS, Limits
from ddh.index.collection import DIGEST_BYTES

DOWNLOADS = 32  # in parallel, where the file system allows it
AHEAD_IMAGES, AHEAD_BYTES = 64, 128 << 20

# Errors of an object store that a second attempt will not cure. Any other (a timeout, a lost
# connection) is raised, so that the batch is retried and no readable image is skipped.
PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError)


class DownloadedImages(ImageSource):
    """Images to be read once each, roughly in order; `digests` are those of the files read.

    Memory: the files of the next 64 images, at most 128 MB of them.
    """

    def __init__(
        self, fs: Any, files: Sequence[ImageFile], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self.digests: dict[int, str] = {}
        self._fs, self._files, self._limits = fs, files, limits
        self._names = tuple(file.key for file in files)
        local = "file" in fs.protocol
        self._permanent = OSError if local else PERMANENT
        # Of the others, only asynchronous ones may be called by several threads.
        self._pool = ThreadPoolExecutor(DOWNLOADS if local or fs.async_impl else 1, "ddh-download")
        self._lock = threading.Lock()
        self._downloads: dict[int, Future[bytes]] = {}
        self._next, self._bytes_ahead = 0, 0
        self._download_ahead(0)  # while the previous batch is still being encoded

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def read(self, i: int) -> Image.Image:
        return decode(self._content(i), name=self._names[i], limits=self._limits)

    def read_reduced(self, i: int, at_least: int) -> Image.Image:
        content = self._content(i)
        return decode(content, name=self._names[i], limits=self._limits, at_least=at_least)

    def take(self, indices: Iterable[int]) -> "DownloadedImages":
        return DownloadedImages(self._fs, [self._files[i] for i in indices], self._limits)

    def close(self) -> None:
        """Stop downloading."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _content(self, i: int) -> bytes:
        with self._lock:
            self._download_ahead(i)
            download = self._downloads.pop(i)
        try:
            content = download.result()
        except self._permanent as error:
            reason = error.strerror or type(error).__name__
            raise UnreadableImage(self._names[i], f"cannot be opened: {reason}") from error
        finally:
            with self._lock:
                self._bytes_ahead -= self._files[i].size
        self.digests[i] = hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
        return content

    def _download_ahead(self, i: int) -> None:
        while self._next < len(self._files) and (
            self._next <= i or (self._next < i + AHEAD_IMAGES and self._bytes_ahead < AHEAD_BYTES)
        ):
            self._downloads[self._next] = self._pool.submit(self._download, self._next)
            self._bytes_ahead += self._files[self._next].size
            self._next += 1

    def _download(self, i: int) -> bytes:
        file, limit = self._files[i], self._limits.file_bytes
        if file.size > limit:
            raise UnreadableImage(
                file.key, f"the file has {file.size:,} bytes, the limit is {limit:,}"
            )
        return bytes(self._fs.cat_file(file.path))
