"""What a local descriptor is, and all of them by the names of the paper's Table 6."""

from abc import ABC, abstractmethod
from importlib import import_module
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.descriptors.photograph import Photograph

# name in Table 6 -> module:class of ddh.descriptors
DESCRIPTORS: dict[str, str] = {
    "Colour": "colour:Colour",
    "Shape": "sift:Shape",
    "Texture": "texture:Texture",
    "HOG": "hog:HOG",
    "HSV": "colour:HSV",
    "SIFT-Boundary": "sift:SIFTBoundary",
    "SIFT-Internal": "sift:SIFTInternal",
}


class LocalDescriptor(ABC):
    """Many small vectors of one photograph, to be counted as visual words.

    `words` is the size of the vocabulary, `most` the number of vectors that are kept of a
    photograph (a seeded draw of them where there are more), `dimensions` their length.
    """

    name: ClassVar[str]
    dimensions: ClassVar[int]
    words: ClassVar[int]
    most: ClassVar[int] = 2000

    @abstractmethod
    def describe(self, photograph: Photograph) -> NDArray[np.float32]:
        """All local vectors (n, dimensions) of the photograph's foreground, n > 0."""

    def sample(self, photograph: Photograph, seed: int = 0) -> NDArray[np.float32]:
        """At most `most` of them."""
        vectors = self.describe(photograph)
        if len(vectors) <= self.most:
            return vectors
        rng = np.random.default_rng(seed)
        return vectors[np.sort(rng.choice(len(vectors), self.most, replace=False))]


def descriptor(name: str) -> LocalDescriptor:
    """A descriptor by its name in Table 6."""
    if name not in DESCRIPTORS:
        raise InputError(f"there is no descriptor {name!r}; there are: {', '.join(DESCRIPTORS)}")
    module, kind = DESCRIPTORS[name].split(":")
    return getattr(import_module(f"ddh.descriptors.{module}"), kind)()
