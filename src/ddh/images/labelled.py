"""A data set: pictures with their labels and the names of its classes."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.images.sources import ImageFiles, ImageSource


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

    @classmethod
    def from_files(
        cls,
        root: str | os.PathLike[str],
        relative: Sequence[str],
        labels: NDArray[Any],
        name: str,
        classes: tuple[str, ...],
    ) -> Self:
        """Files below `root` with their labels; those that are not there are counted, not kept."""
        folder = Path(root)
        paths = [folder / path for path in relative]
        there = np.array(_exist(paths), dtype=bool)
        if not there.any():
            raise InputError(
                f"none of the {len(paths):,} images of {name} is in {folder}: "
                f"looked for {paths[0] if paths else 'any'}"
            )
        kept = [path for path, found in zip(paths, there, strict=True) if found]
        images = ImageFiles(kept, root=folder)
        return cls(images, labels[there], name, classes, missing=int((~there).sum()))

    def __len__(self) -> int:
        return len(self.images)

    @property
    def multi_label(self) -> bool:
        """Whether a picture may have several classes."""
        return self.labels.ndim == 2

    def take(self, indices: Iterable[int]) -> Self:
        """The pictures at `indices`, in that order, with their labels."""
        chosen = np.array(list(indices), dtype=np.int64)
        return replace(self, images=self.images.take(chosen), labels=self.labels[chosen])


def _exist(paths: Sequence[Path]) -> list[bool]:
    """Which paths exist; each folder is listed once, which is far faster than asking for each."""
    listed: dict[Path, frozenset[str]] = {}
    for folder in {path.parent for path in paths}:
        try:
            listed[folder] = frozenset(path.name for path in folder.iterdir())
        except OSError:
            listed[folder] = frozenset()
    return [path.name in listed[path.parent] for path in paths]
