"""Principal components for the shallow methods, in memory that does not grow with the rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh.errors import InputError

BLOCK_ROWS = 4096


def covariance(X: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(mean, X^T X / n of the centred rows), accumulated in float64 over blocks of rows."""
    mean = X.mean(axis=0, dtype=np.float64)
    total = np.zeros((X.shape[1], X.shape[1]))
    for start in range(0, len(X), BLOCK_ROWS):
        block = X[start : start + BLOCK_ROWS] - mean
        total += block.T @ block
    return mean, total / len(X)


def principal_components(
    X: NDArray[Any], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(mean, components (d, count), variances), largest first; signs fixed so that runs repeat."""
    if count > X.shape[1]:
        raise InputError(
            f"{count} bits need at least {count} dimensions, the features have {X.shape[1]}; "
            "ask for fewer bits or use a method without this limit, such as LSH"
        )
    mean, matrix = covariance(X)
    values, vectors = np.linalg.eigh(matrix)
    variances, components = values[::-1][:count], vectors[:, ::-1][:, :count]
    return mean, fix_signs(components), np.maximum(variances, 0.0)


def fix_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn each column so that its entry of largest size is positive."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0, -1.0, 1.0)


def random_rotation(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A rotation drawn evenly (QR of a Gaussian matrix, signs of R's diagonal removed)."""
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    return q * np.sign(np.diag(r))
