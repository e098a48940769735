"""Clusters as kinds, against brute force and planted kinds."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from ddh._core.arrays import l2_normalize
from ddh.neighbours import pairwise_labels
from ddh.train.clusters import Clusters, find_clusters


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def planted(rng):
    """600 images of 8 kinds, and their neighbourhoods."""
    kinds = np.arange(600) % 8
    features = rng.standard_normal((8, 32))[kinds] + 0.7 * rng.standard_normal((600, 32))
    features = (features - features.mean(axis=0)).astype(np.float32)
    return features, pairwise_labels(l2_normalize(features), 10, 4, centre=False), kinds


@pytest.fixture
def clusters(rng):
    """Two clusterings of 40 images, the second with an empty cluster."""
    labels = np.stack([np.arange(40) % 4, rng.integers(0, 7, 40)]).astype(np.uint8)
    return Clusters(np.array([0.9, 0.5]), np.array([4, 8]), labels)


def test_planted_kinds_are_found_and_are_the_most_stable(planted, rng):
    features, graph, kinds = planted
    found = find_clusters(features, graph, rng)
    assert found.numbers.tolist() == [4, 8, 16]  # 30 images per cluster or more
    assert found.numbers[np.argmax(found.stabilities)] == 8
    assert adjusted_rand_score(found.labels[1], kinds) > 0.95


def test_memberships_equal_the_dense_product(clusters, rng):
    F = rng.standard_normal((40, 6)).astype(np.float32)
    T = np.zeros((40, 40))
    for stability, k, own in zip(
        clusters.stabilities, clusters.numbers, clusters.labels, strict=True
    ):
        sizes = np.bincount(own)[own]
        T += stability**4 / k * (own[:, None] == own) / np.sqrt(np.outer(sizes, sizes))
    np.testing.assert_allclose(clusters.memberships(F), F.T @ T @ F, rtol=1e-4, atol=1e-5)


def test_found_equals_the_brute_force_count(clusters, rng):
    queries = rng.permutation(40)[:9]
    results = np.stack([rng.permutation(40) for _ in queries])[:, : clusters.first]
    shares = []
    for own, first in zip(clusters.labels, (10, 5), strict=True):  # 40 images in 4 and 8 clusters
        pairs = [(q, r) for q, row in zip(queries, results, strict=True) for r in row[:first]]
        shares.append(np.mean([own[q] == own[r] for q, r in pairs]))
    expected = (0.81 * shares[0] + 0.25 * shares[1]) / 1.06
    assert clusters.found(queries, results) == pytest.approx(expected)


def test_few_images_have_no_clusters(rng):
    few = rng.standard_normal((100, 8)).astype(np.float32)
    assert find_clusters(few, sparse.csr_array((100, 100), dtype=np.int8), rng) is None


def test_a_run_repeats(planted):
    features, graph, _ = planted
    first, second = (find_clusters(features, graph, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(first.labels, second.labels)
    np.testing.assert_array_equal(first.stabilities, second.stabilities)


def test_equal_images_are_clustered_without_a_warning(rng):
    features = rng.standard_normal((3, 8))[np.arange(240) % 3].astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = find_clusters(features, sparse.csr_array((240, 240), dtype=np.int8), rng)
    assert len(np.unique(found.labels[0])) == 3
