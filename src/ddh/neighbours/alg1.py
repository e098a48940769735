"""Algorithm 1 of the paper: the neighbourhood structure S from features (section 2.1).

    First ranking           L_i: the K1 nearest images of image i by cosine.
    Neighbourhood expansion num_j = |L_i n L_j| for all j; of these keep the top K2;
                            L'_i: the union of the top K2 lists.
    S                       s_ij = 1 if j is in L'_i, or i in L'_j; -1 otherwise.

Each step is one call; `knn`, `approximate` and `overlap` hold the loops. S is sparse, and no step
holds an N x N array.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ddh._core.errors import InputError
from ddh.neighbours import overlap
from ddh.neighbours.approximate import RECALL, Approximation, approximate_lists, judge
from ddh.neighbours.cosine import CosineSpace, cosine_space
from ddh.neighbours.knn import check_k, nearest_in


def pairwise_labels(
    features: ArrayLike,
    k1: int = 15,
    k2: int = 6,
    *,
    centre: bool = False,
    device: Any = None,
    approximate: bool = False,
    recall: float = RECALL,
    folder: Path | None = None,
    mutual: bool = False,
    min_overlap: int = 1,
) -> sparse.csr_array:
    """S of Algorithm 1 from features: `knn` with K1, then `expand` with K2.

    Parameters
    ----------
    features : array-like, shape (N, dimensions)
        Real numbers, possibly memory-mapped.
    k1, k2 : int
        Neighbours per image in the first ranking; lists that are united per image.
    centre, device, approximate, recall, folder, mutual, min_overlap
        How neighbours are found, see `knn`, and which of them count, see `expand`.

    Returns
    -------
    csr_array of int8, shape (N, N)
        Symmetric with an empty diagonal, 1 where s_ij = +1; everywhere else s_ij = -1.

    Notes
    -----
    Memory: that of `knn`, then about 15 bytes per entry of S; never N x N.
    """
    space = cosine_space(features, centre=centre)
    lists, _ = nearest_in(
        space, k1, device=device, approximate=approximate, recall=recall, folder=folder
    )
    return expand_in(space, lists, k2, mutual=mutual, min_overlap=min_overlap)


def approximate_labels(
    features: ArrayLike,
    k1: int = 15,
    k2: int = 6,
    *,
    centre: bool = False,
    recall: float = RECALL,
    folder: Path | None = None,
) -> tuple[sparse.csr_array, Approximation]:
    """S from approximate neighbours, and a report of what the approximation cost.

    Parameters as `pairwise_labels`. Features are read in blocks, so they may be a memory-mapped
    file of any size.
    """
    space = cosine_space(features, centre=centre)
    found = approximate_lists(space, check_k(k1, len(space)), recall=recall, folder=folder)
    S = expand_in(space, found.lists, k2)
    return S, judge(space, found, k2, recall)


def expand(
    lists: ArrayLike,
    k2: int = 6,
    features: ArrayLike | None = None,
    *,
    centre: bool = False,
    mutual: bool = False,
    min_overlap: int = 1,
) -> sparse.csr_array:
    """S of Algorithm 1 from neighbour lists.

    Parameters
    ----------
    lists : array-like of int, shape (N, K1)
        Neighbours of each image.
    k2 : int
        Number of lists that are united per image. List i takes part like any other.
    features : array-like, shape (N, dimensions), optional
        Equal overlaps are ordered by the larger cosine of these features, then by the smaller
        index; without features by the smaller index.
    centre : bool
        Subtract the mean of the features first.
    mutual : bool
        Keep only neighbours that are in each other's lists.
    min_overlap : int
        Smallest overlap of a list that is united.

    Returns
    -------
    csr_array of int8, shape (N, N)
        As `pairwise_labels`.
    """
    checked = overlap.check_lists(lists)
    space = None if features is None else cosine_space(features, centre=centre)
    if space is not None and len(space) != len(checked):
        raise InputError(f"{len(checked)} lists do not fit {len(space)} rows of features")
    return expand_in(space, checked, k2, mutual=mutual, min_overlap=min_overlap)


def expand_in(
    space: CosineSpace | None,
    lists: NDArray[np.integer],
    k2: int,
    *,
    mutual: bool = False,
    min_overlap: int = 1,
) -> sparse.csr_array:
    """`expand` for checked lists and a prepared space: the steps of Algorithm 1."""
    if not all(isinstance(n, (int, np.integer)) and n >= 1 for n in (k2, min_overlap)):
        raise InputError(
            f"K2 and min_overlap are whole numbers from 1 on, not {k2!r} and {min_overlap!r}"
        )
    L, images = overlap.renumber(overlap.membership(lists, mutual=mutual))
    top = overlap.top_overlaps(L, k2, images, space=space, min_overlap=min_overlap)
    expanded = overlap.union(top, L)
    return overlap.symmetrize(expanded, images)
