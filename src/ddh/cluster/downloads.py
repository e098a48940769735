"""Files of an fsspec file system, downloaded together, as a source of images."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from PIL import Image

from ddh.cluster.batches import ImageFile
from ddh.images import ImageSource, UnreadableImage, decode
from ddh.images.decoding import DEFAULT_LIMITS
from ddh.index.collection import DIGEST_BYTES

PART_IMAGES, PART_BYTES = 64, 128 << 20

# Errors of an object store that a second attempt will not cure. Any other (a timeout, a lost
# connection) is raised, so that the batch is retried and no readable image is skipped.
PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError)


class DownloadedImages(ImageSource):
    """Images in memory; fsspec downloads them in parallel where the file system can."""

    names: Sequence[str] = ()

    def __init__(self, fs: Any, files: Sequence[ImageFile]) -> None:
        limit = DEFAULT_LIMITS.file_bytes
        paths = [file.path for file in files if file.size <= limit]
        found = dict(zip(paths, fs.cat_ranges(paths, None, None, on_error="return"), strict=True))
        too_large = OSError(0, f"the file is larger than the limit of {limit:,} bytes")
        self.names = tuple(file.key for file in files)
        self._contents: list[Any] = [found.get(file.path, too_large) for file in files]
        permanent = (bytes, OSError) if "file" in fs.protocol else (bytes, *PERMANENT)
        for content in found.values():
            if not isinstance(content, permanent):
                raise content

    def read(self, i: int) -> Image.Image:
        return self.read_reduced(i)

    def read_reduced(self, i: int, at_least: int | None = None) -> Image.Image:
        content = self._contents[i]
        if isinstance(content, OSError):
            reason = f"cannot be opened: {content.strerror or type(content).__name__}"
            raise UnreadableImage(self.names[i], reason) from content
        return decode(content, name=self.names[i], at_least=at_least)

    def take(self, indices: Iterable[int]) -> ImageSource:
        raise NotImplementedError

    def digest(self, i: int) -> str:
        """A digest of the bytes of image `i`."""
        return hashlib.blake2b(self._contents[i], digest_size=DIGEST_BYTES).hexdigest()


def parts(files: Sequence[ImageFile]) -> Iterator[list[ImageFile]]:
    """Files in parts that fit into memory: 64 images, or as many as have 128 MB."""
    part: list[ImageFile] = []
    for file in files:
        if len(part) == PART_IMAGES or sum(f.size for f in part) + file.size > PART_BYTES:
            if part:
                yield part
            part = []
        part.append(file)
    if part:
        yield part
