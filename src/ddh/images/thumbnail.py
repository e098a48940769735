"""Small JPEG files of pictures, made of their pixels alone."""

import io
from pathlib import Path

from PIL import Image

from ddh.images.decoding import DEFAULT_LIMITS, Limits, decode

PLAIN_HEADS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM")  # of everyday formats
HEAD_BYTES = 16


def thumbnail_jpeg(
    file: Path | bytes,
    side: int,
    quality: int,
    *,
    name: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """A JPEG of a picture, its longer side at most `side`; raises `UnreadableImage`."""
    image = decode(file, name=name, limits=limits, at_least=side)
    image.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    clean = Image.new("RGB", image.size)
    clean.paste(image)  # no EXIF, no profile
    out = io.BytesIO()
    clean.save(out, "JPEG", quality=quality, optimize=True)
    return out.getvalue()


def is_plain(file: Path) -> bool:
    """Whether a file is of an everyday format, by its first bytes; raises OSError."""
    with file.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    return head.startswith(PLAIN_HEADS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")
