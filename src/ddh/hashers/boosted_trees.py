"""Boosted decision trees of one depth: grown by scikit-learn, held and evaluated as plain arrays,
with the FastH paper's LazyBoost and weight trimming (Sec. 3.3)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeRegressor

# rows evaluated together, so that all nodes of one ensemble for them stay in the cache
CHUNK_ROWS = 128
# rows that hold this share of the weight are enough to grow the next tree
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
    """Gentle AdaBoost (Friedman, Hastie & Tibshirani 2000): trees whose sum has the target's
    sign."""
    score, grown = np.zeros(len(target)), []
    column = target.astype(np.float64)[:, None]
    for _ in range(trees):
        weights = np.exp((-target * score).clip(-30, 30))
        tree = DecisionTreeRegressor(
            max_depth=depth,
            max_features=min(features, X.shape[1]),
            random_state=int(rng.integers(2**31)),
        )
        tree.fit(X, column, sample_weight=heaviest(weights / weights.sum()), check_input=False)
        score += tree.predict(X, check_input=False)
        grown.append(complete(tree.tree_, depth))
    return stack(grown)


def heaviest(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights, 0 for all but the fewest rows that hold `KEPT_WEIGHT` of their sum."""
    order = np.argsort(-weights, kind="stable")
    total = np.cumsum(weights[order])
    trimmed = weights.copy()
    trimmed[order[np.searchsorted(total, KEPT_WEIGHT * total[-1]) + 1 :]] = 0
    return trimmed


def complete(tree: Any, depth: int) -> Trees:
    """A grown tree in heap order; where it ends early, all rows go left to the same leaf."""
    inner = 2**depth - 1
    node = np.zeros(2 * inner + 1, np.intp)
    for place in range(inner):
        left, right = tree.children_left[node[place]], tree.children_right[node[place]]
        node[2 * place + 1 : 2 * place + 3] = (left, right) if left >= 0 else node[place]
    ends = tree.children_left[node[:inner]] < 0
    exact = np.where(ends, np.inf, tree.threshold[node[:inner]])
    thresholds = exact.astype(np.float32)
    above = thresholds > exact  # rounding must not move a threshold past a value of the data
    thresholds[above] = np.nextafter(thresholds[above], np.float32(-np.inf))
    features = np.where(ends, 0, tree.feature[node[:inner]]).astype(np.int32)
    return features, thresholds, tree.value[node[inner:], 0, 0].astype(np.float32)


def stack(parts: list[Trees]) -> Trees:
    """Trees into an ensemble, or ensembles into several, along a new first axis."""
    features, thresholds, values = zip(*parts, strict=True)
    return np.stack(features), np.stack(thresholds), np.stack(values)


def evaluate(X: NDArray[Any], trees: Trees) -> NDArray[np.float32]:
    """Sums of the trees' values, (rows, ensembles), for arrays (ensembles, trees, ...)."""
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
