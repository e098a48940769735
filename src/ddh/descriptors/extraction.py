"""Local vectors of many photographs, in parallel, kept in files so that a run can go on."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ddh._core.atomic import atomic_path
from ddh._core.progress import bar
from ddh._core.threads import thread_map
from ddh.descriptors.photograph import Photograph
from ddh.images import ImageSource

MAX_VECTORS = 2000  # per photograph
SHARD = 64


@dataclass(frozen=True)
class LocalDescriptor:
    """A row of Table 6: many small vectors of a photograph, to be counted as visual words.

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


@dataclass(frozen=True)
class LocalFeatures:
    """Vectors of all images one after another; image i owns rows starts[i] to starts[i + 1]."""

    vectors: NDArray[np.float16]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def owner(self) -> NDArray[np.intp]:
        """The image of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def rows_of(self, images: NDArray[Any]) -> NDArray[np.int64]:
        """All rows of some images."""
        chosen = np.zeros(len(self), bool)
        chosen[images] = True
        return np.flatnonzero(chosen[self.owner()])

    @classmethod
    def joined(cls, parts: "list[LocalFeatures]") -> "LocalFeatures":
        """The images of several parts in their order."""
        sizes = np.concatenate([np.diff(part.starts) for part in parts])
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(np.concatenate([part.vectors for part in parts]), starts)


def extract(
    descriptors: list[LocalDescriptor],
    images: ImageSource,
    *,
    cache: str | os.PathLike[str] | None = None,
) -> dict[str, LocalFeatures]:
    """Local vectors of every image for each descriptor, as float16.

    All descriptors share one decoding and one foreground per photograph. With `cache`, a folder
    that belongs to these images in this order, 64 photographs at a time are stored there and
    found again by the next run.
    """
    shards: dict[str, list[LocalFeatures]] = {kind.name: [] for kind in descriptors}
    with bar("Describing", total=len(images), unit="image") as progress:
        for start in range(0, len(images), SHARD):
            rows = range(start, min(start + SHARD, len(images)))
            missing = []
            for kind in descriptors:
                part = cache and _load(Path(cache) / f"{kind.name}-{start:06d}.npz", len(rows))
                if part:
                    shards[kind.name].append(part)
                else:
                    missing.append(kind)
            for name, part in _describe(missing, images, rows).items():
                shards[name].append(part)
                if cache is not None:
                    _save(Path(cache) / f"{name}-{start:06d}.npz", part)
            progress.update(len(rows))
    return {name: LocalFeatures.joined(parts) for name, parts in shards.items()}


def _describe(
    descriptors: list[LocalDescriptor], images: ImageSource, rows: range
) -> dict[str, LocalFeatures]:
    def describe(row: int) -> list[NDArray[np.float16]]:
        photograph = Photograph(images.read(row))
        return [kind.sample(photograph, seed=row).astype(np.float16) for kind in descriptors]

    if not descriptors:
        return {}
    vectors = zip(*thread_map(describe, rows), strict=True)
    return {
        kind.name: LocalFeatures(np.concatenate(own), np.cumsum([0, *map(len, own)]))
        for kind, own in zip(descriptors, vectors, strict=True)
    }


def _load(file: Path, images: int) -> LocalFeatures | None:
    """A stored part; None if it is missing, or was cut short by an interruption."""
    try:
        with np.load(file) as data:
            part = LocalFeatures(data["vectors"], data["starts"])
    except (OSError, ValueError, KeyError, BadZipFile):
        return None
    return part if len(part) == images else None


def _save(file: Path, part: LocalFeatures) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(file) as target, target.open("wb") as stream:
        np.savez(stream, vectors=part.vectors, starts=part.starts)
