"""Boosted decision trees of one depth, held as plain arrays and evaluated for many rows at once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeRegressor

# rows evaluated together, so that all nodes of one ensemble for them stay in the cache
CHUNK_ROWS = 128
# rows that hold this share of the weight are enough to grow the next tree (weight trimming)
KEPT_WEIGHT = 0.99

# (features (..., trees, nodes), thresholds (..., trees, nodes), values (..., trees, leaves)) in
# heap order: the children of node i are 2i + 1 and 2i + 2; a row goes right where x > threshold.
Trees = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]


def boost(
    X: NDArray[np.float32],
    target: NDArray[np.int8],
    *,
    trees: int,
    depth: int,
    features: int,
    rng: np.random.Generator,
) -> Trees:
    """Gentle AdaBoost (Friedman, Hastie & Tibshirani 2000): trees whose sum has the target's sign.

    Each tree regresses the target (-1, +1) under weights exp(-target * sum so far), and tries
    `features` random features a split.
    """
    score = np.zeros(len(X))
    grown = []
    for _ in range(trees):
        weights = np.exp((-target * score).clip(-30, 30))
        rows = heaviest(weights, KEPT_WEIGHT)
        tree = DecisionTreeRegressor(
            max_depth=depth,
            max_features=min(features, X.shape[1]),
            random_state=int(rng.integers(2**31)),
        )
        tree.fit(X[rows], target[rows], sample_weight=weights[rows], check_input=False)
        score += tree.predict(X, check_input=False)
        grown.append(complete_tree(tree.tree_, depth))
    return stack(grown)


def stack(parts: list[Trees]) -> Trees:
    """Trees into an ensemble, or ensembles into several, along a new first axis."""
    features, thresholds, values = zip(*parts, strict=True)
    return np.stack(features), np.stack(thresholds), np.stack(values)


def heaviest(weights: NDArray[np.float64], share: float) -> NDArray[np.intp]:
    """The fewest rows that hold `share` of the weight, in order."""
    order = np.argsort(-weights, kind="stable")
    total = np.cumsum(weights[order])
    return np.sort(order[: np.searchsorted(total, share * total[-1]) + 1])


def complete_tree(tree: Any, depth: int) -> Trees:
    """A scikit-learn tree as a complete one of `depth` levels: a leaf higher up is repeated."""
    features, thresholds = [], []
    nodes = np.array([0])
    for _ in range(depth):
        inner = tree.children_left[nodes] >= 0
        features.append(np.where(inner, tree.feature[nodes], 0))
        thresholds.append(np.where(inner, tree.threshold[nodes], np.inf))
        left = np.where(inner, tree.children_left[nodes], nodes)
        right = np.where(inner, tree.children_right[nodes], nodes)
        nodes = np.stack([left, right], axis=1).ravel()
    return (
        np.concatenate(features).astype(np.int32),
        round_down(np.concatenate(thresholds)),
        tree.value[nodes, 0, 0].astype(np.float32),
    )


def round_down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 not above each value: no float32 x changes sides of the threshold."""
    nearest = values.astype(np.float32)
    return np.where(nearest > values, np.nextafter(nearest, np.float32(-np.inf)), nearest)


def evaluate(X: NDArray[np.floating], trees: Trees) -> NDArray[np.float32]:
    """Sums of the trees' values, (rows, ensembles), for arrays (ensembles, trees, ...).

    From the deepest level up, each node takes the value of the child its test points to, for all
    trees and rows of a chunk at once.
    """
    features, thresholds, values = trees
    out = np.empty((len(X), len(features)), np.float32)
    for start in range(0, len(X), CHUNK_ROWS):
        rows = slice(start, start + CHUNK_ROWS)
        columns = np.ascontiguousarray(X[rows].T, np.float32)
        for e in range(len(features)):
            right = columns[features[e]] > thresholds[e][..., None]
            level: NDArray[np.float32] = values[e][..., None]
            while level.shape[1] > 1:
                first = level.shape[1] // 2 - 1
                tests = right[:, first : 2 * first + 1]
                level = np.where(tests, level[:, 1::2], level[:, ::2])
            out[rows, e] = level[:, 0].sum(axis=0)
    return out
