"""Pairwise labels from features or from neighbour lists: the whole of Alg. 1 (paper 2.1)."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ddh._core.errors import InputError
from ddh.neighbours import overlap_compiled, overlap_scipy
from ddh.neighbours.approximate import RECALL, approximate_lists
from ddh.neighbours.approximation import Approximation, judge
from ddh.neighbours.cosine import CosineSpace, cosine_space
from ddh.neighbours.native import loops
from ddh.neighbours.nearest import check_k, nearest_in
from ddh.neighbours.overlap import membership

# Overlaps are counted in 16 bits; the image itself is one of the members.
LONGEST_LIST = 2**16 - 2


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
    """S of Alg. 1 from features (N, dimensions): `knn` with K1, then `expand` with K2.

    Returns a symmetric int8 matrix with an empty diagonal, 1 where s_ij = +1; everywhere else
    s_ij = -1. Memory: that of `knn`, then about 15 bytes for each entry of S; never N x N.
    """
    space = cosine_space(features, centre=centre)
    how: dict[str, Any] = {"approximate": approximate, "recall": recall, "folder": folder}
    lists, _ = nearest_in(space, k1, device=device, **how)
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

    Features may be a mapped file of any size: they are read in blocks. With `folder` large
    lists are a mapped file there. Memory: that of `knn` and of `expand`.
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
    """S of Alg. 1 from ready neighbour lists (N, K1).

    Of the rows that overlap with row i in at least `min_overlap` images, the K2 with the
    largest overlap are taken (row i itself takes part like any other); ties go to the smaller
    cosine distance where `features` are given, then to the smaller index. S_i is the union of
    their lists; S is symmetrised by `or` and its diagonal is empty. `mutual=True` keeps only
    first-stage neighbours that name each other.
    """
    checked = check_lists(lists)
    space = None if features is None else cosine_space(features, centre=centre)
    if space is not None and len(space) != len(checked):
        raise InputError(f"{len(checked)} lists do not fit {len(space)} rows of features")
    return expand_in(space, checked, k2, mutual=mutual, min_overlap=min_overlap)


def check_lists(lists: ArrayLike) -> NDArray[np.integer]:
    """Neighbour lists as whole numbers (N, K1) that name images, or an error."""
    array = np.asarray(lists)
    if array.ndim != 2 or array.dtype.kind not in "iu" or 0 in array.shape:
        raise InputError(
            f"neighbour lists are whole numbers (images, K1), not {array.dtype} {array.shape}"
        )
    if array.shape[1] > LONGEST_LIST:
        raise InputError(f"a list holds at most {LONGEST_LIST} neighbours, not {array.shape[1]}")
    strange = np.flatnonzero(((array < 0) | (array >= len(array))).any(axis=1))
    if strange.size:
        raise InputError(
            f"{strange.size} neighbour list(s) name images outside 0 to {len(array) - 1}, the "
            f"first is that of image {strange[0]}; an index that finds fewer than K1 fills with -1"
        )
    return array


def expand_in(
    space: CosineSpace | None,
    lists: NDArray[np.integer],
    k2: int,
    *,
    mutual: bool = False,
    min_overlap: int = 1,
) -> sparse.csr_array:
    """`expand` for checked lists and a prepared space."""
    if not all(isinstance(n, (int, np.integer)) and n >= 1 for n in (k2, min_overlap)):
        raise InputError(
            f"K2 and min_overlap are whole numbers from 1 on, not {k2!r} and {min_overlap!r}"
        )
    how = overlap_scipy if loops is None else overlap_compiled
    rows = membership(lists, mutual=mutual)
    return how.symmetric_expansion(rows, k2, space=space, min_overlap=min_overlap)
