"""A local descriptor: many small vectors of a photograph, to be counted as visual words."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddh.descriptors.photograph import Photograph

MAX_VECTORS = 2000  # per photograph


@dataclass(frozen=True)
class LocalDescriptor:
    """A row of Table 6.

    Parameters
    ----------
    name : str
        Its name in the paper.
    dimensions : int
        Length of a local vector.
    words : int
        Size of the vocabulary.
    describe : callable
        Maps a `Photograph` to all local vectors (n, dimensions) of its foreground, n > 0.
    """

    name: str
    dimensions: int
    words: int
    describe: Callable[[Photograph], NDArray[np.float32]]

    def sample(self, photograph: Photograph, seed: int = 0) -> NDArray[np.float32]:
        """At most `MAX_VECTORS` of the vectors, drawn with a seed."""
        vectors = self.describe(photograph)
        if len(vectors) <= MAX_VECTORS:
            return vectors
        rng = np.random.default_rng(seed)
        return vectors[np.sort(rng.choice(len(vectors), MAX_VECTORS, replace=False))]
