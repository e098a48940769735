"""The first ranking of Alg. 1: the K1 nearest images of every image by cosine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh.neighbours import exact
from ddh.neighbours.approximate import RECALL, approximate_lists
from ddh.neighbours.cosine import CosineSpace, cosine_space


@dataclass(frozen=True)
class NearestLists:
    """Neighbour lists, best first: `lists` (N, k) int32 and their cosines (N, k) float32.

    `recall` is 1 for exact lists; of approximate ones it is what a sample of rows showed.
    """

    lists: NDArray[np.int32]
    similarities: NDArray[np.float32]
    recall: float


def knn(
    features: ArrayLike,
    k: int,
    *,
    centre: bool = False,
    device: Any = None,
    approximate: bool = False,
    recall: float = RECALL,
    folder: Path | None = None,
) -> NDArray[np.int32]:
    """The k nearest rows of every row by cosine, best first, as int32 (N, k).

    A row is never in its own list; ties go to the smaller index; a zero vector has cosine 0 with
    everything. The lists are those of float64 arithmetic, equal rows included. `features` may
    be of any real type and memory-mapped; `centre` subtracts their mean first; `device` may
    name a GPU ("cuda"). `approximate` trades exactness for time at large N: an index of faiss,
    searched with enough effort for a `recall` on a sample, which is checked; with `folder` large
    lists are a mapped file there.

    Memory: features once more as float32, 56 k + 600 bytes an image, and some tiles; with
    `approximate`, dimensions / 4 + 4 k bytes an image, and some blocks.
    """
    space = cosine_space(features, centre=centre)
    how: dict[str, Any] = {"approximate": approximate, "recall": recall, "folder": folder}
    return nearest_in(space, k, device=device, **how)[0]


def nearest(
    features: ArrayLike,
    k: int,
    *,
    centre: bool = False,
    device: Any = None,
    approximate: bool = False,
    recall: float = RECALL,
    folder: Path | None = None,
) -> NearestLists:
    """As `knn`, with the cosines of the lists and their recall."""
    space = cosine_space(features, centre=centre)
    how: dict[str, Any] = {"approximate": approximate, "recall": recall, "folder": folder}
    lists, reached = nearest_in(space, k, device=device, **how)
    i = np.repeat(np.arange(len(space), dtype=np.int32), k)
    similarities = space.similarities(i, lists.ravel()).astype(np.float32)
    return NearestLists(lists, similarities.reshape(lists.shape), reached)


def nearest_in(
    space: CosineSpace,
    k: int,
    *,
    device: Any = None,
    approximate: bool = False,
    recall: float = RECALL,
    folder: Path | None = None,
) -> tuple[NDArray[np.int32], float]:
    """The lists of a prepared space and their recall."""
    k = check_k(k, len(space))
    if approximate:
        found = approximate_lists(space, k, recall=recall, folder=folder)
        return found.lists, found.recall
    return exact.exact_lists(space, k, device=device), 1.0


def check_k(k: int, images: int) -> int:
    """k neighbours exist only among k + 1 images."""
    if not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"the number of neighbours K1 is a whole number from 1 on, not {k!r}")
    if k > images - 1:
        raise InputError(
            f"{k} neighbours need at least {k + 1} images, there are {images}: lower K1"
        )
    return int(k)
