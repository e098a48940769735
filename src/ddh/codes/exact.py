"""Exact search of packed codes: the way that is fastest for the question at hand."""

from numpy.typing import ArrayLike

from ddh.codes import scan
from ddh.codes.bucket_costs import SHORT_CODE
from ddh.codes.inputs import rows_and_queries
from ddh.codes.kernels import native
from ddh.codes.multi_index import MultiIndex
from ddh.codes.results import Neighbours

_QUERIES_FOR_BUCKETS = 256  # that pay for sorting the rows of short codes


def search(
    queries: ArrayLike, database: ArrayLike, k: int, threads: int | None = None
) -> Neighbours:
    """The k nearest rows of each query: (distances int32 (q, k'), indices int64 (q, k')).

    k' is k, or the number of rows where that is smaller. Equal distances are ordered by the
    smaller index, whatever the kernel and the number of threads. Every row is compared with
    every query, except that many queries for codes of 16 bits or less go through a table of
    buckets, one for each code.
    """
    queries, database = rows_and_queries(queries, database)
    bits = 8 * database.shape[1]
    if bits <= SHORT_CODE and len(queries) >= _QUERIES_FOR_BUCKETS and native():
        return MultiIndex(database, bits).search(queries, k, threads)
    return scan.search(queries, database, k, threads)
