"""Trees as arrays against scikit-learn's own trees."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from ddh.hashers.boosted_trees import (
    CHUNK_ROWS,
    boost,
    complete_tree,
    evaluate,
    heaviest,
    round_down,
    stack,
)


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(CHUNK_ROWS * 2 + 5, 4)).astype(np.float32)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_evaluation_is_that_of_the_tree(X, depth):
    target = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]
    trees = [
        DecisionTreeRegressor(max_depth=depth, min_samples_leaf=9, random_state=s).fit(X, target)
        for s in range(3)
    ]
    ensemble = stack([complete_tree(tree.tree_, depth) for tree in trees])
    two = stack([ensemble, ensemble])
    expected = sum(tree.predict(X) for tree in trees)
    np.testing.assert_allclose(evaluate(X, two), np.stack([expected] * 2, axis=1), rtol=1e-5)


def test_a_tree_without_splits(X):
    tree = DecisionTreeRegressor(max_depth=3).fit(X, np.full(len(X), 2.5)).tree_
    np.testing.assert_array_equal(evaluate(X, stack([stack([complete_tree(tree, 3)])])), 2.5)


def test_thresholds_keep_float32_rows_on_their_side():
    a = np.float32(0.1)
    b = np.nextafter(a, np.float32(1))
    threshold = np.array([(float(a) + float(b)) / 2, float(b) - 1e-12, np.inf])
    lower = round_down(threshold)
    assert np.all(lower <= threshold)
    assert not a > lower[0]
    assert b > lower[0]
    assert b > lower[1]


def test_boosting_learns_what_one_tree_cannot(X):
    target = np.where(X[:, 0] * X[:, 1] * X[:, 2] > 0, 1, -1).astype(np.int8)

    def wrong(trees):
        rng = np.random.default_rng(0)
        grown = boost(X, target, trees=trees, depth=2, features=4, rng=rng)
        return np.mean(np.sign(evaluate(X, stack([grown]))[:, 0]) != target)

    assert wrong(1) > 0.3
    assert wrong(80) < 0.05


def test_weight_trimming():
    np.testing.assert_array_equal(heaviest(np.array([0.1, 5, 0.2, 4, 0.1]), 0.9), [1, 3])
    np.testing.assert_array_equal(heaviest(np.ones(10), 1.0), np.arange(10))
