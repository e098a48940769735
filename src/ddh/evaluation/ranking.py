"""Ranked lists with ties put in a seeded random order, as published tables have them.

Published code sorts by distance and lets the sort decide between equal distances, that is, the
order of the database. Here that order is a random one drawn from a seed, so that a database
sorted by class cannot flatter a score.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.progress import track
from ddh._core.spans import spans
from ddh.codes import search
from ddh.codes.inputs import Codes
from ddh.evaluation.average_precision import Denominator, average_precision
from ddh.evaluation.counts import device_blocks
from ddh.evaluation.inputs import Relevance

# Items ranked at a time, and similarities held at once: 64 MB of float32.
BLOCK, SIMILARITIES = 1 << 22, 1 << 24


def seeded_order(items: int, seed: int) -> NDArray[np.intp]:
    """The order of the database that decides between equal distances."""
    return np.random.default_rng(seed).permutation(items)


def ranked_relevance(
    queries: Codes,
    database: Codes,
    relevance: Relevance,
    bits: int,
    *,
    k: int | None,
    seed: int = 0,
    device: str | None = None,
) -> Iterator[tuple[slice, NDArray[np.bool_], NDArray[np.int64]]]:
    """(queries, relevance in rank order down to k, number of relevant items), block by block.

    With torch on `device` where one is given; both ways give the same lists.
    """
    order = seeded_order(len(database), seed)
    database, relevance = database[order], relevance.permuted(order)
    depth = min(k or len(database), len(database))
    if device is not None:
        import torch

        for rows, distances, right in device_blocks(queries, database, relevance, bits, device):
            # the index breaks ties between equal distances, so every key is different
            keys = distances * len(database) + torch.arange(len(database), device=device)
            best = keys.topk(depth, dim=1, largest=False, sorted=True).indices
            yield rows, right.gather(1, best).cpu().numpy(), right.sum(dim=1).cpu().numpy()
        return
    step = max(1, BLOCK // len(database))
    for rows in track(spans(len(queries), step), "Ranking", unit="block"):
        ranked = search(queries[rows], database, depth).indices
        relevant = relevance.block(rows)
        yield rows, np.take_along_axis(relevant, ranked, axis=1), relevant.sum(axis=1)


def average_precisions(
    relevance: Relevance, lists: Callable[[slice], NDArray[Any]], k: int, denominator: Denominator
) -> tuple[NDArray[np.float64], int]:
    """(AP of each query, queries without a relevant item); `lists(rows)` has their ranked items."""
    values, empty = np.empty(len(relevance.query)), 0
    step = max(1, SIMILARITIES // len(relevance.database))
    for rows in track(spans(len(values), step), "Ranking", unit="block"):
        relevant = relevance.block(rows)
        total = relevant.sum(axis=1)
        ranked = np.take_along_axis(relevant, lists(rows), axis=1)
        values[rows] = average_precision(ranked, total, k, denominator)
        empty += int(np.count_nonzero(total == 0))
    return values, empty
