"""The first ranking of Alg. 1: the K1 nearest images of every image by cosine."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh.errors import InputError
from ddh.neighbours import exact
from ddh.neighbours.cosine import CosineSpace, cosine_space


@dataclass(frozen=True)
class NearestLists:
    """Neighbour lists, best first: `lists` (N, k) int32 and their cosines (N, k) float32."""

    lists: NDArray[np.int32]
    similarities: NDArray[np.float32]


def knn(
    features: ArrayLike,
    k: int,
    *,
    centre: bool = False,
) -> NDArray[np.int32]:
    """The k nearest rows of every row by cosine, best first, as int32 (N, k).

    A row is never in its own list; ties go to the smaller index. The lists are those of
    float64 arithmetic. A zero vector has cosine 0 with everything.
    """
    space = cosine_space(features, centre=centre)
    return nearest_in(space, k)


def nearest(features: ArrayLike, k: int, *, centre: bool = False) -> NearestLists:
    """As `knn`, with the cosines beside the lists."""
    space = cosine_space(features, centre=centre)
    lists = nearest_in(space, k)
    i = np.repeat(np.arange(len(space)), k)
    similarities = space.similarities(i, lists.ravel()).astype(np.float32)
    return NearestLists(lists, similarities.reshape(lists.shape))


def nearest_in(space: CosineSpace, k: int) -> NDArray[np.int32]:
    """Lists of a prepared space."""
    check_k(k, len(space))
    return exact.exact_lists(space, k)


def check_k(k: int, images: int) -> None:
    """k neighbours exist only among k + 1 images."""
    if k < 1:
        raise InputError(f"the number of neighbours K1 is at least 1, not {k}")
    if k > images - 1:
        raise InputError(
            f"{k} neighbours need at least {k + 1} images, there are {images}: lower K1"
        )
