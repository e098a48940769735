"""Exact search by comparing every query with every row."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh.codes.inputs import neighbour_count, rows_and_queries, search_radius_bits, thread_count
from ddh.codes.kernels import chosen
from ddh.codes.results import Neighbours, RadiusNeighbours


def hamming(a: ArrayLike, b: ArrayLike) -> NDArray[np.int32]:
    """(n, bytes) and (m, bytes) packed codes -> (n, m) Hamming distances; for small blocks."""
    a, b = rows_and_queries(a, b)
    if not len(a) or not len(b):
        return np.empty((len(a), len(b)), dtype=np.int32)
    return chosen()[1].hamming(a, b)


def search(
    queries: ArrayLike, database: ArrayLike, k: int, threads: int | None = None
) -> Neighbours:
    """The k nearest rows of each query, see `ddh.codes.search`."""
    queries, database = rows_and_queries(queries, database)
    k, threads = min(neighbour_count(k), len(database)), thread_count(threads)
    if not len(queries) or not len(database):
        empty = (len(queries), k)
        return Neighbours(np.empty(empty, dtype=np.int32), np.empty(empty, dtype=np.int64))
    return Neighbours(*chosen()[1].search(queries, database, k, threads))


def search_radius(
    queries: ArrayLike, database: ArrayLike, radius: int, threads: int | None = None
) -> RadiusNeighbours:
    """All rows at a distance of `radius` or less from each query.

    Ordered within a query by distance, equal distances by the smaller index. Memory beyond the
    arguments is proportional to the answer.
    """
    queries, database = rows_and_queries(queries, database)
    radius, threads = search_radius_bits(radius), thread_count(threads)
    if not len(queries) or not len(database):
        none = np.empty(0, dtype=np.int32)
        limits = np.zeros(len(queries) + 1, dtype=np.int64)
        return RadiusNeighbours(limits, none, none.astype(np.int64))
    radius = min(radius, 8 * database.shape[1])
    return RadiusNeighbours(*chosen()[1].search_radius(queries, database, radius, threads))
