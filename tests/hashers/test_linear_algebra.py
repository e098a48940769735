"""Shared linear algebra against plain NumPy."""

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh._core.linear_algebra import (
    BLOCK_ROWS,
    Ridge,
    column_means,
    covariance,
    halving_thresholds,
    principal_components,
    project,
    random_rotation,
    top_eigenvector,
    top_eigenvectors,
    without_empty_columns,
)


@pytest.fixture
def X() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(3, 1, (BLOCK_ROWS + 321, 9)) * np.arange(1, 10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_covariance_over_several_blocks(X, dtype, tolerance):
    mean, matrix = covariance(X.astype(dtype))
    np.testing.assert_allclose(mean, X.mean(axis=0), rtol=tolerance)
    np.testing.assert_allclose(matrix, np.cov(X.T, bias=True), atol=tolerance * 81)


def test_constant_columns_centre_to_exactly_zero():
    X = np.full((1000, 2), 0.1, np.float32)
    X[:, 1] = np.arange(1000)
    assert np.all(X[:, 0] - column_means(X)[0] == 0)


def test_projection_in_blocks(X):
    mean, matrix = X.mean(axis=0), np.random.default_rng(1).normal(size=(9, 4))
    np.testing.assert_allclose(project(X, mean, matrix), (X - mean) @ matrix, atol=1e-9)
    assert project(X.astype(np.float32), mean, matrix).dtype == np.float32


def test_principal_components_against_svd(X):
    _, components, variances = principal_components(X, 4)
    _, singular, Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(variances, singular[:4] ** 2 / len(X), rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(components * Vt[:4].T, axis=0)), 1, atol=1e-9)
    assert np.all(components[np.abs(components).argmax(axis=0), range(4)] > 0)


def test_components_without_variance_are_zero():
    X = np.random.default_rng(0).normal(size=(50, 3))
    repeated = np.column_stack([X, X[:, 0], np.full(50, 7.0)])
    _, components, variances = principal_components(repeated, 5)
    assert np.all(variances[:3] > 0)
    assert np.all(components[:, 3:] == 0)
    assert np.all(variances[3:] == 0)


def test_more_components_than_dimensions(X):
    with pytest.raises(InputError, match="10 bits need at least 10 dimensions"):
        principal_components(X, 10)


def test_empty_columns_of_a_projection():
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[:, 2] = X[:, 0] + X[:, 1]
    _, matrix = covariance(X)
    projection = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, -1.0]])
    kept = without_empty_columns(projection, matrix)
    np.testing.assert_array_equal(kept, [[1, 0], [0, 0], [0, 0]])


@pytest.mark.parametrize("d", [5, 200])
def test_top_eigenvector_dense_and_by_lanczos(d):
    A = np.random.default_rng(d).normal(size=(d, d))
    A = A + A.T
    expected = top_eigenvectors(A, 1)[1][:, 0]
    np.testing.assert_allclose(top_eigenvector(A.__matmul__, d), expected, atol=1e-6)


def test_rotation_is_orthogonal_and_not_always_the_same():
    rng = np.random.default_rng(0)
    first, second = random_rotation(6, rng), random_rotation(6, rng)
    np.testing.assert_allclose(first @ first.T, np.eye(6), atol=1e-12)
    assert not np.allclose(first, second)


def test_ridge_against_the_formula(X):
    targets = np.random.default_rng(2).normal(size=(len(X), 3))
    expected = np.linalg.solve(X.T @ X + 2.5 * np.eye(9), X.T @ targets)
    np.testing.assert_allclose(Ridge(X, 2.5).coefficients(targets), expected, rtol=1e-8)
    centred = X - X.mean(axis=0)
    expected = np.linalg.solve(centred.T @ centred + 2.5 * np.eye(9), centred.T @ targets)
    fitted = Ridge(X, 2.5, centre=X.mean(axis=0)).coefficients(targets)
    np.testing.assert_allclose(fitted, expected, rtol=1e-8)


def test_a_small_penalty_is_enough_for_many_float32_rows():
    column = np.random.default_rng(0).random((20_000, 1), np.float32)
    repeated = np.repeat(column, 50, axis=1)
    weights = Ridge(repeated, 1e-2).coefficients(column)
    np.testing.assert_allclose(repeated @ weights, column, atol=1e-4)


def test_halving_thresholds_split_in_half_and_touch_no_row():
    rng = np.random.default_rng(0)
    for n in (2, 7, 8, 101):
        values = rng.normal(size=(n, 3))
        above = values > halving_thresholds(values)
        assert np.all(np.abs(above.sum(axis=0) - n / 2) <= 0.5)
        gap = np.abs(values - halving_thresholds(values)).min(axis=0)
        assert np.all(gap > 1e-9)


def test_halving_thresholds_with_ties():
    values = np.array([0.0, 0, 0, 0, 0, 1, 2, 2])[:, None]
    assert halving_thresholds(values) == 0.5  # 5 | 3 is the fairest cut that there is
    rounding = np.array([1.0, 1 + 1e-15, 1 - 1e-15, 5, 6])[:, None]
    assert halving_thresholds(rounding) == pytest.approx(3)
    constant = np.full((4, 1), -2.0)
    assert halving_thresholds(constant) < -2
