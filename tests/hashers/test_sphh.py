"""Spherical hashing: balance, independence, and the moves of the pivots, done naively."""

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.hashers import SphH
from ddh.hashers.sphh import MEAN_TOLERANCE, spherical_distance


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return np.random.default_rng(0).normal(7, 1, (600, 10))


def test_bits_are_balanced_and_independent(X):
    model = SphH(bits=12).fit(X)
    codes = model.transform(X)
    assert np.abs(codes.mean(axis=0)).max() <= 1 / len(X)
    assert model.balanced_
    inside = (codes > 0).astype(int)
    shared = (inside.T @ inside)[np.triu_indices(12, 1)]
    assert np.abs(shared - 150).mean() <= MEAN_TOLERANCE * 150 + 1


def test_odd_rows_are_balanced_too(X):
    codes = SphH(bits=5).fit(X[:201]).transform(X[:201])
    assert np.abs(codes.sum(axis=0)).max() == 1


def test_bits_are_spheres(X):
    model = SphH(bits=6).fit(X)
    distances = np.linalg.norm(X[:, None] - (model.pivots_ + model.mean_), axis=2)
    expected = np.where(distances <= np.sqrt(model.squared_radii_), 1, -1)
    np.testing.assert_array_equal(model.transform(X), expected)


def test_pivots_move_as_in_the_paper(X):
    """The moves in coefficients of the first pivots are the moves of the pivots themselves."""
    bits, n = 7, len(X)
    start = SphH(bits=bits, iterations=0, random_state=4).fit(X)
    pivots = start.pivots_ + start.mean_
    for _ in range(3):
        distances = np.linalg.norm(X[:, None] - pivots, axis=2)
        inside = distances <= np.median(distances, axis=0)
        moved = pivots.copy()
        for i in range(bits):
            for j in range(bits):
                o = np.sum(inside[:, i] & inside[:, j])
                if i != j:
                    moved[i] += 0.5 * (o - n / 4) / (n / 4) * (pivots[i] - pivots[j]) / bits
        pivots = moved
    model = SphH(bits=bits, iterations=3, random_state=4).fit(X)
    assert model.iterations_ == 3
    np.testing.assert_allclose(model.pivots_ + model.mean_, pivots, atol=1e-9)


def test_cap_on_iterations_is_told(X):
    assert not SphH(bits=12, iterations=0).fit(X).balanced_


def test_spherical_distance_by_loops():
    a = np.array([[1, 1, -1, 1], [-1, -1, -1, -1]])
    b = np.array([[1, -1, 1, 1], [-1, -1, -1, -1], [-1, -1, 1, -1]])
    expected = [[2 / 2.1, 3 / 0.1, 4 / 0.1], [3 / 0.1, 0, 1 / 0.1]]
    np.testing.assert_allclose(spherical_distance(a, b), expected, rtol=1e-6)
    with pytest.raises(InputError):
        spherical_distance(a, b[:, 1:])
