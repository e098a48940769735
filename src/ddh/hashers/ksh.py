"""Liu, Wang, Ji, Jiang & Chang (2012), "Supervised hashing with kernels"."""

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ddh._core.arrays import sgn
from ddh._core.linear_algebra import BLOCK_ROWS, Reals, fix_signs
from ddh._core.progress import track
from ddh._core.spans import spans
from ddh.hashers.base import Floats
from ddh.hashers.kernel_features import KernelHasher
from ddh.hashers.label_pairs import PairSimilarity, labelled_pairs

JITTER = 1e-6


class KSH(KernelHasher):
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

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        assert y is not None
        rows, S = labelled_pairs(y, self.labelled, rng)
        self.width_ = self._draw_anchors(X, self.anchors, rng)
        blocks = spans(len(X), BLOCK_ROWS)
        self.kernel_mean_ = sum(self._kernel(X[block]).sum(axis=0) for block in blocks) / len(X)
        G = self._kernel(X[rows]) - self.kernel_mean_
        residual = Residual(S, self.bits)
        # thousands of products too small to share: waiting threads would only burn the processor
        columns = []
        with threadpool_limits(1, "blas"):
            for _ in track(range(self.bits), "Kernel bits", unit="bit"):
                columns.append(best_coefficients(G, residual, self.iterations))
                residual.explain(sgn(G @ columns[-1]))
        self.coefficients_ = np.stack(columns, axis=1)
        self.objective_ = np.array(residual.objective)

    def _outputs(self, X: Floats) -> Floats:
        return (self._kernel(X) - self.kernel_mean_) @ self.coefficients_


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

    options = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": iterations}}
    return scipy.optimize.minimize(lambda a: smooth_loss(G, R, a), start, **options).x


def smooth_loss(G: Reals, R: Residual, a: Reals) -> tuple[float, Reals]:
    """(-phi^T R phi, its gradient) a pair of rows, so that the size does not grow with l."""
    phi = np.tanh(G @ a / 2)
    explained = R @ phi
    pairs = len(G) ** 2
    return -float(phi @ explained) / pairs, -(G.T @ (explained * (1 - phi**2))) / pairs
