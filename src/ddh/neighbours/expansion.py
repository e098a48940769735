"""Pairwise labels from neighbour lists: overlap, expansion, S (paper 2.1, Alg. 1).

With A the sparse indicator of the lists (the image itself included), the sizes of the
intersections L_i n L_j are the entries of A A^T. Its rows are sparse and taken in blocks:
no N x N array exists at any time.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ddh.errors import InputError
from ddh.neighbours.cosine import CosineSpace, cosine_space
from ddh.neighbours.nearest import nearest_in

ROWS = 4096


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


def membership(lists: NDArray[np.integer], *, mutual: bool = False) -> sparse.csr_array:
    """A: row i marks the members of L_i and the image i itself (int32, sorted columns)."""
    images, k1 = lists.shape
    members = np.column_stack([np.arange(images, dtype=np.int32), lists.astype(np.int32)])
    starts = np.arange(0, images * (k1 + 1) + 1, k1 + 1, dtype=np.int32)
    ones = np.ones(members.size, np.int32)
    A = sparse.csr_array((ones, members.ravel(), starts), shape=(images, images))
    A.sum_duplicates()
    A.data[:] = 1
    return A.multiply(A.T).tocsr() if mutual else A


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
    A = membership(lists, mutual=mutual)
    blocks = [
        _union_of_best(A, slice(start, start + ROWS), k2, space, min_overlap)
        for start in range(0, len(lists), ROWS)
    ]
    directed = sparse.vstack(blocks, format="csr")
    return _symmetric(directed)


def _union_of_best(
    A: sparse.csr_array, rows: slice, k2: int, space: CosineSpace | None, min_overlap: int
) -> sparse.csr_array:
    overlaps = (A[rows] @ A.T).tocoo()
    enough = overlaps.data >= min_overlap
    i, j, count = overlaps.row[enough], overlaps.col[enough], overlaps.data[enough]
    keys = np.zeros(len(i)) if space is None else space.order_keys(i + rows.start, j)
    order = np.lexsort((j, -keys, -count, i))
    i, j = i[order], j[order]
    first = np.searchsorted(i, i)
    best = np.arange(len(i)) - first < k2
    shape = (overlaps.shape[0], A.shape[0])
    chosen = sparse.csr_array((np.ones(best.sum(), np.int32), (i[best], j[best])), shape=shape)
    union = (chosen @ A).tocsr()
    return sparse.csr_array((np.ones(union.nnz, np.int8), union.indices, union.indptr), shape=shape)


def _symmetric(directed: sparse.csr_array) -> sparse.csr_array:
    either: Any = directed.maximum(directed.T.tocsr())
    either.setdiag(0)
    either.eliminate_zeros()
    either.sort_indices()
    columns, starts = either.indices.astype(np.int32), either.indptr.astype(np.int32)
    return sparse.csr_array((either.data, columns, starts), shape=either.shape)
