"""Gong & Lazebnik (2011), "Iterative quantization: a Procrustean approach to learning codes"."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh.hashers.base import LinearHasher
from ddh.hashers.linear_algebra import principal_components, random_rotation


class ITQ(LinearHasher):
    """Principal components, turned so that they lie close to the corners of the cube.

    Minimises ||B - V R||^2 over codes B and rotations R in turns; `losses_` holds its value
    after each of the `iterations`, which never rises.
    """

    title = "PCA with iterative quantisation"
    kind = "unsupervised"
    paper = "Gong & Lazebnik, Iterative quantization, CVPR"
    year = 2011

    def __init__(
        self, bits: int = 64, *, iterations: int = 50, random_state: int | None = 0
    ) -> None:
        self.bits = bits
        self.iterations = iterations
        self.random_state = random_state

    def _fit(self, X: NDArray[Any], y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        self.mean_, components, _ = principal_components(X, self.bits)
        V = ((X - self.mean_.astype(X.dtype)) @ components.astype(X.dtype)).astype(np.float32)
        R = random_rotation(self.bits, rng).astype(np.float32)
        energy = float(np.square(V, dtype=np.float64).sum())
        losses = []
        for _ in range(self.iterations):
            rotated = V @ R
            B = np.where(rotated >= 0, np.float32(1), np.float32(-1))
            P, singular, Qt = np.linalg.svd(B.T @ V)
            R = (P @ Qt).T
            # ||B - VR||^2 = ||B||^2 + ||V||^2 - 2 tr(R^T V^T B), and the trace is sum(singular)
            losses.append(B.size + energy - 2.0 * float(singular.sum(dtype=np.float64)))
        self.losses_ = np.array(losses)
        self.projection_ = components @ R.astype(np.float64)
