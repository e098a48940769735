"""Minimum cuts against all 2^n assignments."""

from itertools import product

import numpy as np
import pytest

from ddh.hashers.fasth import minimum_energy


def energy(A, fields, z):
    return z @ A @ z + fields @ z


@pytest.mark.parametrize("seed", range(12))
def test_cut_is_the_minimum_of_all(seed):
    rng = np.random.default_rng(seed)
    n = 1 + seed % 9
    A = -rng.integers(0, 6, (n, n))
    A = A + A.T
    np.fill_diagonal(A, 0)
    fields = rng.integers(-40, 40, n)
    best = min(energy(A, fields, np.array(z)) for z in product([-1, 1], repeat=n))
    z = minimum_energy(A, fields)
    assert set(np.unique(z)) <= {-1, 1}
    assert energy(A, fields, z.astype(int)) == best


def test_large_numbers_are_refused_not_wrapped():
    with pytest.raises(OverflowError):
        minimum_energy(np.zeros((2, 2), np.int64), np.array([2**31, 1]))
