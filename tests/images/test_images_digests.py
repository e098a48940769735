"""Digests of pixels: the same for the same picture in any file, different otherwise."""

import numpy as np
import pytest
from PIL import Image

from ddh._core.errors import InputError
from ddh.images import ImageArray, ImageFiles, digits, pixel_digest

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 9, 3), dtype=np.uint8)


def test_files_and_arrays_agree(tmp_path):
    paths = []
    for i, format in enumerate(("png", "bmp", "tiff", "webp")):
        paths.append(tmp_path / f"{i}.{format}")
        options = {"lossless": True} if format == "webp" else {}
        Image.fromarray(PIXELS[i]).save(paths[-1], **options)
    expected = pixel_digest(ImageArray(PIXELS))
    assert pixel_digest(ImageFiles(paths)) == expected
    assert pixel_digest(ImageFiles(paths), [2, 0]) == [expected[2], expected[0]]
    assert len(set(expected)) == 4
    assert all(len(digest) == 32 for digest in expected)


def test_shape_counts():
    flat, tall = np.zeros((1, 2, 3, 3), np.uint8), np.zeros((1, 3, 2, 3), np.uint8)
    assert pixel_digest(ImageArray(flat)) != pixel_digest(ImageArray(tall))


def test_grey_equals_its_rgb_form():
    grey = PIXELS[..., 0]
    assert pixel_digest(ImageArray(grey)) == pixel_digest(ImageArray(np.stack([grey] * 3, axis=3)))


def test_finds_the_one_repeated_digit():
    images = digits().images
    doubled = images.take([*range(100), 42])
    found = pixel_digest(doubled)
    assert found[100] == found[42]
    assert len(set(found)) == 100


def test_unreadable_picture_is_an_error(tmp_path):
    (tmp_path / "a.png").touch()
    with pytest.raises(InputError, match="0 bytes"):
        pixel_digest(ImageFiles([tmp_path / "a.png"]))
