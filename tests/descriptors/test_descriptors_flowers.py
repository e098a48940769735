"""The flower descriptors: foreground, filters, blocks, words, on drawn flowers."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

cv2 = pytest.importorskip("cv2")

from ddh._core.errors import InputError, MissingDependency  # noqa: E402
from ddh.descriptors import DESCRIPTORS, Photograph, Vocabulary, descriptor, extract  # noqa: E402
from ddh.descriptors.colour import cone  # noqa: E402
from ddh.descriptors.extraction import MAX_VECTORS, LocalFeatures  # noqa: E402
from ddh.descriptors.foreground import foreground  # noqa: E402
from ddh.descriptors.hog import BINS, BLOCK, CELL, hog_blocks  # noqa: E402
from ddh.descriptors.sift import main_direction, sift  # noqa: E402
from ddh.descriptors.texture import filter_bank, mr8  # noqa: E402
from ddh.evaluation import recognise  # noqa: E402
from ddh.images import ImageArray  # noqa: E402


def flower(colour, petals, seed, side=120):
    """A flower with so many petals on a green ground."""
    rng = np.random.default_rng(seed)
    ground = np.array([40, 90, 40]) + rng.integers(-25, 25, (side, side, 3))
    image = Image.fromarray(ground.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    centre = side / 2 + rng.integers(-6, 6, 2)
    for turn in range(petals):
        angle = 2 * np.pi * turn / petals + seed
        x, y = centre + side * 0.2 * np.array([np.cos(angle), np.sin(angle)])
        r = side * 0.12
        draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    r = side * 0.1
    x, y = centre
    draw.ellipse((x - r, y - r, x + r, y + r), fill=(230, 200, 40))
    return np.asarray(image)


@pytest.fixture(scope="module")
def photograph():
    return Photograph(flower((200, 40, 160), 6, seed=1))


def test_a_photograph_has_one_size_and_a_sensible_foreground(photograph):
    assert min(photograph.rgb.shape[:2]) == 500
    truth = (photograph.rgb[..., 0] > 150) & (photograph.rgb.max(axis=2) > 150)
    agree = (photograph.mask & truth).sum() / (photograph.mask | truth).sum()
    assert agree > 0.85
    outline = photograph.boundary()
    assert outline.any()
    assert not (outline & ~photograph.mask).any()
    inside = photograph.inside(12)
    assert 0 < inside.sum() < photograph.mask.sum()
    assert not (inside & outline).any()


def test_foreground_of_an_empty_picture_is_a_central_ellipse():
    mask = foreground(np.full((60, 90, 3), 128, np.uint8))
    assert mask[30, 45]
    assert not mask[0, 0]
    assert 0.3 < mask.mean() < 0.7


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_every_descriptor_gives_finite_vectors(name, photograph):
    kind = descriptor(name)
    vectors = kind.sample(photograph)
    assert kind.name == name
    assert vectors.shape[1] == kind.dimensions
    assert 0 < len(vectors) <= MAX_VECTORS
    assert np.isfinite(vectors).all()
    np.testing.assert_array_equal(vectors, kind.sample(photograph))


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_every_descriptor_copes_with_a_picture_of_nothing(name):
    photograph = Photograph(np.full((8, 90, 3), 255, np.uint8))
    assert photograph.rgb.shape == (178, 2000, 3)
    vectors = descriptor(name).sample(photograph)
    assert len(vectors) > 0
    assert np.isfinite(vectors).all()


def test_hue_is_a_circle_and_fades_without_saturation():
    rgb = np.array([[[255, 0, 2], [255, 2, 0], [128, 128, 128], [0, 255, 0]]], np.uint8)
    red, also_red, grey, green = cone(rgb)[0]
    assert np.linalg.norm(red - also_red) < 0.02
    np.testing.assert_allclose(grey, [0, 0, 128 / 255], atol=1e-3)
    assert np.linalg.norm(red - green) > 1


def test_mr8_filters_have_mean_zero_and_norm_one():
    assert filter_bank().shape == (38, 49, 49)
    for kernel in filter_bank():
        assert abs(kernel.sum()) < 1e-4
        assert np.abs(kernel).sum() == pytest.approx(1, abs=1e-4)


def test_mr8_equals_plain_filtering():
    rng = np.random.default_rng(3)
    grey = rng.integers(0, 255, (60, 70)).astype(np.uint8)
    image = (grey - grey.mean()) / grey.std()
    found = np.stack(
        [
            cv2.filter2D(image, cv2.CV_64F, kernel.astype(float), borderType=cv2.BORDER_REFLECT)
            for kernel in filter_bank()[:, ::-1, ::-1]
        ]
    )
    edges = np.abs(found[:18]).reshape(3, 6, 60, 70).max(axis=1)
    bars = found[18:36].reshape(3, 6, 60, 70).max(axis=1)
    values = np.concatenate([edges, bars, found[36:]])
    length = np.linalg.norm(values, axis=0)
    expected = values * np.log(1 + length / 0.03) / length
    np.testing.assert_allclose(mr8(grey), expected.transpose(1, 2, 0), atol=1e-4)


def test_mr8_does_not_change_when_the_picture_turns():
    rng = np.random.default_rng(0)
    grey = cv2.GaussianBlur(rng.integers(0, 255, (121, 121)).astype(np.uint8), (0, 0), 2)
    first, turned = mr8(grey), mr8(np.rot90(grey).copy())
    np.testing.assert_allclose(np.rot90(first)[40:80, 40:80], turned[40:80, 40:80], atol=2e-3)


def test_hog_of_stripes_points_across_them():
    side = 8 * CELL
    stripes = np.tile((np.arange(side) // 4 % 2 * 255).astype(np.uint8), (side, 1))
    rgb = np.repeat(stripes[..., None], 3, axis=2)
    upright = hog_blocks(rgb).reshape(-1, BLOCK * BLOCK, BINS).sum(axis=(0, 1))
    lying = hog_blocks(np.rot90(rgb)).reshape(-1, BLOCK * BLOCK, BINS).sum(axis=(0, 1))
    assert set(np.argsort(upright)[-2:]) == {0, BINS - 1}  # gradient along x: 0 = 180 degrees
    assert np.argmax(lying) == BINS // 2
    assert hog_blocks(rgb).shape == (6 * 6, BLOCK * BLOCK * BINS)
    norms = np.linalg.norm(hog_blocks(rgb), axis=1)
    assert (norms < 1.0001).all()


def test_turned_patches_have_nearly_the_same_sift():
    rng = np.random.default_rng(1)
    grey = cv2.GaussianBlur(rng.integers(0, 255, (201, 201)).astype(np.uint8), (0, 0), 4)
    grey = cv2.normalize(grey, None, 0, 255, cv2.NORM_MINMAX)
    turned = np.rot90(grey).copy()
    centre = np.array([[100, 100]])
    difference = main_direction(grey, 25)[100, 100] - main_direction(turned, 25)[100, 100]
    assert difference % 360 == pytest.approx(90, abs=3)
    free = [sift(image, centre, radius=25, upright=False)[0] for image in (grey, turned)]
    fixed = [sift(image, centre, radius=25, upright=True)[0] for image in (grey, turned)]
    assert free[0] @ free[1] > 0.95
    assert fixed[0] @ fixed[1] < free[0] @ free[1] - 0.02
    assert np.linalg.norm(free[0]) == pytest.approx(1, abs=1e-3)


@pytest.fixture(scope="module")
def garden():
    """Two kinds of flowers that differ in colour and petals, ten of each."""
    kinds = [((220, 60, 60), 5), ((90, 60, 220), 9)]
    images = [flower(*kinds[i % 2], seed=i) for i in range(20)]
    return ImageArray(np.stack(images)), np.arange(20) % 2


def test_words_recognise_flowers_and_the_cache_gives_the_same(garden, tmp_path, monkeypatch):
    images, labels = garden
    kinds = [descriptor(name) for name in ("Colour", "Shape")]
    found = extract(kinds, images, cache=tmp_path)
    for kind in kinds:
        features = found[kind.name]
        vocabulary = Vocabulary(20).fit(features, np.arange(10))
        histograms = vocabulary.histograms(features)
        np.testing.assert_allclose(histograms.sum(axis=1), 1, rtol=1e-5)
        parts = [(histograms[s], labels[s]) for s in (slice(8), slice(8, 12), slice(12, 20))]
        assert recognise(*parts, kernel="chi-square", costs=(1.0, 10.0)).accuracy == 1.0
    monkeypatch.setattr(Photograph, "__init__", lambda *_: pytest.fail("described again"))
    again = extract(kinds, images, cache=tmp_path)
    np.testing.assert_array_equal(again["Shape"].vectors, found["Shape"].vectors)


def test_a_damaged_shard_is_described_again(garden, tmp_path):
    images, _ = garden
    kind = [descriptor("Colour")]
    first = extract(kind, images.take([0, 1]), cache=tmp_path)["Colour"]
    shard = next(tmp_path.iterdir())
    shard.write_bytes(shard.read_bytes()[:100])
    again = extract(kind, images.take([0, 1]), cache=tmp_path)["Colour"]
    np.testing.assert_array_equal(first.vectors, again.vectors)


def test_vocabulary_learns_from_the_given_images_only():
    rng = np.random.default_rng(2)
    near = rng.normal(0, 0.1, (200, 3)).astype(np.float16)
    far = rng.normal(50, 0.1, (200, 3)).astype(np.float16)
    features = LocalFeatures(np.concatenate([near, far]), np.array([0, 200, 400]))
    vocabulary = Vocabulary(4).fit(features, np.array([0]))
    assert np.abs(vocabulary.centres_).max() < 2
    words = vocabulary.assign(features.vectors)
    distance = np.linalg.norm(
        features.vectors.astype(np.float32)[:, None] - vocabulary.centres_, axis=2
    )
    np.testing.assert_array_equal(words, distance.argmin(axis=1))
    histograms = vocabulary.histograms(features)
    np.testing.assert_allclose(histograms[0], np.bincount(words[:200], minlength=4) / 200)


def test_mistakes_are_named(monkeypatch):
    with pytest.raises(InputError, match="there are: Colour"):
        descriptor("Colours")
    few = LocalFeatures(np.zeros((5, 3), np.float16), np.array([0, 5]))
    with pytest.raises(InputError, match="cannot make 10 words"):
        Vocabulary(10).fit(few, np.array([0]))
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    with pytest.raises(MissingDependency, match="opencv-python-headless"):
        foreground(np.zeros((5, 5, 3), np.uint8))
