"""Fingerprints and candidate pairs, against brute force and known transforms."""

import numpy as np
import pytest
from photographs import photograph

from ddh.duplicates.candidates import (
    MOST_NEIGHBOURS,
    PerceptualIndex,
    by_features,
    code_pairs,
    fit_similarity,
)
from ddh.duplicates.fingerprints import (
    SIDE,
    content_box,
    fingerprint,
    local_features,
    perceptual_code,
    small_grey,
    turn_matrix,
    turned_codes,
)


def turned(grey: np.ndarray, turn: int) -> np.ndarray:
    if turn & 4:
        grey = grey.T
    if turn & 1:
        grey = grey[:, ::-1]
    if turn & 2:
        grey = grey[::-1]
    return np.ascontiguousarray(grey)


@pytest.fixture(scope="module")
def grey() -> np.ndarray:
    return small_grey(np.asarray(photograph(3)), SIDE)


@pytest.mark.parametrize("turn", range(8))
def test_codes_of_turned_pictures_follow_from_one(grey, turn):
    expected = perceptual_code(turned(grey, turn))
    assert turned_codes(perceptual_code(grey)[None], turn)[0].tolist() == expected.tolist()
    # the matrix takes a point of the picture to where it lies after the turn
    picture = np.zeros((6, 4))
    picture[1, 0] = 1
    x, y, _ = turn_matrix(turn) @ [0.5 / 4, 1.5 / 6, 1]
    after = turned(picture, turn)
    assert after[int(y * after.shape[0]), int(x * after.shape[1])] == 1


def test_a_mirrored_feature_has_the_complementary_code(grey):
    points, codes = local_features(grey)
    mirrored_points, mirrored = local_features(turned(grey, 1))
    x = grey.shape[1] - mirrored_points[:, 0]
    away = np.hypot(points[:, None, 0] - x, points[:, None, 1] - mirrored_points[:, 1])
    distance = np.unpackbits(codes[:, None] ^ mirrored[None], axis=2).sum(axis=2)
    same_place = away < 1
    assert (np.where(same_place, distance, 0).max(axis=1) > 56).mean() > 0.8


@pytest.mark.parametrize("radius", [0, 5])
def test_code_pairs_are_all_pairs_within_the_radius(radius):
    rng = np.random.default_rng(radius)
    bits = rng.random((60, 64)) < 0.5
    for i in range(0, 40, 2):
        flips = rng.random(64) < 0.04
        row = np.unpackbits(turned_codes(np.packbits(bits[i : i + 1], axis=1), i % 8), axis=1)
        bits[i + 1] = row[0] ^ flips
    codes = np.packbits(bits, axis=1)
    found = {
        (i, j, turn)
        for first, second, turn in code_pairs(codes, radius)
        for i, j in zip(first.tolist(), second.tolist(), strict=True)
    }
    expected = set()
    index = PerceptualIndex(codes[:10])
    index.add(codes[10:])
    for turn in range(8):
        other = turned_codes(codes, turn)
        away = np.unpackbits(codes[:, None] ^ other[None], axis=2).sum(axis=2)
        assert ((away <= radius).sum(axis=0) <= MOST_NEIGHBOURS).all()
        expected |= {(i, j, turn) for i, j in np.argwhere(away <= radius).tolist() if i < j}
    assert found == expected
    for j in range(60):
        rows, turns = index.near(codes[j], radius)
        near = {(i, t) for i, t in zip(rows.tolist(), turns.tolist(), strict=True) if i < j}
        assert near == {(i, t) for i, k, t in expected if k == j}


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_similarity_is_found_among_wrong_matches(mirrored):
    rng = np.random.default_rng(1)
    factor = 1.3 * np.exp(0.4j)
    b = np.column_stack(
        [rng.uniform(0, 100, (30, 2)), rng.uniform(2, 9, 30), rng.uniform(0, 6, 30)]
    ).astype(np.float32)
    place = (-b[:, 0] if mirrored else b[:, 0]) + 1j * b[:, 1]
    angle = (np.pi - b[:, 3] if mirrored else b[:, 3]) + 0.4
    moved = factor * place + (12 - 7j)
    a = np.column_stack([moved.real, moved.imag, 1.3 * b[:, 2], angle]).astype(np.float32)
    a[20:, :2] = rng.uniform(0, 100, (10, 2))
    matrix = fit_similarity(a, b, mirrored)
    landed = matrix @ np.column_stack([b[:20, :2], np.ones(20)]).T
    assert np.abs(landed[:2].T - a[:20, :2]).max() < 1e-2
    assert (np.linalg.det(matrix[:2, :2]) < 0) == mirrored
    assert fit_similarity(a[20:], b[20:], mirrored) is None


def test_features_place_a_window_in_its_picture(tmp_path):
    image = photograph(4)
    image.save(tmp_path / "a.png")
    image.crop((40, 30, 280, 210)).save(tmp_path / "b.png")
    photograph(5).save(tmp_path / "c.png")
    prints = [fingerprint(tmp_path / f"{name}.png") for name in "abc"]
    (one,) = [pair for pair in by_features(prints) if pair.matrix is not None]
    assert (one.first, one.second) == (0, 1)
    corner = one.matrix @ [0, 0, 1]
    assert np.abs(corner[:2] - np.array([40, 30]) * SIDE / 320).max() < 1.5
    assert by_features([]) == []


def test_the_border_is_not_content():
    framed = np.full((100, 160), 200, np.uint8)
    framed[10:90, 16:144] = np.random.default_rng(0).integers(0, 256, (80, 128))
    assert content_box(framed) == pytest.approx((0.1, 0.1, 0.9, 0.9))
    assert content_box(framed[10:90, 16:144]) == (0, 0, 1, 1)
