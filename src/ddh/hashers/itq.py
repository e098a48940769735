"""Gong & Lazebnik (2011), "Iterative quantization: a Procrustean approach to learning codes"."""

import numpy as np
from numpy.typing import NDArray

from ddh._core.arrays import sgn
from ddh.hashers.base import Floats, LinearHasher
from ddh.hashers.linear_algebra import Reals, principal_components, project, random_rotation


class ITQ(LinearHasher):
    """Principal components, turned so that they lie close to the corners of the cube.

    Minimises ||B - V R||^2 (Eq. 2) over codes B and rotations R in turns; `losses_` holds its
    value after each iteration, which never rises. Needs as many dimensions as bits.
    Memory: one d x d and a few n x bits arrays.

    Parameters
    ----------
    iterations : int
        Updates of codes and rotation.
    """

    title = "PCA with iterative quantisation"
    kind = "unsupervised"
    paper = "Gong & Lazebnik, Iterative quantization, CVPR"
    year = 2011

    iterations: int = 50

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        self.mean_, components, _ = principal_components(X, self.bits)
        V = project(X, self.mean_, components).astype(np.float32, copy=False)
        R, self.losses_ = best_rotation(V, random_rotation(self.bits, rng), self.iterations)
        self.projection_ = components @ R


def best_rotation(V: NDArray[np.float32], R: Reals, iterations: int) -> tuple[Reals, Reals]:
    """(R, ||B - V R||^2 after each iteration): codes B = sgn(V R), then R by Procrustes."""
    energy = float(np.square(V, dtype=np.float64).sum())
    losses = np.empty(iterations)
    for i in range(iterations):
        B = sgn(V @ R.astype(np.float32), np.float32)
        P, singular, Qt = np.linalg.svd((B.T @ V).astype(np.float64))
        R = (P @ Qt).T
        # ||B - VR||^2 = ||B||^2 + ||V||^2 - 2 tr(R^T V^T B), and the trace is sum(singular)
        losses[i] = B.size + energy - 2.0 * float(singular.sum())
    return R, losses
