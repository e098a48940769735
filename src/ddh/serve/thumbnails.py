"""Thumbnails: pictures decoded within limits and always re-encoded as JPEG."""

import hashlib
import io
from pathlib import Path

from PIL import Image

from ddh.images import Limits, decode
from ddh.serve.disk_cache import DiskCache

LARGE = 1600  # longer side of `/pictures`, which is not cached: they are viewed one at a time
QUALITY = {160: 80, 320: 82, 640: 85, LARGE: 88}
VERSION = "1"  # change it when the same file would give other bytes


def thumbnail_tag(file: Path, side: int) -> str:
    """A tag of a thumbnail and of its file's state; raises OSError where there is no file."""
    state = file.stat()
    text = f"{VERSION}\0{file}\0{state.st_mtime_ns}\0{state.st_size}\0{side}"
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def cached_jpeg(cache: DiskCache, tag: str, file: Path, side: int) -> bytes:
    """The thumbnail of a tag: a picture as JPEG, its longer side at most `side`."""
    content = None if side == LARGE else cache.get(tag)
    if content is None:
        content = _make(file, side)
        if side != LARGE:
            cache.put(tag, content)
    return content


def _make(file: Path, side: int) -> bytes:
    """A JPEG of an image file, made of its pixels alone; raises `UnreadableImage`."""
    image = decode(file, name=file.name, limits=Limits(), at_least=side)
    image.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    clean = Image.new("RGB", image.size)
    clean.paste(image)  # no EXIF, no profile
    out = io.BytesIO()
    clean.save(out, "JPEG", quality=QUALITY[side], optimize=True)
    return out.getvalue()
