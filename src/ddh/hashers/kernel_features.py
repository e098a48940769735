"""Gaussian kernels between rows and a few anchor rows, the features of KSH and SDH."""

from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.linear_algebra import Reals, column_means
from ddh.hashers.base import Floats, Hasher


class KernelHasher(Hasher):
    """A method on Gaussian kernels of width `width_` with the rows `anchors_`."""

    width_: float = field(init=False)

    def _draw_anchors(self, X: Floats, count: int, rng: np.random.Generator) -> float:
        """Draw `mean_` and `anchors_`; the mean squared distance, to choose the width by."""
        self.mean_ = column_means(X)
        self.anchors_ = draw_anchors(X, self.mean_, count, rng)
        return mean_squared_distance(X, self.mean_, self.anchors_)

    def _kernel(self, X: Floats) -> Reals:
        return gaussian_kernel(X, self.mean_, self.anchors_, self.width_)


def draw_anchors(X: NDArray[Any], origin: Reals, count: int, rng: np.random.Generator) -> Reals:
    """`count` random rows or all; moved to `origin`, the mean, which keeps rounding small."""
    rows = np.sort(rng.choice(len(X), min(count, len(X)), replace=False))
    return X[rows] - origin


def mean_squared_distance(X: NDArray[Any], origin: Reals, anchors: Reals) -> float:
    """Mean of ||x - a||^2 for `origin` the mean of X: no mixed term; 1 for data without spread."""
    variance = X.var(axis=0, dtype=np.float64, mean=origin[None]).sum()
    mean = float(variance + np.square(anchors).sum(axis=1).mean())
    return mean if mean > 0 else 1.0


def gaussian_kernel(X: NDArray[Any], origin: Reals, anchors: Reals, width: float) -> Reals:
    """exp(-||x - a||^2 / (2 width)), (rows, anchors), in float64."""
    centred = X - origin
    norms = np.einsum("ij,ij->i", centred, centred)[:, None]
    squared = norms - 2 * (centred @ anchors.T) + np.square(anchors).sum(axis=1)
    np.maximum(squared, 0, out=squared)
    return np.exp(squared / (-2 * width), out=squared)
