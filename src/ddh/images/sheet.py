"""Contact sheets: a picture file with one query per row and its nearest pictures beside it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ddh._core.errors import InputError
from ddh.images.decoding import to_rgb
from ddh.images.sources import as_pixels

PAPER = (255, 255, 255)
INK = (38, 42, 48)
FAINT = (122, 128, 136)
RULE = (222, 225, 229)
BLANK = (243, 244, 246)
QUERY = (70, 84, 104)
RIGHT = (0, 135, 95)  # a green and a red-orange that colour-blind eyes tell apart; the
WRONG = (208, 72, 20)  # symbols say the same without colour

FRAME = 3
GAP = 8
MARGIN = 20
CAPTION = 12
TITLE = 19


@dataclass(frozen=True)
class SheetRow:
    """A query and its answers, best first.

    `captions` are lines under the answers, `marks` tell right (True) from wrong (False) or say
    nothing (None); both may be shorter than `results`. `caption` is the line under the query.
    """

    query: Any
    results: Sequence[Any]
    captions: Sequence[str] = ()
    marks: Sequence[bool | None] = ()
    caption: str = "query"


def contact_sheet(
    rows: Sequence[SheetRow | tuple[Any, ...]],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    tile: int = 96,
) -> Path:
    """Write a PNG with a row for each of `rows`; pictures are Pillow images or arrays.

    A tuple (query, results, captions, marks, caption) stands for a `SheetRow`. Each picture is
    fitted into `tile` x `tile` pixels; small ones are enlarged by whole pixels, not blurred.
    """
    filled = [row if isinstance(row, SheetRow) else SheetRow(*row) for row in rows]
    if not filled or tile < 16:
        raise InputError("a contact sheet needs at least one row, and tiles of 16 pixels or more")
    columns = max(len(row.results) for row in filled)
    captioned = any(row.captions or row.caption for row in filled)
    step = tile + 2 * FRAME + GAP
    row_height = step + (CAPTION + 7 if captioned else 0)
    top = MARGIN + (TITLE + 16 if title else 0)
    first = MARGIN + step + 2 * GAP
    width = max(first + columns * step - GAP, _text_width(title, TITLE) + MARGIN) + MARGIN
    height = top + len(filled) * row_height - GAP + MARGIN
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, MARGIN - 4), title, INK, _font(TITLE))
    rule = first - (3 * GAP) // 2
    draw.line([(rule, top), (rule, height - MARGIN)], RULE, 1)
    for number, row in enumerate(filled):
        _draw_row(sheet, row, top + number * row_height, first, step, tile)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(target, format="PNG")
    return target


def _draw_row(sheet: Image.Image, row: SheetRow, y: int, first: int, step: int, tile: int) -> None:
    _draw_tile(sheet, row.query, (MARGIN, y), tile, QUERY)
    _draw_caption(sheet, row.caption, (MARGIN, y), tile, INK)
    for place, picture in enumerate(row.results):
        corner = (first + place * step, y)
        mark = row.marks[place] if place < len(row.marks) else None
        _draw_tile(sheet, picture, corner, tile, {True: RIGHT, False: WRONG, None: RULE}[mark])
        if mark is not None:
            _draw_mark(sheet, mark, (corner[0] + tile + 2 * FRAME, y), max(14, tile // 6))
        if place < len(row.captions):
            _draw_caption(sheet, str(row.captions[place]), corner, tile, FAINT)


def _draw_tile(
    sheet: Image.Image,
    picture: Any,
    corner: tuple[int, int],
    tile: int,
    frame: tuple[int, int, int],
) -> None:
    """A picture in its frame, centred on a faint ground where it is not square."""
    x, y = corner
    side = tile + 2 * FRAME
    draw = ImageDraw.Draw(sheet)
    draw.rectangle((x, y, x + side - 1, y + side - 1), fill=BLANK, outline=frame, width=FRAME)
    small = _fit(_as_image(picture), tile)
    left, above = (tile - small.width) // 2, (tile - small.height) // 2
    sheet.paste(small, (x + FRAME + left, y + FRAME + above))


def _as_image(picture: Any) -> Image.Image:
    if isinstance(picture, Image.Image):
        return to_rgb(picture)
    array = np.asarray(picture)
    if array.ndim not in (2, 3):
        raise InputError(f"a picture is an array of shape (h, w) or (h, w, c), not {array.shape}")
    return Image.fromarray(np.ascontiguousarray(as_pixels(array[None])[0]))


def _fit(image: Image.Image, tile: int) -> Image.Image:
    """The largest form that fits: whole-pixel enlargement of small pictures, else antialiased."""
    longer = max(image.size)
    if longer * 2 <= tile:
        factor = tile // longer
        return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    width, height = (max(1, round(side * tile / longer)) for side in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)


def _draw_mark(sheet: Image.Image, right: bool, corner: tuple[int, int], side: int) -> None:
    """A tick or a cross on a patch of the frame's colour, in the tile's upper right corner.

    Drawn four times larger and reduced, since Pillow's lines have no smooth edges.
    """
    large = 4 * side
    patch = Image.new("RGB", (large, large), RIGHT if right else WRONG)
    draw = ImageDraw.Draw(patch)
    if right:
        strokes = [[(0.20, 0.54), (0.42, 0.75), (0.80, 0.28)]]
    else:
        strokes = [[(0.26, 0.26), (0.74, 0.74)], [(0.74, 0.26), (0.26, 0.74)]]
    for stroke in strokes:
        points = [(x * large, y * large) for x, y in stroke]
        draw.line(points, PAPER, width=large // 7, joint="curve")
    sheet.paste(patch.resize((side, side), Image.Resampling.LANCZOS), (corner[0] - side, corner[1]))


def _draw_caption(
    sheet: Image.Image, text: str, corner: tuple[int, int], tile: int, colour: tuple[int, int, int]
) -> None:
    side = tile + 2 * FRAME
    text = _shorten(text, side)
    x = corner[0] + (side - _text_width(text, CAPTION)) // 2
    ImageDraw.Draw(sheet).text((x, corner[1] + side + 2), text, colour, _font(CAPTION))


def _shorten(text: str, width: int) -> str:
    """The text, its end replaced by dots where it is wider than `width` pixels."""
    text = " ".join(text.split())
    if _text_width(text, CAPTION) <= width:
        return text
    while text and _text_width(text + "...", CAPTION) > width:
        text = text[:-1]
    return text + "..."


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def _text_width(text: str, size: int) -> int:
    return round(float(_font(size).getlength(text)))
