"""Hamming search by faiss: the fallback where our own kernel could not be built."""

from collections.abc import Iterator
from contextlib import contextmanager

import faiss
import numpy as np
from numpy.typing import NDArray

from ddh.codes import kernel_numpy
from ddh.codes.inputs import Codes


@contextmanager
def _faiss_threads(threads: int) -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


# `faiss.hammings` before 1.15 is wrong, or crashes, for some code lengths.
hamming = kernel_numpy.hamming


def search(
    queries: Codes, database: Codes, k: int, threads: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The k nearest rows of each query, k at most the number of rows.

    Selection by counting ("mc"): unlike the heap, it keeps the smaller index among equals. It
    takes a distance of 256 for 0, so long codes are left to NumPy.
    """
    if 8 * queries.shape[1] >= 256:
        return kernel_numpy.search(queries, database, k, threads)
    with _faiss_threads(threads):
        return faiss.knn_hamming(queries, database, k, variant="mc")


def search_radius(
    queries: Codes, database: Codes, radius: int, threads: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Limits, distances and indices of the rows within `radius` of each query."""
    result = faiss.RangeSearchResult(len(queries))
    with _faiss_threads(threads):
        faiss.hamming_range_search(  # type: ignore[attr-defined]
            faiss.swig_ptr(queries),
            faiss.swig_ptr(database),
            len(queries),
            len(database),
            radius + 1,  # faiss keeps what is strictly below
            queries.shape[1],
            result,
        )
    limits = faiss.rev_swig_ptr(result.lims, len(queries) + 1).astype(np.int64)
    indices = faiss.rev_swig_ptr(result.labels, int(limits[-1])).copy()
    distances = faiss.rev_swig_ptr(result.distances, int(limits[-1])).astype(np.int32)
    query = np.repeat(np.arange(len(queries)), np.diff(limits))
    order = np.lexsort((indices, distances, query))
    return limits, distances[order], indices[order]
