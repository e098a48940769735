"""Boosted trees: as arrays they say what scikit-learn's trees say; boosting by its purpose."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from ddh.hashers.boosted_trees import CHUNK_ROWS, boost, complete, evaluate, heaviest, stack


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(CHUNK_ROWS * 2 + 5, 4)).astype(np.float32)


def walk(x, features, thresholds, values):
    """One row down one tree."""
    node = 0
    while node < len(features):
        node = 2 * node + 1 + int(x[features[node]] > thresholds[node])
    return values[node - len(features)]


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_arrays_predict_as_scikit_learns_tree(X, depth):
    """Also for neighbouring float32 values, between which float64 thresholds lie."""
    close = np.nextafter(np.float32(1), np.float32(2)) * np.where(X > 0, 1, np.float32(1) / 3)
    for data in (X, np.round(X, 1), close.astype(np.float32)):
        target = np.where(X[:, 0] > X[:, 1], 1.0, -1.0)
        tree = DecisionTreeRegressor(max_depth=depth, random_state=0).fit(data, target)
        found = evaluate(data, stack([stack([complete(tree.tree_, depth)])]))[:, 0]
        np.testing.assert_allclose(found, tree.predict(data), rtol=1e-6)


def test_a_tree_that_ends_early_parts_nothing(X):
    tree = DecisionTreeRegressor(max_depth=3).fit(X, np.ones(len(X)))
    _, thresholds, values = complete(tree.tree_, 3)
    assert np.all(np.isinf(thresholds))
    assert np.all(values == 1)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_evaluation_walks_down_the_trees(X, depth):
    rng = np.random.default_rng(depth)
    target = np.where(X[:, 0] + X[:, 1] * X[:, 2] > 0, 1, -1).astype(np.int8)
    ensembles = [
        boost(X, target, trees=3, depth=depth, features=2, rng=rng),
        boost(X, -target, trees=3, depth=depth, features=2, rng=rng),
    ]
    outputs = evaluate(X, stack(ensembles))
    for e, (features, thresholds, values) in enumerate(ensembles):
        assert features.shape == (3, 2**depth - 1)
        for i in range(0, len(X), 17):
            trees = zip(features, thresholds, values, strict=True)
            assert outputs[i, e] == pytest.approx(sum(walk(X[i], *tree) for tree in trees))


def test_boosting_learns_what_one_tree_cannot(X):
    target = np.where(X[:, 0] * X[:, 1] * X[:, 2] > 0, 1, -1).astype(np.int8)

    def wrong(trees):
        rng = np.random.default_rng(0)
        grown = boost(X, target, trees=trees, depth=2, features=4, rng=rng)
        return np.mean(np.sign(evaluate(X, stack([grown]))[:, 0]) != target)

    assert wrong(1) > 0.3
    assert wrong(80) < 0.05


def test_weight_trimming():
    weights = np.array([0.5, 50, 0.2, 49, 0.3])
    np.testing.assert_array_equal(heaviest(weights), [0, 50, 0, 49, 0] * (weights > 0))
    np.testing.assert_array_equal(heaviest(np.ones(10)), np.ones(10))
