"""Wang, Zhang, Jing & Ma (2006), "AnnoSearch: image auto-annotation by search": signs of PCA."""

import numpy as np
from numpy.typing import NDArray

from ddh._core.linear_algebra import principal_components
from ddh.hashers.base import Floats, LinearHasher


class PCAH(LinearHasher):
    """One bit for each of the first principal components, largest variance first.

    Later bits carry little variance and weigh as much as the first in the Hamming distance, so
    that longer codes may be worse. Needs as many dimensions as bits. Memory: one d x d array.
    """

    title = "PCA hashing"
    kind = "unsupervised"
    paper = "Wang, Zhang, Jing & Ma, AnnoSearch, CVPR"
    year = 2006

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        self.mean_, self.projection_, self.variances_ = principal_components(X, self.bits)
