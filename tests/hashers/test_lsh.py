"""Random planes: the collision law of Charikar (2002)."""

import numpy as np
import pytest

from ddh.hashers import LSH


@pytest.mark.parametrize("orthogonal", [False, True])
def test_collision_law(orthogonal):
    """Two vectors at angle t agree in a bit with probability 1 - t / pi: within three sigma."""
    bits, d = 4096, 8
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 12, d))
    b[:6] = a[:6] + 0.3 * b[:6]  # some pairs at small angles
    data = np.concatenate([a, b, -a, -b])  # mean zero: centring changes no angle
    model = LSH(bits=bits, orthogonal=orthogonal, random_state=1).fit(data)
    agree = (model.transform(a) == model.transform(b)).mean(axis=1)
    cosine = np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    expected = 1 - np.arccos(cosine) / np.pi
    sigma = np.sqrt(expected * (1 - expected) / bits)
    assert np.all(np.abs(agree - expected) <= 3 * sigma)


def test_orthogonal_planes_in_blocks():
    X = np.random.default_rng(0).normal(size=(20, 6))
    W = LSH(bits=15, orthogonal=True).fit(X).projection_
    for block in (W[:, :6], W[:, 6:12], W[:, 12:]):
        np.testing.assert_allclose(block.T @ block, np.eye(block.shape[1]), atol=1e-12)


def test_features_are_centred():
    X = np.random.default_rng(0).normal(1000, 1, (200, 6))
    codes = LSH(bits=64).fit(X).transform(X)
    assert np.abs(codes.mean(axis=0)).max() < 0.3


def test_planes_depend_on_the_seed_alone():
    X = np.random.default_rng(0).normal(size=(20, 6))
    one, other = LSH(bits=9, random_state=3).fit(X), LSH(bits=9, random_state=3).fit(X * 2 + 1)
    np.testing.assert_array_equal(one.projection_, other.projection_)
