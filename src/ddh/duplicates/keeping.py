"""Which picture of a group to keep, as a documented and total order."""

from collections.abc import Callable
from typing import Any

from ddh._core.errors import InputError
from ddh.duplicates.results import Picture
from ddh.images.decoding import printable

# Formats that keep every pixel first; among the others, newer ones spend bytes better.
FORMATS = ("TIFF", "PNG", "BMP", "PPM", "JPEG2000", "WEBP", "AVIF", "HEIF", "JPEG", "MPO", "GIF")

DEFAULT_KEEP = "pixels"
Order = Callable[[Picture], tuple[Any, ...]]


def _by_pixels(picture: Picture) -> tuple[Any, ...]:
    """Most pixels, most bytes per pixel, the better format, the oldest, the first path."""
    better = FORMATS.index(picture.format) if picture.format in FORMATS else len(FORMATS)
    per_pixel = picture.bytes / max(picture.pixels, 1)
    return -picture.pixels, -per_pixel, better, picture.mtime_ns, printable(picture.path)


KEEP: dict[str, Order] = {
    "pixels": _by_pixels,
    "bytes": lambda picture: (-picture.bytes, *_by_pixels(picture)),
    "smallest": lambda picture: (picture.bytes, *_by_pixels(picture)),
    "oldest": lambda picture: (picture.mtime_ns, *_by_pixels(picture)),
    "newest": lambda picture: (-picture.mtime_ns, *_by_pixels(picture)),
    "path": lambda picture: (printable(picture.path),),
    "shortest-path": lambda picture: (
        len(picture.path.parts), len(printable(picture.path)), printable(picture.path),
    ),
}  # fmt: skip


def keep_order(keep: str) -> Order:
    """The sort key of a keep rule: the smallest picture is kept."""
    if keep not in KEEP:
        raise InputError(f"keep is one of {', '.join(KEEP)}, not {keep!r}")
    return KEEP[keep]
