"""Zhang, Zhang, Li & Guo (2014), "Supervised hashing with latent factor models"."""

import numpy as np
import scipy.special
from numpy.typing import NDArray

from ddh._core.arrays import sgn
from ddh._core.labels import indicators
from ddh._core.linear_algebra import Reals, Ridge, column_means
from ddh._core.progress import track
from ddh.hashers.base import Floats, LinearHasher
from ddh.hashers.label_pairs import labelled_rows

# the paper takes as many columns as bits, which is too noisy for short codes
LEAST_COLUMNS = 64


class LFH(LinearHasher):
    """Latent factors U whose products say how likely two rows share a label.

    Maximises sum_ij [s_ij T_ij - log(1 + e^T_ij)] - ||U||^2 / (2 `beta`), T = U U^T / 2 (Eq. 3),
    by steps on a quadratic lower bound, over random columns j at a time (Sec. 3.3). The codes
    sgn(U) are then predicted by ridge regression (Sec. 3.4), which is what encodes, training rows
    included. Rows of class -1 are left out. More bits than dimensions are fine. Memory: d x d,
    and n x bits a few times.

    Parameters
    ----------
    beta : float
        Variance of the prior of the factors.
    ridge : float
        Penalty of the regression.
    iterations : int
        Updates of all factors.
    columns : int, optional
        Columns per update; by default as many as bits, at least 64.
    """

    title = "Latent factor hashing"
    kind = "supervised"
    labels = "required"
    paper = "Zhang, Zhang, Li & Guo, Supervised hashing with latent factor models, SIGIR"
    year = 2014

    beta: float = 30.0
    ridge: float = 1.0
    iterations: int = 50
    columns: int | None = None

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        assert y is not None
        rows = labelled_rows(y, None, rng)
        if len(rows) < len(X):
            X = X[rows]
        U = self._latent_factors(indicators(y)[rows], rng)
        self.mean_ = column_means(X)
        self.projection_ = Ridge(X, self.ridge, self.mean_).coefficients(sgn(U))

    def _latent_factors(self, labels: NDArray[np.float32], rng: np.random.Generator) -> Reals:
        n = len(labels)
        count = min(self.columns or max(self.bits, LEAST_COLUMNS), n)
        U = rng.standard_normal((n, self.bits))
        for _ in track(range(self.iterations), "Latent factors"):
            J = rng.choice(n, count, replace=False)
            shares = labels @ labels[J].T > 0
            U = bound_step(U, U[J], shares, self.beta)
        return U


def bound_step(U: Reals, U_J: Reals, S_J: NDArray[np.bool_], beta: float) -> Reals:
    """The maximum of the lower bound with the constant Hessian H of Theorem 1, for every row; as
    a(1 - a) <= 1/4 bounds the true Hessian, the likelihood of no row falls."""
    gradient = pair_gradient(U, U_J, S_J, beta)
    H = -(U_J.T @ U_J) / 8 - np.eye(U.shape[1]) / beta
    return U - np.linalg.solve(H, gradient.T).T


def pair_gradient(U: Reals, U_J: Reals, S_J: NDArray[np.bool_], beta: float) -> Reals:
    """(S - A) U_J - U / beta with A = sigma(U U_J^T / 2)."""
    A = scipy.special.expit(U @ U_J.T / 2)
    return (S_J - A) @ U_J - U / beta
