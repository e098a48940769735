"""Weiss, Torralba & Fergus (2008), "Spectral hashing"."""

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.linear_algebra import Reals, principal_components, project
from ddh.hashers.base import Floats, Hasher


class SH(Hasher):
    """Signs of the smoothest Laplacian eigenfunctions of a uniform box fitted to the data.

    On a box with sides R_i along the principal components, the one-dimensional eigenfunctions
    are sin(pi/2 + m pi (z_i - a_i) / R_i) with eigenvalues that grow as (m pi / R_i)^2; the
    `bits` smallest give the bits (long sides get several, so bits may exceed the dimensions).
    Memory: d x d and n x min(bits, d).

    Parameters
    ----------
    percentile : float
        The box runs from this percentile of each component to 100 minus it: 0 takes all values,
        5 cuts off outliers, which would stretch it.
    """

    title = "Spectral hashing"
    kind = "unsupervised"
    paper = "Weiss, Torralba & Fergus, Spectral hashing, NIPS"
    year = 2008

    percentile: float = 0.0

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        if not 0 <= self.percentile < 50:
            raise InputError(f"percentile must be in [0, 50), not {self.percentile}")
        count = min(self.bits, X.shape[1])
        self.mean_, self.components_, _ = principal_components(X, count)
        Z = project(X, self.mean_, self.components_).astype(np.float64)
        ends = np.percentile(Z, [self.percentile, 100 - self.percentile], axis=0)
        self.lower_, sides = ends[0], ends[1] - ends[0]
        self.axes_, self.frequencies_ = smoothest_modes(sides, self.bits)

    def _outputs(self, X: Floats) -> Floats:
        Z = (X - self.mean_) @ self.components_ - self.lower_
        return np.cos(Z[:, self.axes_] * self.frequencies_)


def smoothest_modes(sides: Reals, count: int) -> tuple[NDArray[np.int64], Reals]:
    """(axis, m pi / R_axis) of the `count` smoothest one-axis modes, smoothest first.

    The longest side alone offers `count` modes, so there are always enough. A box without extent
    has one eigenfunction, the constant, of frequency 0.
    """
    longest = sides.max()
    if longest == 0:
        return np.zeros(count, np.int64), np.zeros(count)
    modes_of_axis = np.ceil((count + 1) * sides / longest).astype(np.int64) - 1
    modes_of_axis = np.maximum(modes_of_axis, 0)
    axes = np.repeat(np.arange(len(sides)), modes_of_axis)
    modes = np.concatenate([np.arange(1, m + 1) for m in modes_of_axis])
    frequencies = modes * np.pi / sides[axes]
    # sides are measured: rounding must not decide between modes of equal frequency
    order = np.argsort(np.round(frequencies * longest, 9), kind="stable")[:count]
    return axes[order].astype(np.int64), frequencies[order]
