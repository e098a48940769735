"""Gaussian kernels between rows and a few anchor rows, the features of KSH and SDH."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh.hashers.linear_algebra import Reals


def draw_anchors(X: NDArray[Any], origin: Reals, count: int, rng: np.random.Generator) -> Reals:
    """`count` random rows (all, where there are fewer), moved to `origin`.

    Distances do not depend on the origin; the mean of the data keeps their rounding small.
    """
    rows = np.sort(rng.choice(len(X), min(count, len(X)), replace=False))
    return X[rows] - origin


def mean_squared_distance(X: NDArray[Any], origin: Reals, anchors: Reals) -> float:
    """Mean of ||x - a||^2 over all rows and anchors, for `origin` the mean of X.

    The mixed term vanishes, so that no distance has to be computed; 1 for data without spread.
    """
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
