"""Searches by our own C code (`_hamming.c`), cut into pieces of work for a few threads."""

import math
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from itertools import product
from time import get_clock_info, perf_counter, thread_time
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ddh._core.spans import even_spans, spans
from ddh._core.threads import thread_map
from ddh.codes import _hamming
from ddh.codes.inputs import Codes, Values
from ddh.codes.kernels import Found, Neighbours, ScoredNeighbours

if not hasattr(_hamming, "bucket_pairs"):
    raise ImportError("its extension was built from an older source: install ddh again")

VARIANTS: list[str] = _hamming.variants()

_TABLE_BYTES = 32  # the longest code that has tables
_TABLES, _PLANES = ("avx2", "neon"), ("avx512", "avx512bw", "avx2")  # which have them
_PLANE_QUERIES = 512  # at once, see _hamming_answers.h
_TRIAL_BYTES, _TRIAL_QUERIES, _TRIAL_MOST, _TRIALS = 1 << 22, 8, 64, 3
_TRIAL_PAIRS = 1 << 23  # fewer pairs of queries and rows are not worth a trial
_USUAL_QUERIES = 32  # that are answered together, where nothing was measured
_GROUP = 128  # queries of a piece of work, where the kernel answers each by itself
_SHARD_BYTES = 8 << 20  # compared: fewer are not worth a thread of their own
_PIECE_PAIRS = 1 << 30  # of queries and rows in one piece of work: some tenths of a second
_MOST_ROWS = 1 << 31  # of one call: indices have 32 bits there

# The time of this thread alone, where the system measures it finely: other load does not count.
_clock = thread_time if get_clock_info("thread_time").resolution <= 1e-6 else perf_counter

Answer = TypeVar("Answer", Neighbours, ScoredNeighbours)


class Way(IntEnum):
    """How the C functions answer queries."""

    ROWS = 0  # each by itself
    TABLES = 1  # as many together as a table has room for; half of them cost less
    PLANES = 2  # any number together


def _table(variant: str, width: int) -> int:
    """Queries that a table has room for; 0: there are none."""
    if variant not in _TABLES or width > _TABLE_BYTES:
        return 0
    return 128 if width <= 4 else 64


def _group(variant: str, width: int) -> int:
    """Queries that are answered together, or that make a piece of work."""
    return _table(variant, width) or (_PLANE_QUERIES if variant in _PLANES else _GROUP)


class Costs(NamedTuple):
    """Seconds that queries took in a trial; infinite where there is no such way."""

    each: float  # of a query by itself
    table: float  # of a full table, or one that is more than half full
    half: float  # of one that is not
    block: float  # of planes, for any number of queries
    more: float  # and for each of them


@lru_cache
def _costs(variant: str, width: int) -> Costs:
    """A short trial."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (_TRIAL_BYTES // width, width), dtype=np.uint8)
    asked = rng.integers(0, 256, (_PLANE_QUERIES, width), dtype=np.uint8)

    def seconds(queries: int, way: Way) -> float:
        answer = Neighbours.empty(queries, 1)
        times = []
        for _ in range(_TRIALS):
            start = _clock()
            _hamming.top_k(variant, way, asked[:queries], rows, width, 1, *answer)
            times.append(_clock() - start)
        return min(times)

    few, many, table = _TRIAL_QUERIES, _TRIAL_MOST, _table(variant, width)
    block = more = math.inf
    if variant in _PLANES:
        least, most = seconds(few, Way.PLANES), seconds(many, Way.PLANES)
        more = max(0.0, most - least) / (many - few)
        block = max(0.0, least - few * more)
    full = half = math.inf
    if table:
        full, half = seconds(table, Way.TABLES), seconds(table // 2, Way.TABLES)
    return Costs(seconds(few, Way.ROWS) / few, full, half, block, more)


def cheapest_ways(queries: int, table: int, costs: Costs) -> list[tuple[slice, Way]]:
    """Which of the queries are best answered how: full tables, and another way for the rest."""
    rest = queries % table if table else queries
    ways = {
        Way.ROWS: rest * costs.each,
        Way.TABLES: costs.half if 2 * rest <= table else costs.table,
        Way.PLANES: costs.block + rest * costs.more,
    }
    way = min(ways, key=lambda way: ways[way])
    full = queries - rest
    parts = (full // table * costs.table if full else 0.0) + (ways[way] if rest else 0.0)
    by_planes, by_rows = costs.block + queries * costs.more, queries * costs.each
    if by_planes <= min(parts, by_rows):
        return [(slice(0, queries), Way.PLANES)]
    if by_rows <= parts:
        return [(slice(0, queries), Way.ROWS)]
    chosen = [(slice(0, full), Way.TABLES), (slice(full, queries), way)]
    return [(part, way) for part, way in chosen if part.stop > part.start]


def _work(
    queries: int, group: int, database: Codes, threads: int
) -> tuple[list[slice], list[slice]]:
    """Pieces of the queries, small enough that Ctrl-C need not wait, and shards of the rows."""
    shards = max(1, -(-len(database) // _MOST_ROWS))
    if queries <= group * (threads - 1):
        shards = max(shards, min(threads, queries * database.nbytes // _SHARD_BYTES))
        pieces = even_spans(queries, max(1, threads // shards))
        return pieces, even_spans(len(database), shards)
    groups = min(-(-queries // (group * threads)), _PIECE_PAIRS // (group * len(database)))
    return spans(queries, group * max(1, groups)), even_spans(len(database), shards)


def _nearest(
    kind: type[Answer],
    top_k: Callable[..., None],
    queries: int,
    group: int,
    database: Codes,
    k: int,
    threads: int,
) -> Answer:
    """The k nearest rows; `top_k(group, rows, k, column, indices)` fills in a group's answers."""
    groups, shards = _work(queries, group, database, threads)
    answers = [kind.empty(queries, min(k, s.stop - s.start)) for s in shards]

    def nearest(piece: tuple[slice, tuple[slice, Answer]]) -> None:
        group, (shard, answer) = piece
        column, indices = answer[0][group], answer[1][group]
        top_k(group, database[shard], indices.shape[1], column, indices)
        if shard.start:
            indices += shard.start

    thread_map(nearest, product(groups, zip(shards, answers, strict=True)), threads)
    return answers[0] if len(shards) == 1 else kind.merge(answers, k)


class NativeKernel:
    """The C functions with one instruction set."""

    def __init__(self, variant: str) -> None:
        self.variant = variant

    def _ways(self, queries: int, database: Codes) -> list[tuple[slice, Way]]:
        """Which queries are answered how."""
        width = database.shape[1]
        table = _table(self.variant, width)
        if queries < _TRIAL_QUERIES or not (table or self.variant in _PLANES):
            return [(slice(0, queries), Way.ROWS)]
        usual = float(_USUAL_QUERIES)
        costs = Costs(1.0, usual, usual, math.inf, 0.0)
        if not table:
            costs = Costs(1.0, math.inf, math.inf, usual, 0.0)
        if queries * len(database) >= _TRIAL_PAIRS:
            costs = _costs(self.variant, width)
        return cheapest_ways(queries, table, costs)

    def hamming(self, a: Codes, b: Codes) -> NDArray[np.int32]:
        """All distances between the rows of `a` and those of `b`."""
        distances = np.empty((len(a), len(b)), dtype=np.uint16)
        _hamming.matrix(self.variant, a, b, a.shape[1], distances)
        return distances.astype(np.int32)

    def search(self, queries: Codes, database: Codes, k: int, threads: int) -> Neighbours:
        """The k nearest rows of each query, k at most the number of rows."""

        def top_k(group: slice, rows: Codes, *result: Any) -> None:
            count, width = group.stop - group.start, queries.shape[1]
            k, column, indices = result
            for part, way in self._ways(count, database):
                asked, answer = queries[group][part], (column[part], indices[part])
                _hamming.top_k(self.variant, way, asked, rows, width, k, *answer)

        group = _group(self.variant, queries.shape[1])
        return _nearest(Neighbours, top_k, len(queries), group, database, k, threads)

    def search_asymmetric(
        self, values: Values, database: Codes, k: int, threads: int
    ) -> ScoredNeighbours:
        """The k rows of the highest scores for each query, k at most the number of rows."""

        def rank(group: slice, rows: Codes, *result: Any) -> None:
            _hamming.rank(self.variant, values[group], rows, rows.shape[1], *result)

        return _nearest(ScoredNeighbours, rank, len(values), _GROUP, database, k, threads)

    def asymmetric_scores(self, values: Values, codes: Codes) -> NDArray[np.float64]:
        """Scores (q, n) of rows (n, bytes), or of those each query has of its own (q, n, bytes)."""
        scores = np.empty((len(values), codes.shape[-2]))
        _hamming.scores(values, codes, codes.shape[-1], codes.ndim == 3, scores)
        return scores

    def search_radius(self, queries: Codes, database: Codes, radius: int, threads: int) -> Found:
        """Limits, distances and indices of the rows within `radius` of each query."""
        size = _group(self.variant, queries.shape[1])
        groups, shards = _work(len(queries), size, database, threads)
        pieces = list(product(groups, shards))

        def within(piece: tuple[slice, slice]) -> Found:
            group, shard = queries[piece[0]], piece[1]
            way = self._ways(len(group), database)[0][1]
            options = way, group, database[shard], group.shape[1], radius
            counts, distances, indices = self.found(_hamming.within, *options)
            return counts, distances, indices + shard.start

        parts = thread_map(within, pieces, threads)
        found = list(zip(pieces, parts, strict=True))
        query = np.concatenate(
            [np.repeat(np.arange(len(queries))[group], part[0]) for (group, _), part in found]
        )
        distances, indices = (np.concatenate([part[n] for part in parts]) for n in (1, 2))
        limits = np.cumsum(np.bincount(query + 1, minlength=len(queries) + 1))
        if len(shards) > 1:
            order = np.lexsort((indices, distances, query))
            distances, indices = distances[order], indices[order]
        return limits, distances, indices

    def found(self, function: Callable[..., tuple[bytes, bytes, bytes]], *options: Any) -> Found:
        """Counts, distances and indices from a function of `_hamming` for answers of any length."""
        counts, distances, indices = function(self.variant, *options)
        return (
            np.frombuffer(counts, np.int64),
            np.frombuffer(distances, np.int32),
            np.frombuffer(indices, np.int64),
        )
