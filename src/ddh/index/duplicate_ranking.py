"""Which picture of a group of near-duplicates to keep: the most pixels, then bytes, then age."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ddh.images.decoding import picture_formats
from ddh.index.rows import Row


class Measured(NamedTuple):
    """A picture file; zeros where it cannot be read."""

    width: int = 0
    height: int = 0
    bytes: int = 0


class Copy(NamedTuple):
    """One picture of a group, and how many bits lie between it and the one to keep."""

    row: Row
    measured: Measured
    distance: int


def measure(file: Path | None) -> Measured:
    """Width, height and bytes of a picture, from its header."""
    from PIL import Image

    if file is None:
        return Measured()
    try:
        with Image.open(file, formats=picture_formats()) as image:
            return Measured(*image.size, file.stat().st_size)
    except Exception:  # a damaged header makes Pillow's parsers raise almost anything
        return Measured()


def rank(rows: Sequence[Row], measured: Sequence[Measured]) -> list[Copy]:
    """The picture to keep first, the others by their distance to it; rows come by age."""
    order = sorted(
        range(len(rows)),
        key=lambda i: (-measured[i].width * measured[i].height, -measured[i].bytes, i),
    )
    best = rows[order[0]].code
    copies = [
        Copy(rows[i], measured[i], int(np.unpackbits(rows[i].code ^ best).sum())) for i in order
    ]
    return [copies[0], *sorted(copies[1:], key=lambda copy: copy.distance)]
