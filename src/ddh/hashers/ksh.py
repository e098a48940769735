"""Liu, Wang, Ji, Jiang & Chang (2012), "Supervised hashing with kernels"."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ddh._core.arrays import sgn
from ddh._core.progress import track
from ddh._core.spans import spans
from ddh.hashers.base import Floats, Hasher
from ddh.hashers.kernel_features import draw_anchors, gaussian_kernel, mean_squared_distance
from ddh.hashers.label_pairs import PairSimilarity, labelled_rows
from ddh.hashers.linear_algebra import BLOCK_ROWS, Reals, column_means, fix_signs
from ddh.neighbours.labels import indicators

JITTER = 1e-6


@dataclass(eq=False, repr=False, kw_only=True)
class KSH(Hasher):
    """Bits from Gaussian kernels with random anchors, fitted greedily to the similarity of pairs.

    Bit k lowers ||sum_p y_p y_p^T - bits S||^2 over `labelled` random rows (Eq. 10), S being +1
    for rows that share a label and -1 for others: first by a generalised eigenvector, then by
    ascent on the smooth phi(G a)^T R phi(G a), phi(z) = 2 / (1 + e^-z) - 1 (Alg. 1). Of the two
    the better is kept. Rows of class -1 are not drawn. More bits than dimensions are fine.
    Memory: labelled x anchors.

    Parameters
    ----------
    anchors : int
        Random rows that the kernels compare with.
    labelled : int
        Rows whose pairs are learned from, drawn at random.
    iterations : int
        Largest number of ascent steps per bit.
    """

    title = "Supervised hashing with kernels"
    kind = "supervised"
    labels = "required"
    paper = "Liu, Wang, Ji, Jiang & Chang, Supervised hashing with kernels, CVPR"
    year = 2012

    anchors: int = 300
    labelled: int = 2000
    iterations: int = 500

    def _fit(self, X: NDArray[Any], y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        assert y is not None
        rows = labelled_rows(y, self.labelled, rng)
        self.mean_ = column_means(X)
        self.anchors_ = draw_anchors(X, self.mean_, self.anchors, rng)
        self.width_ = mean_squared_distance(X, self.mean_, self.anchors_)
        self.kernel_mean_ = self._kernel_means(X)
        G = self._kernel(X[rows])
        residual = Residual(PairSimilarity(indicators(y)[rows]), self.bits)
        # thousands of products too small to share: waiting threads would only burn the processor
        with threadpool_limits(1, "blas"):
            self.coefficients_ = self._greedy_bits(G, residual)
        self.objective_ = np.array(residual.objective)

    def _greedy_bits(self, G: Reals, residual: "Residual") -> Reals:
        columns = []
        for _ in track(range(self.bits), "Kernel bits", unit="bit"):
            a = best_coefficients(G, residual, self.iterations)
            residual.explain(sgn(G @ a))
            columns.append(a)
        return np.stack(columns, axis=1)

    def _kernel_means(self, X: NDArray[Any]) -> Reals:
        """Mean of each kernel column over all of X."""
        total = np.zeros(len(self.anchors_))
        for rows in spans(len(X), BLOCK_ROWS):
            total += gaussian_kernel(X[rows], self.mean_, self.anchors_, self.width_).sum(axis=0)
        return total / len(X)

    def _kernel(self, X: NDArray[Any]) -> Reals:
        return gaussian_kernel(X, self.mean_, self.anchors_, self.width_) - self.kernel_mean_

    def _outputs(self, X: NDArray[Any]) -> Floats:
        return self._kernel(X) @ self.coefficients_


class Residual:
    """R = bits S - sum of y y^T over the bits found so far: what is left to explain (Eq. 11).

    Kept as its parts: a product costs O(l bits), not O(l^2).
    """

    def __init__(self, S: PairSimilarity, bits: int) -> None:
        self.S = S
        self.bits = bits
        self.found = np.empty((len(S.inverse), 0))
        # ||R||^2 before the first bit and after each: the greedy objective
        self.objective = [float(bits**2 * len(S.inverse) ** 2)]

    def __matmul__(self, V: Reals) -> Reals:
        return self.bits * (self.S @ V) - self.found @ (self.found.T @ V)

    def gain(self, y: Reals) -> float:
        """y^T R y."""
        return float(y @ (self @ y))

    def explain(self, y: NDArray[np.int8]) -> None:
        """R <- R - y y^T."""
        column = y.astype(np.float64)
        change = len(column) ** 2 - 2 * self.gain(column)
        self.objective.append(self.objective[-1] + change)
        self.found = np.column_stack([self.found, column])


def best_coefficients(G: Reals, R: Residual, iterations: int) -> Reals:
    """The spectral answer or its refinement, whichever explains more of R after the sign."""
    spectral = spectral_coefficients(G, R)
    refined = refine(G, R, spectral, iterations)
    gains = [R.gain(sgn(G @ a).astype(np.float64)) for a in (spectral, refined)]
    return refined if gains[1] > gains[0] else spectral


def spectral_coefficients(G: Reals, R: Residual) -> Reals:
    """Top generalised eigenvector of (G^T R G, G^T G), scaled so that ||G a||^2 = l (Eq. 13)."""
    gram = G.T @ G
    size = max(np.trace(gram) / len(gram), np.finfo(np.float64).tiny)
    regular = gram + JITTER * size * np.eye(len(gram))
    matrix = G.T @ (R @ G)
    top = [len(gram) - 1] * 2
    a = fix_signs(scipy.linalg.eigh(matrix, regular, subset_by_index=top)[1])[:, 0]
    energy = float(a @ gram @ a)
    return a * np.sqrt(len(G) / energy) if energy > 0 else a


def refine(G: Reals, R: Residual, start: Reals, iterations: int) -> Reals:
    """Ascent on phi(G a)^T R phi(G a) (Eq. 15), phi(z) = tanh(z / 2), by L-BFGS."""

    def loss(a: Reals) -> tuple[float, Reals]:
        return smooth_loss(G, R, a)

    answer = scipy.optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations}
    )
    return answer.x


def smooth_loss(G: Reals, R: Residual, a: Reals) -> tuple[float, Reals]:
    """(-phi^T R phi, its gradient) a pair of rows, so that the size does not grow with l."""
    phi = np.tanh(G @ a / 2)
    explained = R @ phi
    pairs = len(G) ** 2
    return -float(phi @ explained) / pairs, -(G.T @ (explained * (1 - phi**2))) / pairs
