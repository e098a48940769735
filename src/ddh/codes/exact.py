"""Exact search of packed codes by the method that is fastest for the request."""

import numpy as np
from numpy.typing import ArrayLike

from ddh._core.spans import spans
from ddh.codes import inputs, scan
from ddh.codes.inputs import Codes
from ddh.codes.kernels import Neighbours, native
from ddh.codes.multi_index import SHORT_CODE, MultiIndex, radius_cost, scan_cost, tables_for_radius
from ddh.codes.scan import Pairs

_QUERIES_FOR_BUCKETS = 256  # from so many on, sorting the rows of short codes pays
_QUERIES_AT_ONCE = 4096


def search(
    queries: ArrayLike, database: ArrayLike, k: int, threads: int | None = None
) -> Neighbours:
    """The k nearest rows of each query: (distances int32 (q, k'), indices int64 (q, k')).

    k' is k, or the number of rows where that is smaller. Equal distances are ordered by the
    smaller index, whatever the kernel and the number of threads. Every row is compared with
    every query, except that many queries for codes of 16 bits or less go through a table of
    buckets, one for each code.
    """
    queries, database = inputs.rows_and_queries(queries, database)
    bits = 8 * database.shape[1]
    if bits <= SHORT_CODE and len(queries) >= _QUERIES_FOR_BUCKETS and native():
        return MultiIndex(database, bits).search(queries, k, threads)
    return scan.search(queries, database, k, threads)


def pairs_within(database: ArrayLike, radius: int, threads: int | None = None) -> Pairs:
    """All pairs i < j of rows at a distance of `radius` or less, ordered by i, then by j.

    Found through a `MultiIndex` where that is less work than comparing all rows with all rows.
    Memory beyond the database: 24 bytes for each pair, some more for the rows that are looked up
    at a time, and the index.
    """
    database = inputs.packed_rows(database, "the database's rows")
    radius, threads = inputs.search_radius_bits(radius), inputs.thread_count(threads)
    n, width = database.shape
    tables = tables_for_radius(n, 8 * width, radius)
    # A scan looks at the later rows only, hence the half.
    indexed = native() and radius_cost(n, 8 * width, tables, radius) < n / 2 * scan_cost(width, n)
    index = MultiIndex(database, 8 * width, tables) if indexed else None
    pages = [Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))]
    for part in spans(n, _QUERIES_AT_ONCE):
        pages.append(_pairs_from(database, part, radius, threads, index))
    return Pairs(*(np.concatenate(column) for column in zip(*pages, strict=True)))


def _pairs_from(
    database: Codes, part: slice, radius: int, threads: int, index: MultiIndex | None
) -> Pairs:
    """Pairs whose first row lies in `part`."""
    if index is not None:
        found, offset = index.search_radius(database[part], radius, threads), 0
    else:
        later = database[part.start :]
        found, offset = scan.search_radius(database[part], later, radius, threads), part.start
    first = np.repeat(np.arange(part.start, part.stop), np.diff(found.limits))
    second = found.indices + offset
    keep = first < second
    first, second, distances = first[keep], second[keep], found.distances[keep]
    order = np.lexsort((second, first))
    return Pairs(first[order], second[order], distances[order])
