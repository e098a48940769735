"""Contact sheets: what is drawn where, enlargement without blur, marks that need no colour."""

import numpy as np
import pytest
from PIL import Image

from ddh._core.errors import InputError
from ddh.images import SheetRow, contact_sheet, digits
from ddh.images import sheet as module


def read(path):
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB")).astype(int)


def tile_of(sheet, column, tile, top=module.MARGIN):
    """The inside of a tile: column 0 is the query, 1 the first answer."""
    step = tile + 2 * module.FRAME + module.GAP
    left = module.MARGIN + column * step + (2 * module.GAP if column else 0) + module.FRAME
    return sheet[top + module.FRAME : top + module.FRAME + tile, left : left + tile]


def test_small_digits_are_enlarged_by_whole_pixels(tmp_path):
    images = digits().images
    rows = [SheetRow(images.read(0), [images.read(i) for i in range(1, 11)])]
    sheet = read(contact_sheet(rows, tmp_path / "sheet.png", tile=96))
    for column in (0, 1, 10):
        expected = images.pixels[column].repeat(12, axis=0).repeat(12, axis=1)
        assert np.array_equal(tile_of(sheet, column, 96), expected)


def test_wide_pictures_keep_their_proportions(tmp_path):
    wide = Image.new("RGB", (400, 200), (10, 60, 110))
    sheet = read(contact_sheet([(wide, [wide])], tmp_path / "deeper" / "sheet.png", tile=80))
    tile = tile_of(sheet, 1, 80)
    inside = (tile == [10, 60, 110]).all(axis=2)
    assert inside[20:60].all()
    assert inside.sum() == 80 * 40


def test_marks_differ_in_colour_and_in_shape(tmp_path):
    blank = np.full((96, 96), 128, np.uint8)
    rows = [SheetRow(blank, [blank] * 3, ["a", "b", "c"], [True, False, None])]
    sheet = read(contact_sheet(rows, tmp_path / "sheet.png", tile=96))
    right, wrong, none = (tile_of(sheet, column, 96) for column in (1, 2, 3))
    assert (none == 128).all()
    corner = np.s_[:10, -10:]
    assert (right[corner] != 128).any()
    strokes = [(part[corner] > 200).all(axis=2) for part in (right, wrong)]
    assert strokes[0].any()
    assert strokes[1].any()
    assert not np.array_equal(*strokes)


def test_captions_change_the_sheet_and_long_ones_stay_in_their_column(tmp_path):
    picture = np.zeros((96, 96), np.uint8)
    plain = read(contact_sheet([(picture, [picture] * 2)], tmp_path / "a.png"))
    captions = ["a very long caption that would run into its neighbour", ""]
    captioned = read(contact_sheet([(picture, [picture] * 2, captions)], tmp_path / "b.png"))
    assert captioned.shape == plain.shape
    differs = np.flatnonzero((plain != captioned).any(axis=(0, 2)))
    step = 96 + 2 * module.FRAME + module.GAP
    first = module.MARGIN + step + 2 * module.GAP
    assert differs.min() >= first
    assert differs.max() < first + 96 + 2 * module.FRAME


def test_rows_may_differ_in_length_and_a_title_makes_room(tmp_path):
    picture = np.zeros((8, 8, 3), np.uint8)
    rows = [(picture, [picture] * 3), (picture, [])]
    plain = read(contact_sheet(rows, tmp_path / "a.png"))
    titled = read(contact_sheet(rows, tmp_path / "b.png", title="Nearest three"))
    assert titled.shape[0] > plain.shape[0]
    assert titled.shape[1] == plain.shape[1]


def test_bad_sheets(tmp_path):
    with pytest.raises(InputError, match="at least one row"):
        contact_sheet([], tmp_path / "a.png")
    with pytest.raises(InputError, match="shape"):
        contact_sheet([(np.zeros((1, 2, 8, 8)), [])], tmp_path / "a.png")
