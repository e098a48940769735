"""Gaussian kernels against explicit differences."""

import numpy as np
import pytest

from ddh.hashers.kernel_features import draw_anchors, gaussian_kernel, mean_squared_distance


def test_kernel_and_width_by_loops():
    rng = np.random.default_rng(0)
    X = rng.normal(100, 2, (40, 5))
    mean = X.mean(axis=0)
    anchors = draw_anchors(X, mean, 7, rng)
    squared = np.array([[np.sum((x - mean - a) ** 2) for a in anchors] for x in X])
    assert mean_squared_distance(X, mean, anchors) == pytest.approx(squared.mean())
    kernel = gaussian_kernel(X, mean, anchors, 3.0)
    np.testing.assert_allclose(kernel, np.exp(-squared / 6), atol=1e-12)
    np.testing.assert_allclose(
        gaussian_kernel(X.astype(np.float32), mean, anchors, 3.0), kernel, atol=1e-4
    )


def test_anchors_are_rows_once_each():
    X = np.arange(20.0).reshape(10, 2)
    anchors = draw_anchors(X, np.zeros(2), 50, np.random.default_rng(0))
    np.testing.assert_array_equal(anchors, X)


def test_width_of_equal_rows_is_usable():
    X = np.ones((4, 3))
    anchors = draw_anchors(X, np.ones(3), 2, np.random.default_rng(0))
    assert mean_squared_distance(X, np.ones(3), anchors) == 1
