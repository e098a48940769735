"""Squares of pixels for a network: against Pillow's own resize and crop, and through JSON."""

import json

import numpy as np
import pytest
from PIL import Image

from ddh._core.errors import InputError
from ddh.images import Preprocessing


@pytest.fixture(scope="module")
def picture():
    rng = np.random.default_rng(0)
    rough = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    return rough.resize((400, 300), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_squash_is_pillows_resize(picture, interpolation):
    found = Preprocessing(100, mode="squash", interpolation=interpolation).apply(picture)
    expected = picture.resize((100, 100), Image.Resampling[interpolation.upper()])
    assert found.dtype == np.uint8
    assert found.shape == (100, 100, 3)
    assert np.array_equal(found, np.asarray(expected))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("turned", [False, True])
def test_crop_is_resize_then_centre_crop(picture, interpolation, turned):
    image = picture.transpose(Image.Transpose.ROTATE_90) if turned else picture
    found = Preprocessing(90, resize=120, interpolation=interpolation).apply(image)
    size = (120, 160) if turned else (160, 120)
    resized = image.resize(size, Image.Resampling[interpolation.upper()])
    left, top = (size[0] - 90) // 2, (size[1] - 90) // 2
    expected = np.asarray(resized.crop((left, top, left + 90, top + 90))).astype(int)
    assert np.abs(found - expected).max() <= 2


def test_small_pictures_are_enlarged(picture):
    small = picture.resize((10, 6))
    assert Preprocessing(32).apply(small).shape == (32, 32, 3)
    assert Preprocessing(32).apply(Image.new("RGB", (1, 1), (9, 8, 7)))[31, 0].tolist() == [9, 8, 7]


def test_tiny_pictures_are_not_cropped_to_their_middle(picture):
    tiny, thumbnail = picture.resize((30, 20)), picture.resize((150, 112))
    preprocessing = Preprocessing(224, resize=256, interpolation="bicubic")
    whole = tiny.crop((5, 0, 25, 20)).resize((224, 224), Image.Resampling.BICUBIC)
    assert np.abs(preprocessing.apply(tiny).astype(int) - np.asarray(whole)).mean() < 3
    of_picture, of_thumbnail = (preprocessing.apply(x).astype(int) for x in (picture, thumbnail))
    assert np.abs(of_picture - of_thumbnail).mean() < 3  # a thumbnail shows what its original does


def test_a_thread_of_a_picture_is_no_trouble():
    assert Preprocessing(16).apply(Image.new("RGB", (5000, 1), "red"))[8, 8].tolist() == [255, 0, 0]
    assert Preprocessing(16, mode="squash").apply(Image.new("L", (1, 5000))).shape == (16, 16, 3)


def test_huge_reductions_stay_close_to_plain_resizing(picture):
    large = picture.resize((2000, 1500), Image.Resampling.BICUBIC)
    found = Preprocessing(64, mode="squash").apply(large).astype(int)
    expected = np.asarray(large.resize((64, 64), Image.Resampling.BILINEAR))
    assert np.abs(found - expected).mean() < 1


def test_right_size_passes_unchanged(picture):
    square = picture.crop((0, 0, 64, 64))
    assert np.array_equal(Preprocessing(64).apply(square), np.asarray(square))
    assert Preprocessing(64).keeps(64, 64)
    assert not Preprocessing(64).keeps(64, 65)
    assert not Preprocessing(64, resize=72).keeps(64, 64)


def test_other_modes_are_taken_too(picture):
    grey = Preprocessing(32).apply(picture.convert("L"))
    assert (grey[..., 0] == grey[..., 2]).all()


def test_json_round_trip():
    original = Preprocessing(
        224, resize=256, interpolation="bicubic", mean=(127, 127, 127), std=(128, 128, 128)
    )
    again = Preprocessing.from_dict(json.loads(json.dumps(original.to_dict())))
    assert again == original
    assert hash(again) == hash(original)


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 0},
        {"size": 2.5},
        {"size": 32, "mode": "stretch"},
        {"size": 32, "interpolation": "nearest"},
        {"size": 32, "resize": 16},
        {"size": 32, "resize": 64, "mode": "squash"},
        {"size": 32, "mean": [0, 0]},
        {"size": 32, "mean": [0, 0, float("nan")]},
        {"size": 32, "std": [1, 1, 0]},
        {"size": 32, "colour": "blue"},
        {},
    ],
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(InputError):
        Preprocessing.from_dict(settings)
