"""Exact search in sub-linear time: multi-index hashing (Norouzi, Punjani and Fleet, CVPR 2012).

A code is cut into m substrings, and the rows are sorted by each of them. By the pigeonhole
principle a row at distance m * r + t or less (0 <= t < m) differs from the query in at most r
bits in one of the substrings 0..t, or in at most r - 1 bits in one of the others, so that a few
buckets hold all rows within a small distance. Where those would be too many (long codes without
near neighbours, a large k or radius, substrings that most rows share), the query is answered by
the scan instead; the answer is the same.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh._core.spans import spans
from ddh._core.threads import thread_map
from ddh.codes import inputs, scan
from ddh.codes.inputs import Codes, thread_count
from ddh.codes.kernels import Found, Neighbours, native
from ddh.codes.packing import code_bytes
from ddh.codes.scan import RadiusNeighbours

_MOST_ROWS = 1 << 31
_QUERIES_AT_ONCE = 256
_QUERIES_FOR_BUCKETS = 256  # from so many on, sorting the rows of short codes pays
_FIRST_QUERIES = 32  # that show whether the tables are of use for the others

# Costs are clock cycles measured on a Neoverse N1; only the ratios matter, and only for speed.
COPIED_BYTES = 8  # codes up to this width are kept in the order of each table
LONGEST_SUBSTRING = 24
SHORT_CODE = 16  # bits: one table of all codes, whose buckets tell the distance
BUCKET = 180.0

_ROW, _ROW_LOOKED_UP = 2.5, 30.0
_SCANNED_BYTE, _SCANNED_BYTE_OF_FEW = 0.055, 0.12  # for many queries at once, and for a few
_FEW_QUERIES = 32


@dataclass(frozen=True)
class _Table:
    """Rows by the value of bits start..stop of their codes."""

    start: int
    stop: int
    offsets: NDArray[np.uint32]  # of the buckets, one more than there are
    ids: NDArray[np.uint32]  # rows in the order of their buckets
    rows: Codes  # their codes in that order, padded; empty: looked up by id

    def mask(self, width: int) -> Codes:
        """Where the substring lies in a code."""
        bits = np.zeros(8 * (padded_width(width) if self.rows.size else width), dtype=np.uint8)
        bits[self.start : self.stop] = 1
        return np.packbits(bits)


def padded_width(width: int) -> int:
    """Bytes of a copied code: those that the native loops are made for."""
    return next((padded for padded in (2, 4, 8, 16, 32) if width <= padded), width)


def substring(codes: Codes, start: int, stop: int) -> NDArray[np.uint32]:
    """Bits start..stop of each code as a number."""
    first, last = start // 8, (stop - 1) // 8  # at most 24 bits, hence four bytes
    value = codes[:, first].astype(np.uint32)
    for byte in range(first + 1, last + 1):
        value <<= np.uint32(8)
        value |= codes[:, byte]
    value >>= np.uint32(8 * (last + 1) - stop)
    value &= np.uint32((1 << (stop - start)) - 1)
    return value


def _sorted_table(database: Codes, start: int, stop: int) -> _Table:
    from ddh.codes import _hamming

    n, width = database.shape
    offsets = np.empty((1 << (stop - start)) + 1, dtype=np.uint32)
    ids = np.empty(n, dtype=np.uint32)
    rows = np.empty((n, padded_width(width)) if width <= COPIED_BYTES else 0, dtype=np.uint8)
    keys = substring(database, start, stop)
    _hamming.sort_into_buckets(keys, offsets, ids, database, rows, width)
    return _Table(start, stop, offsets, ids, rows)


class MultiIndex:
    """Rows of packed codes, sorted by each of their substrings, for exact search.

    `bits` is the length of the codes, `tables` the number of substrings (by default what suits
    the number of rows). The database is kept, not copied. Memory beyond it: 4 bytes for each row
    and table, 12 for codes of up to 8 bytes, and 4 for each bucket; 60 MB at a million rows of 64
    bits. Without the native kernel nothing is sorted and every search is a scan.
    """

    def __init__(self, database: ArrayLike, bits: int, tables: int | None = None) -> None:
        self.database = inputs.check_codes(database, bits, "the database's rows")
        self.bits = bits
        fewest = -(-bits // LONGEST_SUBSTRING)
        if tables is None:
            tables = tables_for_neighbours(len(self.database), bits)
        if not fewest <= tables <= bits:
            raise InputError(
                f"codes of {bits} bits are cut into {fewest} to {bits} substrings, not {tables}"
            )
        if len(self.database) > _MOST_ROWS:
            raise InputError(f"a multi-index holds {_MOST_ROWS} rows at most")
        cuts = [table * bits // tables for table in range(tables + 1)]
        self._tables: list[_Table] = []
        if native() and len(self.database):
            self._tables = [
                _sorted_table(self.database, start, stop) for start, stop in pairwise(cuts)
            ]

    def __len__(self) -> int:
        return len(self.database)

    def __repr__(self) -> str:
        return f"MultiIndex({len(self)} rows of {self.bits} bits, {len(self._tables)} tables)"

    def search(self, queries: ArrayLike, k: int, threads: int | None = None) -> Neighbours:
        """The k nearest rows of each query, as `ddh.codes.search` gives them."""
        queries, _ = inputs.rows_and_queries(queries, self.database)
        k = min(inputs.neighbour_count(k), len(self))
        if not k or not len(queries):
            return scan.search(queries, self.database, max(k, 1), threads)
        done, (limits, distances, indices) = self._probe(queries, k, 0, thread_count(threads))
        rows = (limits[:-1, None] + np.arange(k))[done]
        answer = Neighbours.empty(len(queries), k)
        answer.distances[done], answer.indices[done] = distances[rows], indices[rows]
        if not done.all():
            rest = scan.search(queries[~done], self.database, k, threads)
            answer.distances[~done], answer.indices[~done] = rest
        return answer

    def search_radius(
        self, queries: ArrayLike, radius: int, threads: int | None = None
    ) -> RadiusNeighbours:
        """All rows within `radius` of each query, as `ddh.codes.search_radius` gives them."""
        queries, _ = inputs.rows_and_queries(queries, self.database)
        radius = min(inputs.search_radius_bits(radius), 8 * queries.shape[1])
        scanned = len(self) * scan_cost(queries.shape[1], len(queries))
        tables = len(self._tables)
        if not tables or radius_cost(len(self), self.bits, tables, radius) > scanned:
            return scan.search_radius(queries, self.database, radius, threads)
        done, (limits, distances, indices) = self._probe(queries, 0, radius, thread_count(threads))
        if done.all():
            return RadiusNeighbours(limits, distances, indices)
        rest = scan.search_radius(queries[~done], self.database, radius, threads)
        counts = np.diff(limits)
        kept = np.repeat(done, counts)
        counts[~done] = np.diff(rest.limits)
        here = np.repeat(done, counts)
        merged = np.empty(len(here), dtype=np.int32), np.empty(len(here), dtype=np.int64)
        merged[0][here], merged[0][~here] = distances[kept], rest.distances
        merged[1][here], merged[1][~here] = indices[kept], rest.indices
        return RadiusNeighbours(np.concatenate([[0], counts.cumsum()]), *merged)

    def _probe(
        self, queries: Codes, k: int, radius: int, threads: int
    ) -> tuple[NDArray[np.bool_], Found]:
        """Which queries the tables answered, and their answers one after the other (k = 0: all
        rows within the radius). When they fail for most of the first, the others are not tried."""
        done = np.zeros(len(queries), dtype=np.bool_)
        counts = np.zeros(len(queries), dtype=np.int64)
        parts: list[Neighbours] = [Neighbours(np.empty(0, np.int32), np.empty(0, np.int64))]

        def probe(part: slice) -> Neighbours:
            counts[part], distances, indices = self._answers(queries[part], k, radius, done[part])
            return Neighbours(distances, indices)

        if self._tables and native():
            parts.append(probe(slice(0, _FIRST_QUERIES)))
            if 2 * done.sum() >= min(_FIRST_QUERIES, len(queries)):
                others = spans(len(queries), _QUERIES_AT_ONCE, _FIRST_QUERIES)
                parts += thread_map(probe, others, threads)
        distances, indices = (np.concatenate(column) for column in zip(*parts, strict=True))
        return done, (np.concatenate([[0], counts.cumsum()]), distances, indices)

    def _answers(self, queries: Codes, k: int, radius: int, done: NDArray[np.bool_]) -> Found:
        from ddh.codes import _hamming

        kernel = native()
        assert kernel is not None
        width = queries.shape[1]
        keys = np.stack([substring(queries, t.start, t.stop) for t in self._tables], axis=1)
        tables = [(t.stop - t.start, t.mask(width), t.offsets, t.ids, t.rows) for t in self._tables]
        scanned = scan_cost(width, len(queries))
        costs = row_cost(width) / scanned, BUCKET / scanned
        rows = queries, self.database, width, keys, tables
        return kernel.found(_hamming.index_search, *rows, k, radius, *costs, done)


def search(
    queries: ArrayLike,
    database: ArrayLike,
    k: int,
    threads: int | None = None,
    device: str | None = None,
) -> Neighbours:
    """The k nearest rows of each query: (distances int32 (q, k'), indices int64 (q, k')).

    k' is k, or the number of rows where that is smaller. Equal distances are ordered by the
    smaller index, whatever the kernel and the number of threads. Every row is compared with
    every query, except that many queries for codes of 16 bits or less go through a table of
    buckets, one for each code.

    `device="cuda"` searches on a GPU, see `GpuIndex`, which also keeps the database there for the
    next call.
    """
    if device is not None:
        from ddh.codes.gpu import GpuIndex

        return GpuIndex(database, device).search(queries, k)
    queries, database = inputs.rows_and_queries(queries, database)
    bits = 8 * database.shape[1]
    if bits <= SHORT_CODE and len(queries) >= _QUERIES_FOR_BUCKETS and native():
        return MultiIndex(database, bits).search(queries, k, threads)
    return scan.search(queries, database, k, threads)


# -- what a search in buckets costs ------------------------------------------------------------


def row_cost(width: int) -> float:
    """Cycles for a row of a bucket."""
    return _ROW if width <= COPIED_BYTES else _ROW_LOOKED_UP


def scan_cost(width: int, queries: int) -> float:
    """Cycles for a row in a scan, for each of so many queries."""
    return width * (_SCANNED_BYTE_OF_FEW if queries < _FEW_QUERIES else _SCANNED_BYTE)


def radius_cost(rows: int, bits: int, tables: int, radius: int) -> float:
    """Expected cycles to find all rows within `radius` of a query, for codes without structure."""
    row = row_cost(code_bytes(bits))
    cycles = 0.0
    for table in range(min(tables, radius + 1)):
        length = (table + 1) * bits // tables - table * bits // tables
        steps = min((radius - table) // tables, length)
        buckets = sum(comb(length, step) for step in range(steps + 1))
        cycles += buckets * (BUCKET + row * rows / 2**length)
    return cycles


def tables_for_radius(rows: int, bits: int, radius: int) -> int:
    """The number of substrings with the least work for a radius."""
    counts = {-(-bits // length) for length in range(4, LONGEST_SUBSTRING + 1)}
    return min(sorted(counts), key=lambda tables: radius_cost(rows, bits, tables, radius))


def tables_for_neighbours(rows: int, bits: int, k: int = 10) -> int:
    """The number of substrings with the least work for k neighbours."""
    if bits <= SHORT_CODE:
        return 1
    if code_bytes(bits) > COPIED_BYTES:  # made for near-duplicates: the scan finds the others
        return tables_for_radius(rows, bits, bits // 10)
    nearer, radius = 1, 0  # codes within the radius, of 2 ** bits
    while rows * nearer < k << bits and radius < bits:
        radius += 1
        nearer += comb(bits, radius)
    return tables_for_radius(rows, bits, radius)
