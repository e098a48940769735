"""Small array functions that several packages share: signs, unit rows, standardisation."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ddh._core.spans import spans

BLOCK = 8192  # rows at a time


def sgn(values: NDArray[Any], dtype: DTypeLike = np.int8) -> NDArray[Any]:
    """The paper's Eq. 4: +1 where a value is >= 0, -1 elsewhere; sgn(0) = +1."""
    one = np.ones((), dtype)
    return np.where(values >= 0, one, -one)


def l2_normalize(features: NDArray[Any]) -> NDArray[np.float32]:
    """A copy of the rows with length 1; rows of zeros stay. Memory: 4 bytes per value."""
    unit = np.empty(features.shape, np.float32)
    for rows in spans(len(features), BLOCK):
        part = np.asarray(features[rows], np.float32)
        length = np.linalg.norm(part, axis=1, keepdims=True)
        unit[rows] = part / np.where(length > 0, length, 1)
    return unit


def mean_and_scale(
    features: NDArray[Any], *, per_dimension: bool = True
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(mean, standard deviation) per dimension, each (d,), for `standardize`.

    With `per_dimension=False` all dimensions share one scale, the root of the mean variance. A
    constant dimension gets scale 1, so that rounding is not blown up to variance one.
    """
    mean = features.mean(axis=0, dtype=np.float64)
    variance = np.zeros(features.shape[1])
    for rows in spans(len(features), BLOCK):
        variance += np.square(features[rows] - mean).sum(axis=0)
    variance /= len(features)
    constant = variance <= np.finfo(np.float32).eps * np.square(mean)
    if not per_dimension:
        variance = np.full_like(variance, variance.mean())
        constant = np.full_like(constant, constant.all())
    return mean, np.sqrt(np.where(constant, 1.0, variance))


def standardize(
    features: NDArray[Any], mean: NDArray[np.floating], scale: NDArray[np.floating]
) -> NDArray[np.float32]:
    """(features - mean) / scale as float32, block by block."""
    out = np.empty(features.shape, np.float32)
    for rows in spans(len(features), BLOCK):
        out[rows] = (features[rows] - mean) / scale
    return out
