"""Searches by our own C code (`_hamming.c`), cut into pieces of work for a few threads."""

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from time import get_clock_info, perf_counter, thread_time
from typing import Any, TypeVar

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
_PLANES = ("avx512", "avx512bw")  # which add up planes of bits
_PLANE_QUERIES = 512  # at once, see _hamming_answers.h
_TRIAL_BYTES, _TRIAL_QUERIES, _TRIAL_MOST, _TRIALS = 1 << 22, 8, 128, 3
_TRIAL_PAIRS = 1 << 23  # fewer pairs of queries and rows are not worth a trial
_USUAL_QUERIES = 32  # that are answered together, where nothing was measured
_GROUP = 128  # queries of a piece of work, where the kernel answers each by itself
_SHARD_BYTES = 8 << 20  # compared: fewer are not worth a thread of their own
_PIECE_PAIRS = 1 << 30  # of queries and rows in one piece of work: some tenths of a second
_MOST_ROWS = 1 << 31  # of one call: indices have 32 bits there

# The time of this thread alone, where the system measures it finely: other load does not count.
_clock = thread_time if get_clock_info("thread_time").resolution <= 1e-6 else perf_counter

Answer = TypeVar("Answer", Neighbours, ScoredNeighbours)


def _groups(variant: str, width: int) -> tuple[int, bool]:
    """How many queries are answered together (0: none), and whether fewer take as long."""
    if variant in _PLANES:
        return _PLANE_QUERIES, False
    tables = width <= _TABLE_BYTES and variant != "plain"
    return (128 if width <= 4 else 64) if tables else 0, True


def _group(variant: str, width: int) -> int:
    """Queries that are answered together, or that make a piece of work."""
    return _groups(variant, width)[0] or _GROUP


@lru_cache
def _fewest_together(variant: str, width: int) -> int:
    """From how many queries on it is faster to answer them together: a short trial.

    More than a group of them: never.
    """
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (_TRIAL_BYTES // width, width), dtype=np.uint8)
    group, whole = _groups(variant, width)
    few, many = _TRIAL_QUERIES, min(group, _TRIAL_MOST)
    others = rng.integers(0, 256, (many, width), dtype=np.uint8)

    def seconds(queries: int, together: bool) -> float:
        asked, answer = others[:queries], Neighbours.empty(queries, 1)
        times = []
        for _ in range(_TRIALS):
            start = _clock()
            _hamming.top_k(variant, together, asked, rows, width, 1, *answer)
            times.append(_clock() - start)
        return min(times)

    each, all_of_them = seconds(few, False) / few, seconds(many, True)
    more = 0.0 if whole else (all_of_them - seconds(few, True)) / (many - few)
    if each <= more:
        return group + 1
    return max(few, round((all_of_them - many * more) / (each - more)))


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

    def _ways(self, queries: int, database: Codes) -> list[tuple[slice, bool]]:
        """Which queries are answered together (True) and which by a scan for each."""
        width = database.shape[1]
        group, whole = _groups(self.variant, width)
        fewest = _USUAL_QUERIES
        if group and queries >= _TRIAL_QUERIES and queries * len(database) >= _TRIAL_PAIRS:
            fewest = _fewest_together(self.variant, width)
        rest = queries % group if group and whole else queries
        together = 0 if fewest > group else queries - rest if rest < fewest else queries
        parts = [(slice(0, together), True), (slice(together, queries), False)]
        return [(part, way) for part, way in parts if part.stop > part.start]

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
            for part, together in self._ways(count, database):
                asked, answer = queries[group][part], (column[part], indices[part])
                _hamming.top_k(self.variant, together, asked, rows, width, k, *answer)

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
            together = self._ways(len(group), database)[0][1]
            options = together, group, database[shard], group.shape[1], radius
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
