"""Which picture of a group to keep, as a documented and total order."""

from collections.abc import Callable
from typing import Any

from ddh._core.errors import InputError
from ddh.duplicates.results import Picture
from ddh.images.decoding import printable

# Formats that keep every pixel first; among the others, newer ones spend bytes better.
FORMATS = ("TIFF", "PNG", "BMP", "PPM", "JPEG2000", "WEBP", "AVIF", "HEIF", "JPEG", "MPO", "GIF")

DEFAULT_KEEP = "pixels"
SAME_SIZE = 0.98  # of the pixels
SHARPER = 1.3  # times; recompressing a photograph, and other light, change less
Order = Callable[[Picture], tuple[Any, ...]]


def _by_pixels(picture: Picture) -> tuple[Any, ...]:
    """Most pixels, colour, a camera's data, most bytes per pixel, format, oldest, first path."""
    better = FORMATS.index(picture.format) if picture.format in FORMATS else len(FORMATS)
    per_pixel = picture.bytes / max(picture.pixels, 1)
    return (
        -picture.pixels, not picture.has_colour, not picture.has_camera, -per_pixel, better,
        picture.mtime_ns, printable(picture.path),
    )  # fmt: skip


def has_more(picture: Picture, other: Picture, sharpness: float) -> bool:
    """Whether a picture has what another one of its size lacks: colour, camera, sharpness.

    `sharpness` is that of the picture, where that of the other one is 1.
    """
    return picture.pixels >= SAME_SIZE * other.pixels and (
        picture.has_colour > other.has_colour
        or picture.has_camera > other.has_camera
        or sharpness > SHARPER
    )


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
