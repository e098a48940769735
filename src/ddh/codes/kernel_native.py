"""Hamming search by our own C code (`_hamming.c`), cut into pieces of work for a few threads."""

from itertools import product

import numpy as np
from numpy.typing import NDArray

from ddh.codes import _hamming
from ddh.codes.inputs import Codes
from ddh.codes.parallel import even_spans, in_threads, spans

Found = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]

VARIANTS: list[str] = _hamming.variants()

_TABLE_QUERIES = 32  # from so many queries on, tables of them are faster than XOR and popcount
_TABLE_BYTES = 32  # the longest code that has tables
_SHARD_ROWS = 1 << 17  # fewer rows are not worth a thread of their own
_MOST_ROWS = 1 << 31  # of one call: indices have 32 bits there


def _group(width: int) -> int:
    """Queries that share one table."""
    return 128 if width <= 4 else 64


def _by_tables(queries: Codes) -> bool:
    return len(queries) >= _TABLE_QUERIES and queries.shape[1] <= _TABLE_BYTES


def _work(queries: Codes, database: Codes, threads: int) -> tuple[list[slice], list[slice]]:
    """Groups of queries and shards of rows: whole groups for each thread where there are enough."""
    group = _group(queries.shape[1])
    shards = max(1, -(-len(database) // _MOST_ROWS))
    if len(queries) <= group * (threads - 1):
        shards = max(shards, min(threads, len(database) // _SHARD_ROWS))
        group = max(1, -(-len(queries) // max(1, threads // shards)))
    return spans(len(queries), group), even_spans(len(database), shards)


def found(counts: bytes, distances: bytes, indices: bytes) -> Found:
    """What the C functions give back for answers of any length, as arrays."""
    return (
        np.frombuffer(counts, dtype=np.int64),
        np.frombuffer(distances, dtype=np.int32),
        np.frombuffer(indices, dtype=np.int64),
    )


class NativeKernel:
    """The C functions with one instruction set."""

    def __init__(self, variant: str) -> None:
        self.variant = variant

    def hamming(self, a: Codes, b: Codes) -> NDArray[np.int32]:
        """All distances between the rows of `a` and those of `b`."""
        distances = np.empty((len(a), len(b)), dtype=np.int32)
        _hamming.matrix(self.variant, a, b, a.shape[1], distances)
        return distances

    def search(
        self, queries: Codes, database: Codes, k: int, threads: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The k nearest rows of each query, k at most the number of rows."""
        groups, shards = _work(queries, database, threads)
        widths = [min(k, shard.stop - shard.start) for shard in shards]
        distances = np.empty((len(queries), sum(widths)), dtype=np.int32)
        indices = np.empty((len(queries), sum(widths)), dtype=np.int64)
        columns = np.cumsum([0, *widths])

        def nearest(piece: tuple[slice, int]) -> None:
            group, shard = queries[piece[0]], shards[piece[1]]
            shape = (len(group), widths[piece[1]])
            here = np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.int64)
            _hamming.top_k(
                self.variant,
                _by_tables(group),
                group,
                database[shard],
                group.shape[1],
                shape[1],
                *here,
            )
            column = slice(columns[piece[1]], columns[piece[1] + 1])
            distances[piece[0], column] = here[0]
            indices[piece[0], column] = here[1] + shard.start

        in_threads(nearest, product(groups, range(len(shards))), threads)
        if len(shards) == 1:
            return distances, indices
        # Shards lie in the order of the rows, so a stable sort keeps the smaller index first.
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1)

    def search_radius(self, queries: Codes, database: Codes, radius: int, threads: int) -> Found:
        """Limits, distances and indices of the rows within `radius` of each query."""
        groups, shards = _work(queries, database, threads)

        def within(piece: tuple[slice, slice]) -> Found:
            group, shard = queries[piece[0]], piece[1]
            counts, distances, indices = found(
                *_hamming.within(
                    self.variant,
                    _by_tables(group),
                    group,
                    database[shard],
                    group.shape[1],
                    radius,
                )
            )
            return counts, distances, indices + shard.start

        parts = in_threads(within, product(groups, shards), threads)
        counts = np.zeros(len(queries), dtype=np.int64)
        for (group, _), part in zip(product(groups, shards), parts, strict=True):
            counts[group] += part[0]
        limits = np.concatenate([[0], counts.cumsum()])
        distances = np.concatenate([part[1] for part in parts])
        indices = np.concatenate([part[2] for part in parts])
        if len(shards) == 1:
            return limits, distances, indices
        query = np.concatenate(
            [
                np.repeat(np.arange(group.start, group.stop), part[0])
                for (group, _), part in zip(product(groups, shards), parts, strict=True)
            ]
        )
        order = np.lexsort((indices, distances, query))
        return limits, distances[order], indices[order]
