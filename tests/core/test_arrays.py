"""Signs, unit rows and standardisation against plain NumPy."""

import numpy as np

from ddh._core.arrays import BLOCK, l2_normalize, mean_and_scale, sgn, standardize


def test_the_sign_of_zero_is_plus_one():
    values = np.array([[-2.0, -0.0, 0.0, 3.0]])
    assert sgn(values).dtype == np.int8
    np.testing.assert_array_equal(sgn(values), [[-1, 1, 1, 1]])
    assert sgn(values, np.float32).dtype == np.float32


def test_rows_have_length_one():
    X = np.random.default_rng(0).normal(size=(BLOCK + 3, 2))
    X[5] = 0
    unit = l2_normalize(X)
    expected = np.ones(len(X))
    expected[5] = 0
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), expected, rtol=1e-6)


def test_standardised_dimensions_have_mean_zero_and_variance_one():
    X = np.random.default_rng(0).normal(3, [0.5, 2.0, 5.0], size=(BLOCK + 7, 3))
    Z = standardize(X, *mean_and_scale(X))
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(Z.std(axis=0), 1, rtol=1e-5)
    mean, scale = mean_and_scale(X, per_dimension=False)
    np.testing.assert_allclose(scale, np.sqrt(X.var(axis=0).mean()), rtol=1e-12)
    np.testing.assert_allclose(mean, X.mean(axis=0), rtol=1e-12)


def test_constant_dimensions_are_not_blown_up():
    X = np.full((1000, 3), 0.1, np.float32)
    X[:, 1] = np.arange(1000)
    mean, scale = mean_and_scale(X)
    assert scale[0] == scale[2] == 1
    assert np.abs(standardize(X, mean, scale)[:, 0]).max() < 1e-6
