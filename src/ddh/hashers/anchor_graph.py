"""Anchors of the graph methods (AGH, IMH), and how close each row is to its nearest ones."""

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.linear_algebra import BLOCK_ROWS, Reals, column_means
from ddh._core.spans import spans
from ddh.hashers.base import Floats, Hasher

CLUSTERED_ROWS = 20_000
CLUSTER_ITERATIONS = 25


def cluster_centres(
    X: Floats, origin: Reals, count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Centres of k-means over at most 20,000 random rows, moved to `origin`; no two are equal."""
    from sklearn.cluster import KMeans

    chosen = np.sort(rng.choice(len(X), min(len(X), CLUSTERED_ROWS), replace=False))
    rows = np.unique(X[chosen] - origin, axis=0)
    if len(rows) <= count:
        return rows
    seed = int(rng.integers(2**31))
    model = KMeans(count, n_init=1, max_iter=CLUSTER_ITERATIONS, random_state=seed)
    centres: Reals = model.fit(rows).cluster_centers_
    return np.unique(centres.astype(np.float64), axis=0)


def nearest_anchors(
    X: Floats, origin: Reals, anchors: Reals, count: int
) -> tuple[NDArray[np.intp], Reals]:
    """(columns, squared distances), each (rows, count): the nearest anchors of each row."""
    centred = X - origin
    norms = np.einsum("ij,ij->i", centred, centred)[:, None]
    squared = norms - 2 * (centred @ anchors.T) + np.square(anchors).sum(axis=1)
    np.maximum(squared, 0, out=squared)
    # Rounding depends on the size of a block; coarser numbers keep the choice of anchors from it.
    squared = np.round(squared / self_scale(anchors), 9) * self_scale(anchors)
    nearest = np.argsort(squared, axis=1, kind="stable")[:, :count]
    return nearest, np.take_along_axis(squared, nearest, axis=1)


def self_scale(anchors: Reals) -> float:
    """The mean squared length of the anchors, 1 where they have none."""
    size = float(np.square(anchors).sum(axis=1).mean())
    return size if size > 0 else 1.0


class AnchorHasher(Hasher):
    """A method whose outputs are weighted means of values at the `nearest` anchors of a row.

    The weights are Gaussian kernels exp(-||x - a||^2 / `width_`), scaled to sum 1.
    """

    anchors: int = 300
    nearest: int = 5

    mean_: Reals = field(init=False)
    anchors_: Reals = field(init=False)
    values_: Reals = field(init=False)
    width_: float = field(init=False)

    def _find_anchors(self, X: Floats, rng: np.random.Generator) -> None:
        """Cluster the rows; the width is the mean squared distance to the last nearest anchor."""
        if self.anchors < 2 or self.nearest < 1:
            raise InputError(
                f"anchors must be 2 or more and nearest 1 or more, not {self.anchors} and "
                f"{self.nearest}"
            )
        self.mean_ = column_means(X)
        self.anchors_ = cluster_centres(X, self.mean_, self.anchors, rng)
        farthest = [
            nearest_anchors(X[rows], self.mean_, self.anchors_, self.nearest)[1][:, -1].sum()
            for rows in spans(len(X), BLOCK_ROWS)
        ]
        self.width_ = float(np.sum(farthest) / len(X)) or 1.0

    def _weights(self, X: Floats) -> tuple[NDArray[np.intp], Reals]:
        """(columns, weights), each (rows, nearest): a row of the matrix Z, which sums to 1."""
        columns, squared = nearest_anchors(X, self.mean_, self.anchors_, self.nearest)
        # Relative to the nearest one, so that a row far from all anchors has weights too.
        weights = np.exp(-(squared - squared[:, :1]) / self.width_)
        return columns, weights / weights.sum(axis=1, keepdims=True)

    def _anchor_means(self, X: Floats) -> Reals:
        """Z times the values at the anchors."""
        columns, weights = self._weights(X)
        return np.einsum("ij,ijk->ik", weights, self.values_[columns])


def without_noise(values: Reals) -> Reals:
    """Entries below a billionth of the largest of their column are rounding: exactly 0."""
    return np.where(np.abs(values) > 1e-9 * np.abs(values).max(axis=0, initial=0), values, 0.0)
