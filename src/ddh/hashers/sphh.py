"""Heo, Lee, He, Chang & Yoon (2012), "Spherical hashing"."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh._core.linear_algebra import BLOCK_ROWS, Reals, column_means, halving_thresholds
from ddh._core.spans import spans
from ddh.hashers.base import Floats, Hasher

PIVOT_ROWS = 5
# the paper's tolerances on |o_ij - n/4|, as shares of n/4 (Sec. 3.3)
MEAN_TOLERANCE = 0.10
STD_TOLERANCE = 0.15


class SphH(Hasher):
    """A bit says whether a point lies inside a sphere.

    Each sphere holds half of the points and each two of them share a quarter, which balances the
    bits and makes them independent (Sec. 3.3). Spheres that share too much push each other away,
    those that share too little attract. `balanced_` tells whether the paper's tolerances were met.
    Codes work with the Hamming distance; `spherical_distance` is the paper's own. More bits than
    dimensions are fine. Memory: a few n x bits arrays.

    Parameters
    ----------
    iterations : int
        Largest number of moves of all spheres; they stop once the tolerances are met.
    """

    title = "Spherical hashing"
    kind = "unsupervised"
    paper = "Heo, Lee, He, Chang & Yoon, Spherical hashing, CVPR"
    year = 2012

    iterations: int = 100

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        # distances do not depend on the origin; the mean as origin keeps their rounding small
        self.mean_ = column_means(X)
        few = min(PIVOT_ROWS, len(X))
        rows = np.stack([rng.choice(len(X), few, replace=False) for _ in range(self.bits)])
        start = X[rows].astype(np.float64).mean(axis=1) - self.mean_
        products, norms = self._products(X, start)
        gram = start @ start.T
        # Pivots stay in the span of the first ones, pivots = T start: all distances follow from
        # the n x bits products with `start`, and X is not read again.
        T = np.eye(self.bits)
        self.iterations_ = 0
        while True:
            distances = squared_distances(products @ T.T, norms, np.diag(T @ gram @ T.T))
            shared = shared_points(distances)
            self.balanced_ = is_balanced(shared, len(X))
            if self.balanced_ or self.iterations_ == self.iterations:
                break
            T += forces(shared, T, len(X))
            self.iterations_ += 1
        self.pivots_ = T @ start
        self.squared_radii_ = -halving_thresholds(-distances)

    def _products(self, X: Floats, pivots: Reals) -> tuple[Reals, Reals]:
        """(centred rows times pivots, squared norms of centred rows), in float64 like encoding."""
        products, norms = np.empty((len(X), len(pivots))), np.empty(len(X))
        for rows in spans(len(X), BLOCK_ROWS):
            block = X[rows] - self.mean_
            products[rows] = block @ pivots.T
            norms[rows] = np.einsum("ij,ij->i", block, block)
        return products, norms

    def _outputs(self, X: Floats) -> Floats:
        products, norms = self._products(X, self.pivots_)
        pivot_norms = np.square(self.pivots_).sum(axis=1)
        return self.squared_radii_ - squared_distances(products, norms, pivot_norms)


def squared_distances(products: Reals, norms: Reals, pivot_norms: Reals) -> Reals:
    """||x||^2 - 2 x.p + ||p||^2, (n, bits)."""
    return norms[:, None] - 2 * products + pivot_norms


def shared_points(distances: Reals) -> Reals:
    """o_ij, the points inside both spheres i and j when each sphere holds half of the points."""
    inside = (distances <= np.median(distances, axis=0)).astype(np.float32)
    return (inside.T @ inside).astype(np.float64)


def is_balanced(shared: Reals, n: int) -> bool:
    """The paper's stopping rule: pairs of spheres share n/4 points, on average and nearly all."""
    pairs = shared[np.triu_indices(len(shared), 1)]
    if not pairs.size:
        return True
    quarter = n / 4
    close = np.abs(pairs - quarter).mean() <= MEAN_TOLERANCE * quarter
    return bool(close and pairs.std() <= STD_TOLERANCE * quarter)


def forces(shared: Reals, T: Reals, n: int) -> Reals:
    """Mean over j of 1/2 (o_ij - n/4) / (n/4) (p_i - p_j), in the coordinates of T."""
    strength = 0.5 * (shared / (n / 4) - 1)
    np.fill_diagonal(strength, 0)
    return (strength.sum(axis=1)[:, None] * T - strength @ T) / len(T)


def spherical_distance(left: ArrayLike, right: ArrayLike) -> Reals:
    """The paper's Eq. 4 between rows of +-1 codes, with the authors' 0.1 for none in common."""
    a, b = np.asarray(left), np.asarray(right)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise InputError(f"two arrays of +-1 codes of one length are needed: {a.shape}, {b.shape}")
    in_a, in_b = (a > 0).astype(np.float32), (b > 0).astype(np.float32)
    common = in_a @ in_b.T
    different = in_a.sum(axis=1)[:, None] + in_b.sum(axis=1) - 2 * common
    return (different / (common + 0.1)).astype(np.float64)
