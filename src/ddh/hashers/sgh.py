"""Jiang & Li (2015), "Scalable graph hashing with feature transformation"."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ddh._core.arrays import sgn
from ddh._core.linear_algebra import BLOCK_ROWS, Reals, fix_signs
from ddh._core.progress import track
from ddh._core.spans import spans
from ddh.hashers.base import Floats
from ddh.hashers.kernel_features import KernelHasher

RIDGE = 1e-6


class SGH(KernelHasher):
    """Bits from Gaussian kernels, fitted one after another to the similarities of all pairs.

    Lowers ||bits S - sum_k b_k b_k^T||^2 over all n^2 pairs, with the similarities
    S_ij = 2 exp(-||x_i - x_j||^2 / rho) - 1. The exponential of the products is made linear on
    [-1, 1], which turns S into P Q^T with d + 2 columns each: no n x n array is made. rho is twice
    the largest squared length of a centred row, the smallest that keeps the products there. More
    bits than dimensions are fine. Memory: n x anchors in float32.

    Parameters
    ----------
    anchors : int
        Random rows that the kernels compare with.
    """

    title = "Scalable graph hashing"
    kind = "unsupervised"
    paper = "Jiang & Li, Scalable graph hashing with feature transformation, IJCAI"
    year = 2015

    anchors: int = 300

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        self.width_ = self._draw_anchors(X, self.anchors, rng)
        blocks = spans(len(X), BLOCK_ROWS)
        K = np.empty((len(X), len(self.anchors_)), np.float32)
        for rows in blocks:
            K[rows] = self._kernel(X[rows])
        self.kernel_mean_ = K.mean(axis=0, dtype=np.float64)
        K -= self.kernel_mean_.astype(np.float32)
        rho = 2 * max(float(np.square(X[rows] - self.mean_).sum(axis=1).max()) for rows in blocks)
        KP, KQ = np.zeros((2, K.shape[1], X.shape[1] + 2))
        for rows in blocks:
            P, Q = transformed(X[rows] - self.mean_, rho or 1.0)
            part = K[rows].T.astype(np.float64)
            KP += part @ P
            KQ += part @ Q
        self.coefficients_ = sequential_bits(K, KP @ KQ.T, self.bits)

    def _outputs(self, X: Floats) -> Floats:
        return (self._kernel(X) - self.kernel_mean_) @ self.coefficients_


def transformed(X: Reals, rho: float) -> tuple[Reals, Reals]:
    """P and Q with P Q^T = 2 e^(-|x|^2 / rho) e^(-|y|^2 / rho) (a 2 x.y / rho + b) - 1, where
    a t + b is the line through e^t at t = -1 and t = 1."""
    slope, height = (np.e - 1 / np.e) / 2, (np.e + 1 / np.e) / 2
    decay = np.exp(-np.square(X).sum(axis=1) / rho)[:, None]
    shared = np.concatenate(
        [np.sqrt(4 * slope / rho) * decay * X, np.sqrt(2 * height) * decay], axis=1
    )
    one = np.ones((len(X), 1))
    return np.concatenate([shared, one], axis=1), np.concatenate([shared, -one], axis=1)


def sequential_bits(K: NDArray[np.float32], similarity: Reals, bits: int) -> Reals:
    """Coefficients (anchors, bits): each the top generalised eigenvector of (K^T R K, K^T K), R
    being bits S less the b b^T of the bits before it; `similarity` is K^T S K."""
    gram = np.zeros((K.shape[1], K.shape[1]))
    for rows in spans(len(K), BLOCK_ROWS):
        part = K[rows].astype(np.float64)
        gram += part.T @ part
    regular = gram + RIDGE * max(np.trace(gram) / len(gram), 1e-12) * np.eye(len(gram))
    residual = bits * (similarity + similarity.T) / 2
    columns = []
    top = [len(gram) - 1] * 2
    for _ in track(range(bits), "Graph bits", unit="bit"):
        w = fix_signs(scipy.linalg.eigh(residual, regular, subset_by_index=top)[1])[:, 0]
        codes = sgn(K @ w.astype(np.float32), np.float32)
        explained = (K.T @ codes).astype(np.float64)
        residual = residual - np.outer(explained, explained)
        columns.append(w)
    return np.stack(columns, axis=1)
