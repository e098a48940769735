"""Anchors, and the weights of the nearest ones, against plain loops."""

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.hashers import AGH
from ddh.hashers.anchor_graph import cluster_centres, nearest_anchors, without_noise


def rows(n: int = 60, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(2, 1, (n, d))


def test_nearest_anchors_are_those_of_all_distances():
    X, anchors = rows(), rows(9, seed=1) - 2
    columns, squared = nearest_anchors(X, np.full(4, 2.0), anchors, 3)
    for i in range(len(X)):
        distances = np.square(X[i] - 2 - anchors).sum(axis=1)
        assert columns[i].tolist() == np.argsort(distances)[:3].tolist()
        np.testing.assert_allclose(squared[i], np.sort(distances)[:3], atol=1e-7)


def test_weights_are_kernels_that_sum_to_one():
    model = AGH(bits=4, anchors=7, nearest=3).fit(rows())
    columns, weights = model._weights(rows(5, seed=2))
    for row, chosen, own in zip(rows(5, seed=2), columns, weights, strict=True):
        squared = np.square(row - model.mean_ - model.anchors_[chosen]).sum(axis=1)
        kernel = np.exp(-squared / model.width_)
        np.testing.assert_allclose(own, kernel / kernel.sum(), atol=1e-7)


def test_a_row_far_from_all_anchors_still_has_weights():
    model = AGH(bits=4, anchors=7, nearest=3).fit(rows())
    _, weights = model._weights(np.full((1, 4), 1e4))
    assert weights.sum() == pytest.approx(1)


def test_centres_lie_at_the_clusters_and_differ():
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    X = np.repeat(corners, 20, axis=0) + rng.normal(0, 0.1, (60, 2))
    centres = cluster_centres(X, np.zeros(2), 3, rng)
    assert {tuple(c) for c in centres.round()} == {tuple(c) for c in corners}
    few = cluster_centres(np.repeat(corners, 20, axis=0), np.zeros(2), 10, rng)
    assert len(few) == 3


def test_noise_is_zero_and_values_are_kept():
    values = np.array([[1.0, 0.0], [-1e-15, 0.0], [-0.5, 0.0]])
    np.testing.assert_array_equal(without_noise(values), [[1.0, 0], [0, 0], [-0.5, 0]])


@pytest.mark.parametrize("settings", [{"anchors": 1}, {"nearest": 0}])
def test_impossible_numbers(settings: dict[str, int]):
    with pytest.raises(InputError, match="anchors must be"):
        AGH(bits=4, **settings).fit(rows())
