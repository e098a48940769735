"""Charikar (2002), "Similarity estimation techniques from rounding algorithms": random planes."""

import numpy as np
from numpy.typing import NDArray

from ddh._core.linear_algebra import column_means
from ddh._core.spans import spans
from ddh.hashers.base import Floats, LinearHasher


class LSH(LinearHasher):
    """Signs of random projections; two vectors at angle t agree in a bit with 1 - t / pi.

    Features are centred first, or most of them would fall on one side of every plane. More bits
    than dimensions are fine.

    Parameters
    ----------
    orthogonal : bool
        Make the planes of each block of `dimensions` bits orthogonal to each other, which lowers
        the variance and keeps the law.
    """

    title = "Locality-sensitive hashing"
    kind = "data-independent"
    paper = "Charikar, Similarity estimation techniques from rounding algorithms, STOC"
    year = 2002

    orthogonal: bool = False

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        dimensions = X.shape[1]
        self.mean_ = column_means(X)
        planes = rng.standard_normal((dimensions, self.bits))
        if self.orthogonal:
            for block in spans(self.bits, dimensions):
                q, r = np.linalg.qr(planes[:, block])
                planes[:, block] = q * np.sign(np.diag(r))
        self.projection_ = planes
