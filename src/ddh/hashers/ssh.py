"""Wang, Kumar & Chang (2010), "Semi-supervised hashing for scalable image retrieval"."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ddh._core.linear_algebra import (
    Reals,
    covariance,
    fix_signs,
    require_dimensions,
    without_empty_columns,
)
from ddh.hashers.base import Floats, LinearHasher
from ddh.hashers.label_pairs import labelled_pairs


class SSH(LinearHasher):
    """Projections that keep the pairs that share a label together, and the others apart.

    Eigenvectors of M = X_l^T S X_l / l^2 + `eta` X^T X / n (Eq. 11), where S is +1 for rows that
    share a label, -1 for others; rows of class -1 have no label and count in the second term only.
    Needs as many dimensions as bits. Memory: d x d arrays.

    Parameters
    ----------
    eta : float
        Weight of the variance of all rows beside the labelled pairs.
    orthogonal : bool
        Keep the projections orthogonal; otherwise (Sec. 3.4) a penalty takes the constraint's
        place: W = L U with I + M / rho = L L^T and U the eigenvectors.
    labelled : int
        Largest number of rows whose labels are used, drawn at random.
    """

    title = "Semi-supervised hashing (semi-supervised PCAH)"
    kind = "semi-supervised"
    labels = "required"
    paper = "Wang, Kumar & Chang, Semi-supervised hashing for scalable image retrieval, CVPR"
    year = 2010

    eta: float = 0.01
    orthogonal: bool = False
    labelled: int = 5000

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        assert y is not None
        require_dimensions(self.bits, X.shape[1])
        rows, S = labelled_pairs(y, self.labelled, rng)
        self.mean_, data_term = covariance(X)
        X_l = X[rows] - self.mean_
        M = S.quadratic(X_l) / len(rows) ** 2 + self.eta * data_term
        W = projections(M, self.bits, self.orthogonal)
        self.projection_ = without_empty_columns(W, data_term)


def projections(M: Reals, bits: int, orthogonal: bool) -> Reals:
    """Top eigenvectors U of M, or L U with L the Cholesky factor of I + M / rho."""
    values, vectors = scipy.linalg.eigh(M)
    U = fix_signs(vectors[:, ::-1][:, :bits])
    if orthogonal or values[-1] <= 0:
        return U
    # just above -lambda_min, where the factor exists (Sec. 3.4), and above rounding: a larger one
    # gives directions closer to orthogonal ones, whose later bits are poor
    rho = max(-1.1 * values[0], 1e-3 * values[-1])
    return scipy.linalg.cholesky(np.eye(len(M)) + M / rho, lower=True) @ U
