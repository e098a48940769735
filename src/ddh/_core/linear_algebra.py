"""Means, covariances, principal components, ridge and thresholds that the shallow methods share,
by blocks of rows: beside the features they hold d x d and n x bits arrays."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import DTypeLike, NDArray

from ddh._core.arrays import sgn
from ddh._core.errors import InputError
from ddh._core.spans import spans

Reals = NDArray[np.float64]

BLOCK_ROWS = 4096
# up to here a full dense eigendecomposition is the quickest
DENSE_DIMENSIONS = 128

# A variance below this share of the largest is rounding, not data.
NEGLIGIBLE_VARIANCE = 1e-10


def column_means(X: NDArray[Any]) -> Reals:
    """Means in float64, exact for constant columns: these centre to zero and not to noise."""
    mean = X.mean(axis=0, dtype=np.float64)
    # most columns are ruled out by three of their rows
    maybe = np.flatnonzero((X[0] == X[-1]) & (X[0] == X[len(X) // 2]))
    constant = maybe[(X[:, maybe] == X[0, maybe]).all(axis=0)]
    mean[constant] = X[0, constant]
    return mean


def centred_blocks(
    X: NDArray[Any], mean: Reals | float, dtype: DTypeLike | None = None
) -> Iterator[tuple[slice, NDArray[np.floating[Any]]]]:
    """Blocks of X - mean, by default in the precision of X, each with its rows."""
    centre = np.asarray(mean, dtype or X.dtype)
    for rows in spans(len(X), BLOCK_ROWS):
        yield rows, X[rows] - centre


def covariance(X: NDArray[Any]) -> tuple[Reals, Reals]:
    """(mean, X^T X / n of the centred rows); blocks in the precision of X, summed in float64."""
    mean = column_means(X)
    total = np.zeros((X.shape[1], X.shape[1]))
    for _, block in centred_blocks(X, mean):
        total += block.T @ block
    return mean, total / len(X)


def project(
    X: NDArray[Any], mean: Reals, projection: NDArray[np.floating[Any]]
) -> NDArray[np.floating[Any]]:
    """(X - mean) @ projection in the precision of X."""
    matrix = projection.astype(X.dtype)
    out = np.empty((len(X), matrix.shape[1]), X.dtype)
    for rows, block in centred_blocks(X, mean):
        np.matmul(block, matrix, out=out[rows])
    return out


def principal_components(X: NDArray[Any], count: int) -> tuple[Reals, Reals, Reals]:
    """(mean, components (d, count), variances), largest first; signs fixed so that runs repeat.

    A component without variance is zero: its bit is +1 instead of the sign of rounding errors.
    """
    require_dimensions(count, X.shape[1])
    mean, matrix = covariance(X)
    variances, components = top_eigenvectors(matrix, count)
    kept = variances > NEGLIGIBLE_VARIANCE * max(variances[0], 0.0)
    return mean, np.where(kept, components, 0.0), np.where(kept, variances, 0.0)


def without_empty_columns(projection: Reals, matrix: Reals) -> Reals:
    """Zero the columns along which data of covariance `matrix` do not vary: their bit is +1."""
    variances = np.einsum("ij,ij->j", projection, matrix @ projection)
    lengths = np.square(projection).sum(axis=0)
    return np.where(variances > NEGLIGIBLE_VARIANCE * np.trace(matrix) * lengths, projection, 0.0)


def require_dimensions(bits: int, dimensions: int) -> None:
    """Refuse more bits than dimensions, for the methods that have one direction per bit."""
    if bits > dimensions:
        raise InputError(
            f"{bits} bits need at least {bits} dimensions, but these have {dimensions} feature(s); "
            "ask for fewer bits or use a method without this limit, such as LSH"
        )


def top_eigenvectors(matrix: Reals, count: int) -> tuple[Reals, Reals]:
    """(eigenvalues, eigenvectors (d, count)) of a symmetric matrix, largest first, signs fixed."""
    d = len(matrix)
    if d <= DENSE_DIMENSIONS:
        values, vectors = np.linalg.eigh(matrix)
    else:
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[d - count, d - 1])
    return values[: -count - 1 : -1], fix_signs(vectors[:, : -count - 1 : -1])


def top_eigenvector(product: Callable[[Reals], Reals], d: int) -> Reals:
    """The eigenvector of the largest eigenvalue of a symmetric d x d operator, sign fixed."""
    if d <= DENSE_DIMENSIONS:
        return top_eigenvectors(product(np.eye(d)), 1)[1][:, 0]
    operator = scipy.sparse.linalg.LinearOperator((d, d), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(d)
    _, vectors = scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=start, tol=1e-8)
    return fix_signs(vectors)[:, 0]


def fix_signs(vectors: Reals) -> Reals:
    """Turn each column so that its entry of largest size is positive."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0, -1.0, 1.0)


def random_rotation(size: int, rng: np.random.Generator) -> Reals:
    """A rotation drawn evenly (QR of a Gaussian matrix, signs of R's diagonal removed)."""
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


def best_rotation(V: NDArray[np.float32], R: Reals, iterations: int) -> tuple[Reals, Reals]:
    """(R, ||B - V R||^2 after each iteration): codes B = sgn(V R), then R by Procrustes.

    R (components, bits) has orthonormal columns, or rows where there are more bits."""
    energy = float(np.square(V, dtype=np.float64).sum())
    losses = np.empty(iterations)
    for i in range(iterations):
        B = sgn(V @ R.astype(np.float32), np.float32)
        P, singular, Qt = np.linalg.svd((B.T @ V).astype(np.float64), full_matrices=False)
        R = (P @ Qt).T
        # ||B - VR||^2 = ||B||^2 + ||V||^2 - 2 tr(R^T V^T B), and the trace is sum(singular)
        losses[i] = B.size + energy - 2.0 * float(singular.sum())
    return R, losses


class Ridge:
    """Ridge regression on the columns of A - centre: (A^T A + penalty I)^-1 A^T targets.

    A is factored once, for as many targets as there are. In float64 throughout, block by block:
    the rounding of a float32 product can outweigh a small penalty.
    """

    def __init__(
        self, A: NDArray[np.floating[Any]], penalty: float, centre: Reals | float = 0.0
    ) -> None:
        self.A, self.centre = A, centre
        gram = penalty * np.eye(A.shape[1])
        for _, block in centred_blocks(A, centre, np.float64):
            gram += block.T @ block
        self.factor = scipy.linalg.cho_factor(gram, overwrite_a=True)

    def coefficients(self, targets: NDArray[Any]) -> Reals:
        """(columns of A, columns of targets)."""
        moments = np.zeros((self.A.shape[1], targets.shape[1]))
        for rows, block in centred_blocks(self.A, self.centre, np.float64):
            moments += block.T @ targets[rows]
        return scipy.linalg.cho_solve(self.factor, moments)


def halving_thresholds(values: NDArray[np.floating[Any]]) -> Reals:
    """Per column the middle of the gap between two rows that is nearest to the median: no row sits
    on it, so rounding cannot turn a bit. Below all rows of a constant column."""
    ordered = np.sort(values.astype(np.float64), axis=0)
    n = len(ordered)
    spread = ordered[-1] - ordered[0]
    scale = np.abs(ordered).max(axis=0) + np.finfo(np.float64).tiny
    open_gap = np.diff(ordered, axis=0) > 1e-9 * np.maximum(spread, 1e-3 * scale)
    imbalance = np.abs(np.arange(1, n) - n / 2)
    below = np.where(open_gap, imbalance[:, None], n).argmin(axis=0)
    columns = np.arange(values.shape[1])
    middle = (ordered[below, columns] + ordered[below + 1, columns]) / 2
    return np.where(open_gap.any(axis=0), middle, ordered[0] - 1e-6 * scale)
