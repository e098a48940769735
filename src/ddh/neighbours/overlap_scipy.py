"""The expansion of Alg. 1 by SciPy's sparse products, where the compiled loops are missing."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ddh._core.progress import track
from ddh.neighbours.cosine import CosineSpace
from ddh.neighbours.overlap import Lists, fill_places, from_ends

# Rows of A A^T that exist at a time.
ROWS = 4096


def symmetric_expansion(
    lists: Lists, k2: int, *, space: CosineSpace | None, min_overlap: int
) -> sparse.csr_array:
    """S = S or S^T with an empty diagonal; S_i joins the K2 lists that overlap most with L_i."""
    A = lists.matrix(len(lists))
    transposed = A.T.tocsr()
    names = np.arange(len(lists))
    blocks = []
    for start in track(range(0, len(lists), ROWS), "Expansion", unit="block"):
        overlaps = A[start : start + ROWS] @ transposed
        certain, tied = best_rows(overlaps, k2, min_overlap)
        chosen = fill_places(certain, tied, k2, start, names, space).matrix(len(lists))
        blocks.append((chosen @ A).astype(bool))
    directed = sparse.vstack(blocks, format="csr").astype(np.int8)
    S = directed.maximum(directed.T.tocsr())
    S.setdiag(0)
    S.eliminate_zeros()
    S.sort_indices()
    return S


def best_rows(overlaps: sparse.csr_array, k2: int, min_overlap: int) -> tuple[Lists, Lists]:
    """Of each row the columns that are among the top K2, and those that tie for its last places."""
    rows = overlaps.shape[0]
    enough = overlaps.data >= min_overlap
    i = np.repeat(np.arange(rows), np.diff(overlaps.indptr))[enough]
    j, overlap = overlaps.indices[enough], overlaps.data[enough]
    order = np.lexsort((-overlap, i))
    i, j, overlap = i[order], j[order], overlap[order]
    starts = np.searchsorted(i, np.arange(rows + 1))
    # the overlap of the first column that finds no place; only what is above it is certain
    beyond = starts[:-1] + k2
    full = beyond < starts[1:]
    cut = np.zeros(rows, overlap.dtype)
    cut[full] = overlap[beyond[full]]
    return _grouped(i, j, overlap > cut[i], rows), _grouped(i, j, overlap == cut[i], rows)


def _grouped(
    i: NDArray[np.integer], j: NDArray[np.integer], which: NDArray[np.bool_], rows: int
) -> Lists:
    """The chosen pairs, i in order, as lists."""
    ends = np.cumsum(np.bincount(i[which], minlength=rows))
    return from_ends(ends, j[which].astype(np.int32))
