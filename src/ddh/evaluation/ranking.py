"""Ranked lists with ties put in a seeded random order, as published tables have them.

Published code sorts by distance and lets the sort decide between equal distances, that is, the
order of the database. Here that order is a random one drawn from a seed, so that a database
sorted by class cannot flatter a score.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.progress import track
from ddh.evaluation.counts import distances
from ddh.evaluation.inputs import Relevance, check_pair, words

# Distances sorted at once; a sort needs some 16 bytes for each.
BLOCK = 1 << 20


def seeded_order(items: int, seed: int) -> NDArray[np.intp]:
    """The order of the database that decides between equal distances."""
    return np.random.default_rng(seed).permutation(items)


def nearest(
    queries: NDArray[np.uint64], database: NDArray[np.uint64], bits: int, k: int
) -> NDArray[np.intp]:
    """Rows of the k nearest database codes of each query; equal distances keep their order."""
    # A stable sort of 8- and 16-bit integers is a radix sort: linear, and no heap is needed.
    return np.argsort(distances(queries, database, bits), axis=1, kind="stable")[:, :k]


def ranked_relevance(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    *,
    k: int | None,
    bits: int | None = None,
    seed: int = 0,
    device: str | None = None,
) -> Iterator[tuple[slice, NDArray[np.bool_], NDArray[np.int64]]]:
    """(queries, relevance in rank order down to k, relevant items in all), block by block.

    On `device` with torch where one is given, otherwise with NumPy; both give the same lists.
    """
    queries, database, bits = check_pair(query_codes, database_codes, bits)
    relevance = Relevance.of(query_labels, database_labels, len(queries), len(database))
    order = seeded_order(len(database), seed)
    shuffled = database[order]
    relevance = Relevance(relevance.query, relevance.database[order])
    depth = len(database) if k is None else min(k, len(database))
    if device is not None:
        from ddh.evaluation.on_device import ranked_on_device

        yield from ranked_on_device(queries, shuffled, relevance, bits, depth, device)
        return
    query_words, database_words = words(queries), words(shuffled)
    step = max(1, BLOCK // len(database))
    for start in track(range(0, len(queries), step), "Ranking", unit="block"):
        rows = slice(start, min(start + step, len(queries)))
        ranked = nearest(query_words[rows], database_words, bits, depth)
        relevant = relevance.block(rows)
        yield rows, np.take_along_axis(relevant, ranked, axis=1), relevant.sum(axis=1)
