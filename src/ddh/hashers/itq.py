"""Gong & Lazebnik (2011), "Iterative quantization: a Procrustean approach to learning codes"."""

import numpy as np
from numpy.typing import NDArray

from ddh._core.linear_algebra import best_rotation, principal_components, project, random_rotation
from ddh.hashers.base import Floats, LinearHasher


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
