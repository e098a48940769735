"""Pairwise labels from features or from neighbour lists: the whole of Alg. 1 (paper 2.1)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ddh.errors import InputError
from ddh.neighbours import overlap_compiled, overlap_scipy
from ddh.neighbours.cosine import CosineSpace, cosine_space
from ddh.neighbours.native import loops
from ddh.neighbours.nearest import nearest_in
from ddh.neighbours.overlap import membership


def pairwise_labels(
    features: ArrayLike,
    k1: int = 15,
    k2: int = 6,
    *,
    centre: bool = False,
    mutual: bool = False,
    min_overlap: int = 1,
) -> sparse.csr_array:
    """S of Alg. 1 from features: symmetric, empty diagonal, int8 1 where s_ij = +1."""
    space = cosine_space(features, centre=centre)
    lists = nearest_in(space, k1)
    return _expand(lists, k2, space, mutual=mutual, min_overlap=min_overlap)


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
    return _expand(checked, k2, space, mutual=mutual, min_overlap=min_overlap)


def check_lists(lists: ArrayLike) -> NDArray[np.integer]:
    """Neighbour lists as an (N, K1) array of distinct other images, or an error."""
    array = np.asarray(lists)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise InputError(
            f"neighbour lists are whole numbers (images, K1), not {array.dtype} {array.shape}"
        )
    if array.size and not 0 <= array.min() <= array.max() < len(array):
        raise InputError(f"neighbour lists name images outside 0 to {len(array) - 1}")
    return array


def _expand(
    lists: NDArray[np.integer],
    k2: int,
    space: CosineSpace | None,
    *,
    mutual: bool,
    min_overlap: int,
) -> sparse.csr_array:
    if k2 < 1 or min_overlap < 1:
        raise InputError(f"K2 and min_overlap are at least 1, not {k2} and {min_overlap}")
    how = overlap_scipy if loops is None else overlap_compiled
    rows = membership(lists, mutual=mutual)
    return how.symmetric_expansion(rows, k2, space=space, min_overlap=min_overlap)
