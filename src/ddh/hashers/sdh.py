"""Shen, Shen, Liu & Shen (2015), "Supervised discrete hashing"."""

import warnings
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ddh._core.arrays import sgn
from ddh._core.errors import InputError
from ddh._core.labels import indicators
from ddh._core.linear_algebra import BLOCK_ROWS, Reals, Ridge
from ddh._core.progress import track
from ddh._core.spans import spans
from ddh.hashers.base import Floats
from ddh.hashers.kernel_features import KernelHasher
from ddh.hashers.label_pairs import labelled_rows


class SDH(KernelHasher):
    """Codes from which a linear classifier reads the labels, found without relaxing the signs.

    Minimises ||Y - B W||^2 + `class_ridge` ||W||^2 + `nu` ||B - Phi P||^2 (Eq. 5) in turns over the
    classifier W, the codes B (one bit of all rows at a time, exactly: Eq. 12) and the hash
    functions P on Gaussian kernels Phi. With `loss="hinge"` the classifier is a linear support
    vector machine, and a code is sgn(P^T phi + 1 / (2 nu) sum_k (w_c - w_k)), c its class.
    Encoding is sgn(Phi P) for all rows, training rows included. Rows may have several labels;
    those of class -1 are left out. More bits than dimensions are fine. Memory: n x anchors in
    float32.

    Parameters
    ----------
    anchors : int
        Random rows that the kernels compare with.
    width : float, optional
        Of the kernel exp(-||x - a||^2 / (2 width)); by default half the mean squared distance,
        close to the authors' 0.4^2 for features of length 1.
    loss : {"l2", "hinge"}
        Of the classifier; both are in the paper. With "hinge", rows with several labels have one
        machine per label.
    nu : float
        Weight of the agreement of codes and hash functions.
    class_ridge, hash_ridge : float
        Penalties of the classifier and of the hash functions.
    iterations : int
        Turns over classifier, codes and hash functions.
    """

    title = "Supervised discrete hashing"
    kind = "supervised"
    labels = "required"
    paper = "Shen, Shen, Liu & Shen, Supervised discrete hashing, CVPR"
    year = 2015

    anchors: int = 1000
    width: float | None = None
    loss: Literal["l2", "hinge"] = "l2"
    nu: float = 1e-5
    class_ridge: float = 1.0
    hash_ridge: float = 1e-2
    iterations: int = 5

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        assert y is not None
        if self.width is not None and not self.width > 0:
            raise InputError(f"width must be positive, not {self.width}")
        if self.loss not in ("l2", "hinge"):
            raise InputError(f"loss is 'l2' or 'hinge', not {self.loss!r}")
        rows = labelled_rows(y, None, rng)
        if len(rows) < len(X):
            X = X[rows]
        Y = indicators(y)[rows]
        mean_squared = self._draw_anchors(X, self.anchors, rng)
        self.width_ = self.width or mean_squared / 2
        Phi = np.empty((len(X), len(self.anchors_) + 1), np.float32)
        for block in spans(len(X), BLOCK_ROWS):
            Phi[block] = self._with_ones(X[block])
        B = sgn(rng.standard_normal((len(X), self.bits)), np.float32)
        hash_functions = Ridge(Phi, self.hash_ridge)
        P = hash_functions.coefficients(B)
        for _ in track(range(self.iterations), "Discrete codes"):
            functions = Phi @ P.astype(np.float32)
            if self.loss == "hinge":
                W = support_vectors(B, Y, self.class_ridge)
                B = sgn(functions + margin_directions(Y, W) / (2 * self.nu), np.float32)
            else:
                W = Ridge(B, self.class_ridge).coefficients(Y).astype(np.float32)
                B = discrete_codes(B, self.nu * functions + Y @ W.T, W)
            P = hash_functions.coefficients(B)
        self.projection_ = P

    def _with_ones(self, X: Floats) -> Reals:
        """Kernels with all anchors, and a column of ones for the bias."""
        return np.column_stack([self._kernel(X), np.ones(len(X))])

    def _outputs(self, X: Floats) -> Floats:
        return self._with_ones(X) @ self.projection_


def discrete_codes(B: Floats, Q: Floats, W: Floats, sweeps: int = 10) -> Floats:
    """Minimise ||B W||^2 - 2 tr(Q^T B) over B in {-1, +1} by cyclic coordinate descent (Sec. 2.3),
    one column exactly at a time, until a sweep changes nothing; the objective never rises."""
    B = B.copy()
    for _ in range(sweeps):
        before = B.copy()
        for k in range(B.shape[1]):
            B[:, k] = best_column(B, Q, W, k)
        if np.array_equal(before, B):
            break
    return B


def best_column(B: Floats, Q: Floats, W: Floats, k: int) -> Floats:
    """Eq. 12: the best k-th column of B, the other columns fixed."""
    weights = W @ W[k]
    weights[k] = 0
    return sgn(Q[:, k] - B @ weights, B.dtype)


def support_vectors(B: Floats, Y: NDArray[np.float32], penalty: float) -> NDArray[np.float32]:
    """(bits, classes): linear support vector machines on the codes, one against all for rows with
    several labels, else of Crammer & Singer for all classes at once."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    W = np.zeros((B.shape[1], Y.shape[1]), np.float32)
    settings = {"C": 1 / penalty, "fit_intercept": False, "random_state": 0, "max_iter": 200}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if (Y.sum(axis=1) == 1).all() and Y.shape[1] > 2:
            model = LinearSVC(multi_class="crammer_singer", **settings).fit(B, Y.argmax(axis=1))
            W[:, model.classes_] = model.coef_.T
            return W
        for k in range(Y.shape[1]):
            if 0 < Y[:, k].sum() < len(Y):
                W[:, k] = LinearSVC(loss="hinge", **settings).fit(B, Y[:, k]).coef_[0]
    return W


def margin_directions(Y: NDArray[np.float32], W: NDArray[np.float32]) -> NDArray[np.float32]:
    """sum_k (w_c - w_k) of each row, summed over its classes c: what widens its margins."""
    count = Y.sum(axis=1, keepdims=True)
    return W.shape[1] * (Y @ W.T) - count * W.sum(axis=1)
