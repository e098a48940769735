"""Kong & Li (2012), "Isotropic hashing"."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.linear_algebra import Reals, principal_components, random_rotation
from ddh.hashers.base import Floats, LinearHasher

TOLERANCE = 1e-8


class IsoHash(LinearHasher):
    """Principal components, turned so that all of them have the same variance.

    Needs as many dimensions as bits. Memory: one d x d array.

    Parameters
    ----------
    solver : {"lp", "givens"}
        "lp" is the paper's lift and projection (Alg. 1): matrices with the wanted diagonal and
        matrices with the eigenvalues of the data are visited in turns. "givens" sets one variance
        after the other to the mean, exactly, by at most bits - 1 plane rotations; it also
        finishes what "lp" leaves.
    iterations : int
        Largest number of turns of "lp".
    """

    title = "Isotropic hashing"
    kind = "unsupervised"
    paper = "Kong & Li, Isotropic hashing, NIPS"
    year = 2012

    solver: Literal["lp", "givens"] = "lp"
    iterations: int = 200

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        if self.solver not in ("lp", "givens"):
            raise InputError(f"solver is 'lp' or 'givens', not {self.solver!r}")
        self.mean_, components, variances = principal_components(X, self.bits)
        Q = random_rotation(self.bits, rng)
        if self.solver == "lp":
            Q = lift_and_project(variances, Q, self.iterations)
        Q = equalise_by_givens(variances, Q)
        self.variances_ = np.einsum("ij,j,ij->i", Q, variances, Q)
        self.projection_ = components @ Q.T


def lift_and_project(variances: Reals, Q: Reals, iterations: int) -> Reals:
    """Q with diag(Q diag(variances) Q^T) close to constant, by projections in turns (Alg. 1)."""
    mean = variances.mean()
    for _ in range(iterations):
        Z = (Q * variances) @ Q.T
        if np.abs(np.diag(Z) - mean).max() <= TOLERANCE * mean:
            break
        np.fill_diagonal(Z, mean)
        Q = np.linalg.eigh(Z)[1][:, ::-1]
    return Q


def equalise_by_givens(variances: Reals, Q: Reals) -> Reals:
    """Rotate pairs of rows of Q until diag(Q diag(variances) Q^T) is constant.

    One above and one below the mean are turned until the first is at the mean: with t the tangent,
    z_ii + 2 t z_ij + t^2 z_jj = mean (1 + t^2), which has real roots. At most bits - 1 turns.
    """
    Q = Q.copy()
    mean = variances.mean()
    for _ in range(len(variances) - 1):
        spread = np.einsum("ij,j,ij->i", Q, variances, Q) - mean
        i, j = int(spread.argmax()), int(spread.argmin())
        if max(spread[i], -spread[j]) <= 1e-12 * mean:
            break
        cross = float((Q[i] * variances) @ Q[j])
        root = np.sqrt(cross**2 - spread[i] * spread[j])
        # of the two roots the one of smaller size, in the form without cancellation
        tangent = -spread[i] / (cross + np.copysign(root, cross))
        cosine = 1 / np.hypot(1, tangent)
        sine = tangent * cosine
        Q[[i, j]] = cosine * Q[i] + sine * Q[j], cosine * Q[j] - sine * Q[i]
    return Q
