"""Asymmetric search: the real-valued outputs of a query against stored bits."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh._core.spans import spans
from ddh._core.threads import thread_map
from ddh.codes.inputs import (
    Codes,
    Values,
    neighbour_count,
    packed_rows,
    query_values,
    thread_count,
)
from ddh.codes.kernels import ScoredNeighbours, chosen

_RANKED_SHARE = 16  # more rows than one of so many: score and sort all
_SORTED_SCORES = 1 << 22  # at once


def search_asymmetric(
    values: ArrayLike, database: ArrayLike, k: int, threads: int | None = None
) -> ScoredNeighbours:
    """The k rows with the highest asymmetric score for each query; exact.

    The score of a row is the sum over the bits of value x (+1 where the bit is set, else -1).
    It keeps what rounding the query to bits loses: rows at one Hamming distance get an order, at
    no extra byte per row.

    Parameters
    ----------
    values : array of shape (q, bits)
        Real-valued outputs of the queries, before the sign is taken. Finite.
    database : array of shape (n, bytes)
        Packed codes, see `ddh.codes.pack`; the spare bits of the last byte do not count.
    k : int
        Number of neighbours; all rows are returned where there are fewer.
    threads : int, optional
        Every processor that this process may use where it is None.

    Returns
    -------
    ScoredNeighbours
        `scores` float64 and `indices` int64 of shape (q, k'), k' = min(k, n), by descending
        score, equal scores by the smaller index.

    Notes
    -----
    Scores are sums in double precision, added up in an order that does not depend on the kernel
    or the number of threads. Sums of float32 values of similar size have no rounding error at
    all, so that they are the exact scores in any order of summation.

    Examples
    --------
    >>> import numpy as np
    >>> from ddh import codes
    >>> database = codes.pack([[1, 1, -1], [1, -1, 1], [-1, -1, -1]])
    >>> codes.search_asymmetric([[0.9, -0.2, 0.1]], database, k=2).indices
    array([[1, 0]])
    """
    database = packed_rows(database, "the database's rows")
    values = query_values(values, database.shape[1])
    k, threads = min(neighbour_count(k), len(database)), thread_count(threads)
    if not len(values) or not len(database):
        return ScoredNeighbours.empty(len(values), k)
    if k > len(database) // _RANKED_SHARE:
        return _rank_all(values, database, k, threads)
    return chosen()[1].search_asymmetric(values, database, k, threads)


def _rank_all(values: Values, database: Codes, k: int, threads: int) -> ScoredNeighbours:
    def ranked(part: slice) -> ScoredNeighbours:
        scores = chosen()[1].asymmetric_scores(values[part], database)
        rows = np.broadcast_to(np.arange(len(database)), scores.shape)
        return ScoredNeighbours.merge([ScoredNeighbours(scores, rows)], k)

    parts = spans(len(values), max(1, _SORTED_SCORES // len(database)))
    found = zip(*thread_map(ranked, parts, threads), strict=True)
    return ScoredNeighbours(*(np.concatenate(column) for column in found))


def asymmetric_scores(values: ArrayLike, codes: ArrayLike) -> NDArray[np.float64]:
    """Asymmetric scores of a short list of codes, as `search_asymmetric` gives them.

    Parameters
    ----------
    values : array of shape (q, bits)
        Real-valued outputs of the queries.
    codes : array of shape (n, bytes) or (q, n, bytes)
        Packed codes: the same rows for every query, or n rows for each one, such as
        `database[indices]` with the indices that a Hamming search found.

    Returns
    -------
    array of shape (q, n), float64
        Larger is nearer.
    """
    array = np.asarray(codes)
    rows = packed_rows(
        array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array, "the codes"
    )
    values = query_values(values, rows.shape[1])
    if array.ndim == 3 and len(array) != len(values):
        raise InputError(f"{len(values)} queries have {len(array)} lists of codes: give one each")
    if not len(values) or not len(rows):
        return np.empty((len(values), array.shape[-2]))
    return chosen()[1].asymmetric_scores(values, rows.reshape(array.shape))
