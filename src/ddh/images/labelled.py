"""A data set: pictures with their labels and the names of its classes."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh.errors import InputError
from ddh.images.sources import ImageSource


@dataclass(frozen=True)
class LabelledImages:
    """Pictures, and for each a class number (n,) or a row of 0 and 1 over the classes (n, c).

    `missing` counts pictures that the data set names but that were not on disk and are left out.
    """

    images: ImageSource
    labels: NDArray[Any]
    name: str
    classes: tuple[str, ...]
    missing: int = 0

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.images):
            raise InputError(f"{len(self.labels)} labels for {len(self.images)} images")
        if self.labels.ndim == 2 and self.labels.shape[1] != len(self.classes):
            raise InputError(
                f"{self.labels.shape[1]} label columns for {len(self.classes)} classes"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def multi_label(self) -> bool:
        """Whether a picture may have several classes."""
        return self.labels.ndim == 2

    def take(self, indices: Iterable[int]) -> "LabelledImages":
        """The pictures at `indices`, in that order, with their labels."""
        chosen = np.array(list(indices), dtype=np.int64)
        return replace(self, images=self.images.take(chosen), labels=self.labels[chosen])
