"""Boosted decision trees of one depth, grown on binned features and held as plain arrays.

The FastH paper's ways to make boosting quick (Sec. 3.3): feature values in bins, a few random
features tried at a time (LazyBoost), and rows of little weight left out (weight trimming).
"""

import numpy as np
from numpy.typing import NDArray

BINS = 64
# rows evaluated together, so that all nodes of one ensemble for them stay in the cache
CHUNK_ROWS = 128
# rows that hold this share of the weight are enough to grow the next tree
KEPT_WEIGHT = 0.99
# of the whole weight, which is 1: less is rounding
LEAST_MASS = 1e-12
LEAST_GAIN = 1e-12

# (features (..., trees, nodes), thresholds (..., trees, nodes), values (..., trees, leaves)) in
# heap order: the children of node i are 2i + 1 and 2i + 2; a row goes right where x > threshold.
Trees = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]


class BinnedFeatures:
    """Features by the bin that each value falls into.

    `edges` (d, BINS - 1) are values of the data at even ranks; x is in bin b where b edges of
    its feature are below x, so that bin > k says the same as x > edges[k]. `bins` is (d, rows).
    """

    def __init__(self, X: NDArray[np.float32]) -> None:
        ranks = np.arange(1, BINS) * (len(X) - 1) // BINS
        columns = np.ascontiguousarray(X.T)
        self.edges = np.sort(columns, axis=1)[:, ranks]
        self.bins = np.empty(columns.shape, np.uint8)
        for edges, values, bins in zip(self.edges, columns, self.bins, strict=True):
            bins[:] = np.searchsorted(edges, values)


def boost(
    X: BinnedFeatures,
    target: NDArray[np.int8],
    *,
    trees: int,
    depth: int,
    features: int,
    rng: np.random.Generator,
) -> Trees:
    """Gentle AdaBoost (Friedman, Hastie & Tibshirani 2000): trees whose sum has the target's sign.

    Each tree regresses the target (-1, +1) under weights exp(-target * sum so far), and tries
    `features` random features a level.
    """
    score = np.zeros(len(target))
    grown = []
    for _ in range(trees):
        weights = np.exp((-target * score).clip(-30, 30))
        weights /= weights.sum()
        tree, leaf = grow(X, target, weights, depth, features, rng)
        score += tree[2][leaf]
        grown.append(tree)
    return stack(grown)


def grow(
    X: BinnedFeatures,
    target: NDArray[np.int8],
    weights: NDArray[np.float64],
    depth: int,
    features: int,
    rng: np.random.Generator,
) -> tuple[Trees, NDArray[np.intp]]:
    """(one regression tree, the leaf of each row), level by level, all nodes of a level at once."""
    rows = heaviest(weights, KEPT_WEIGHT)
    mass, moment = weights[rows], weights[rows] * target[rows]
    node, every_row = np.zeros(len(target), np.intp), np.arange(len(target))
    tried, thresholds = [], []
    for level in range(depth):
        chosen = rng.choice(len(X.bins), min(features, len(X.bins)), replace=False)
        bins = X.bins[chosen]
        feature, edge = best_splits(bins[:, rows], node[rows], mass, moment, 2**level)
        # the last bin is no edge: all rows are left of it
        inner = edge < BINS - 1
        tried.append(chosen[feature])
        values = X.edges[chosen[feature], np.minimum(edge, BINS - 2)]
        thresholds.append(np.where(inner, values, np.float32(np.inf)))
        node = 2 * node + (bins[feature[node], every_row] > edge[node])
    leaf_mass = np.bincount(node[rows], mass, 2**depth)
    leaf_moment = np.bincount(node[rows], moment, 2**depth)
    means = np.divide(leaf_moment, leaf_mass, out=np.zeros(2**depth), where=leaf_mass > 0)
    features_of_nodes = np.concatenate(tried).astype(np.int32)
    return (features_of_nodes, np.concatenate(thresholds), means.astype(np.float32)), node


def best_splits(
    bins: NDArray[np.uint8],
    node: NDArray[np.intp],
    mass: NDArray[np.float64],
    moment: NDArray[np.float64],
    nodes: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Per node the (feature, edge) whose two sides are explained best by their means.

    Sums over each (node, feature, bin) and their running totals give moment^2 / mass of both
    sides of every edge; a node that no edge betters gets the last bin, which parts nothing.
    """
    features = len(bins)
    cell = (node * features + np.arange(features)[:, None]) * BINS + bins
    left_mass, left_moment = (
        np.bincount(cell.ravel(), np.tile(part, features), nodes * features * BINS)
        .reshape(nodes, features, BINS)
        .cumsum(axis=2)
        for part in (mass, moment)
    )
    right_mass = left_mass[:, :, -1:] - left_mass
    right_moment = left_moment[:, :, -1:] - left_moment
    whole = explained(left_moment[:, :1, -1:], left_mass[:, :1, -1:])
    gain = explained(left_moment, left_mass) + explained(right_moment, right_mass) - whole
    best = gain.reshape(nodes, -1).argmax(axis=1)
    feature, edge = np.divmod(best, BINS)
    worthwhile = gain.reshape(nodes, -1)[np.arange(nodes), best] > LEAST_GAIN
    return feature, np.where(worthwhile, edge, BINS - 1)


def explained(moment: NDArray[np.float64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """moment^2 / mass, the part of the squares that a mean explains; 0 where there is no mass."""
    return np.divide(moment**2, mass, out=np.zeros_like(mass), where=mass > LEAST_MASS)


def heaviest(weights: NDArray[np.float64], share: float) -> NDArray[np.intp]:
    """The fewest rows that hold `share` of the weight, in order."""
    order = np.argsort(-weights, kind="stable")
    total = np.cumsum(weights[order])
    return np.sort(order[: np.searchsorted(total, share * total[-1]) + 1])


def stack(parts: list[Trees]) -> Trees:
    """Trees into an ensemble, or ensembles into several, along a new first axis."""
    features, thresholds, values = zip(*parts, strict=True)
    return np.stack(features), np.stack(thresholds), np.stack(values)


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
