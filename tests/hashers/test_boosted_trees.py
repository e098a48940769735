"""Boosted trees: splits by brute force, evaluation by walking down, boosting by its purpose."""

import numpy as np
import pytest

from ddh.hashers.boosted_trees import (
    BINS,
    CHUNK_ROWS,
    BinnedFeatures,
    best_splits,
    boost,
    evaluate,
    grow,
    heaviest,
    stack,
)


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(CHUNK_ROWS * 2 + 5, 4)).astype(np.float32)


def walk(x, features, thresholds, values):
    """One row down one tree."""
    node = 0
    while node < len(features):
        node = 2 * node + 1 + int(x[features[node]] > thresholds[node])
    return values[node - len(features)]


def test_bins_and_edges_say_the_same(X):
    rounded = np.round(X, 1)  # many equal values, also equal to edges
    for data in (X, rounded):
        binned = BinnedFeatures(data)
        for k in (0, BINS // 3, BINS - 2):
            np.testing.assert_array_equal(binned.bins > k, binned.edges[:, k : k + 1] < data.T)
    counts = np.bincount(BinnedFeatures(X).bins[0], minlength=BINS)
    assert counts.max() <= 2 * len(X) / BINS + 2


def test_best_split_of_all():
    rng = np.random.default_rng(1)
    bins = rng.integers(0, 9, (3, 60)).astype(np.uint8)
    node = rng.integers(0, 2, 60)
    mass = rng.random(60)
    mass /= mass.sum()
    target = rng.choice([-1, 1], 60)
    feature, edge = best_splits(bins, node, mass, mass * target, 2)

    def squares(rows):
        if not rows.any():
            return 0.0
        mean = np.average(target[rows], weights=mass[rows])
        return np.sum(mass[rows] * (target[rows] - mean) ** 2)

    for k in range(2):
        own = node == k
        left = {
            (f, e): squares(own & (bins[f] <= e)) + squares(own & (bins[f] > e))
            for f in range(3)
            for e in range(9)
        }
        assert left[feature[k], edge[k]] == pytest.approx(min(left.values()))


def test_a_node_without_a_split_parts_nothing(X):
    target = np.ones(len(X), np.int8)
    rng = np.random.default_rng(0)
    (_, thresholds, values), leaf = grow(
        BinnedFeatures(X), target, np.full(len(X), 1 / len(X)), 3, 4, rng
    )
    assert np.all(np.isinf(thresholds))
    np.testing.assert_array_equal(leaf, 0)
    assert values[0] == 1


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_evaluation_walks_down_the_trees(X, depth):
    rng = np.random.default_rng(depth)
    target = np.where(X[:, 0] + X[:, 1] * X[:, 2] > 0, 1, -1).astype(np.int8)
    binned = BinnedFeatures(X)
    ensembles = [
        boost(binned, target, trees=3, depth=depth, features=2, rng=rng),
        boost(binned, -target, trees=3, depth=depth, features=2, rng=rng),
    ]
    outputs = evaluate(X, stack(ensembles))
    for e, (features, thresholds, values) in enumerate(ensembles):
        assert features.shape == (3, 2**depth - 1)
        for i in range(0, len(X), 17):
            trees = zip(features, thresholds, values, strict=True)
            assert outputs[i, e] == pytest.approx(sum(walk(X[i], *tree) for tree in trees))


def test_leaves_of_growing_are_those_of_evaluation(X):
    rng = np.random.default_rng(0)
    target = np.where(X[:, 0] > X[:, 1], 1, -1).astype(np.int8)
    weights = rng.random(len(X))
    tree, leaf = grow(BinnedFeatures(X), target, weights / weights.sum(), 4, 3, rng)
    np.testing.assert_allclose(evaluate(X, stack([stack([tree])]))[:, 0], tree[2][leaf])


def test_boosting_learns_what_one_tree_cannot(X):
    target = np.where(X[:, 0] * X[:, 1] * X[:, 2] > 0, 1, -1).astype(np.int8)
    binned = BinnedFeatures(X)

    def wrong(trees):
        rng = np.random.default_rng(0)
        grown = boost(binned, target, trees=trees, depth=2, features=4, rng=rng)
        return np.mean(np.sign(evaluate(X, stack([grown]))[:, 0]) != target)

    assert wrong(1) > 0.3
    assert wrong(80) < 0.05


def test_weight_trimming():
    np.testing.assert_array_equal(heaviest(np.array([0.1, 5, 0.2, 4, 0.1]), 0.9), [1, 3])
    np.testing.assert_array_equal(heaviest(np.ones(10), 1.0), np.arange(10))
