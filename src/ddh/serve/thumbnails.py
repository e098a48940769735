"""Pictures of the collection made small: decoded with limits, always written anew as JPEG."""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

from ddh.images import Limits, decode
from ddh.serve.disk_cache import DiskCache

SIZES = (160, 320, 640)
LARGE = 1600  # the longer side of a whole picture
QUALITY = {160: 80, 320: 82, 640: 85, LARGE: 88}
RECIPE = "1"  # changes when the same file would give other bytes


@dataclass(frozen=True)
class Stamp:
    """One small picture to be: which file, as it is now, and how large. `tag` names it."""

    file: Path
    side: int
    tag: str


def stamp(file: Path, side: int) -> Stamp:
    """The stamp of a file now; raises OSError where it cannot be seen."""
    state = file.stat()
    text = f"{RECIPE}\0{file}\0{state.st_mtime_ns}\0{state.st_size}\0{side}"
    tag = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return Stamp(file, side, tag)


class Thumbnails:
    """Makes small pictures and keeps them; runs in worker threads."""

    def __init__(self, cache: DiskCache, limits: Limits) -> None:
        self._cache, self._limits = cache, limits

    def jpeg(self, wanted: Stamp) -> bytes:
        """The picture as JPEG, its longer side at most `side`; raises `UnreadableImage`.

        The large ones are not kept: they are asked for one at a time.
        """
        kept = self._cache.get(wanted.tag) if wanted.side in SIZES else None
        if kept is not None:
            return kept
        made = make(wanted.file, wanted.side, self._limits)
        if wanted.side in SIZES:
            self._cache.put(wanted.tag, made)
        return made


def make(file: Path, side: int, limits: Limits) -> bytes:
    """A JPEG of a picture file, nothing of the file's own bytes in it."""
    from PIL import Image

    image = decode(file, name=file.name, limits=limits, at_least=side)
    image.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    clean = Image.new("RGB", image.size)
    clean.paste(image)  # pixels alone: no EXIF, no profile
    out = io.BytesIO()
    clean.save(out, "JPEG", quality=QUALITY[side], optimize=True)
    return out.getvalue()
