"""Thumbnails: pictures decoded within limits and always re-encoded as JPEG."""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

from ddh.images import Limits, decode
from ddh.serve.disk_cache import DiskCache

SIZES = (160, 320, 640)
LARGE = 1600  # longer side of `/pictures`
QUALITY = {160: 80, 320: 82, 640: 85, LARGE: 88}
VERSION = "1"  # change it when the same file would give other bytes


@dataclass(frozen=True)
class Thumbnail:
    """A thumbnail to make: its file in its present state, its size, and the tag of both."""

    file: Path
    side: int
    tag: str


def describe(file: Path, side: int) -> Thumbnail:
    """The thumbnail of a file in its present state; raises OSError where there is none."""
    state = file.stat()
    text = f"{VERSION}\0{file}\0{state.st_mtime_ns}\0{state.st_size}\0{side}"
    tag = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return Thumbnail(file, side, tag)


class Thumbnails:
    """Makes and caches thumbnails. For worker threads."""

    def __init__(self, cache: DiskCache, limits: Limits) -> None:
        self._cache, self._limits = cache, limits

    def jpeg(self, wanted: Thumbnail) -> bytes:
        """The picture as JPEG, its longer side at most `side`; raises `UnreadableImage`.

        Large ones are not cached: they are viewed one at a time.
        """
        cached = self._cache.get(wanted.tag) if wanted.side in SIZES else None
        if cached is not None:
            return cached
        made = make(wanted.file, wanted.side, self._limits)
        if wanted.side in SIZES:
            self._cache.put(wanted.tag, made)
        return made


def make(file: Path, side: int, limits: Limits) -> bytes:
    """A JPEG of an image file, made of its pixels alone."""
    from PIL import Image

    image = decode(file, name=file.name, limits=limits, at_least=side)
    image.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    clean = Image.new("RGB", image.size)
    clean.paste(image)  # pixels alone: no EXIF, no profile
    out = io.BytesIO()
    clean.save(out, "JPEG", quality=QUALITY[side], optimize=True)
    return out.getvalue()
