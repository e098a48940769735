"""Thumbnails: pictures decoded within limits and always re-encoded as JPEG."""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ddh.images import Limits, decode
from ddh.serve.disk_cache import DiskCache

LARGE = 1600  # longer side of `/pictures`, which is not cached: they are viewed one at a time
QUALITY = {160: 80, 320: 82, 640: 85, LARGE: 88}
VERSION = "1"  # change it when the same file would give other bytes


@dataclass(frozen=True)
class Thumbnail:
    """A thumbnail to make: its file, its longer side, and a tag of both and the file's state."""

    file: Path
    side: int
    tag: str

    @classmethod
    def of(cls, file: Path, side: int) -> "Thumbnail":
        """The thumbnail of a file in its present state; raises OSError where there is none."""
        state = file.stat()
        text = f"{VERSION}\0{file}\0{state.st_mtime_ns}\0{state.st_size}\0{side}"
        tag = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        return cls(file, side, tag)


class Thumbnails:
    """Makes and caches thumbnails. For worker threads."""

    def __init__(self, cache: DiskCache) -> None:
        self._cache = cache

    def jpeg(self, wanted: Thumbnail) -> bytes:
        """The picture as JPEG, its longer side at most `side`; raises `UnreadableImage`."""
        if wanted.side == LARGE:
            return _make(wanted.file, wanted.side)
        cached = self._cache.get(wanted.tag)
        if cached is None:
            cached = _make(wanted.file, wanted.side)
            self._cache.put(wanted.tag, cached)
        return cached


def _make(file: Path, side: int) -> bytes:
    """A JPEG of an image file, made of its pixels alone."""
    image = decode(file, name=file.name, limits=Limits(), at_least=side)
    image.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    clean = Image.new("RGB", image.size)
    clean.paste(image)  # no EXIF, no profile
    out = io.BytesIO()
    clean.save(out, "JPEG", quality=QUALITY[side], optimize=True)
    return out.getvalue()
