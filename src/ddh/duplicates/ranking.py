"""Which picture of a group of near-duplicates to keep: most pixels, then bytes, then the oldest."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ddh.images.formats import open_picture
from ddh.index import Row


class FileSize(NamedTuple):
    """Pixels and bytes of a picture file; zeros where it cannot be read."""

    width: int = 0
    height: int = 0
    bytes: int = 0


class RankedPicture(NamedTuple):
    """One picture of a group, and its Hamming distance to the picture to keep."""

    row: Row
    size: FileSize
    distance: int


def measure(file: Path | None) -> FileSize:
    """Width, height and bytes of a picture, read from its header."""
    if file is None:
        return FileSize()
    try:
        with file.open("rb") as content, open_picture(content, math.inf) as image:
            return FileSize(*image.size, file.stat().st_size)
    except Exception:  # a damaged header makes Pillow's parsers raise almost anything
        return FileSize()


def rank(rows: Sequence[Row], sizes: Sequence[FileSize]) -> list[RankedPicture]:
    """The picture to keep, then the others by distance to it; `rows` are in the order written."""
    order = sorted(
        range(len(rows)),
        key=lambda i: (-sizes[i].width * sizes[i].height, -sizes[i].bytes, i),
    )
    best = rows[order[0]]
    ranked = [RankedPicture(rows[i], sizes[i], rows[i].distance(best)) for i in order]
    return [ranked[0], *sorted(ranked[1:], key=lambda picture: picture.distance)]
