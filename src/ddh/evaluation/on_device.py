"""Counting and ranking on a GPU (or any torch device); imported only if a device is given.

Codes become +-1 in float32, whose products are exact here: sums of at most 4,096 terms of size 1,
also in the TF32 mode of a GPU.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from ddh.codes import unpack
from ddh.evaluation.inputs import Relevance
from ddh.neighbours.labels import shares_label

# Distances in one block; each needs about 30 bytes on the device.
BLOCK = 1 << 24


def _blocks(
    queries: NDArray[np.uint8],
    database: NDArray[np.uint8],
    relevance: Relevance,
    bits: int,
    device: str,
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """(rows, Hamming distances int64, relevance bool) of some queries to the whole database."""
    items = torch.from_numpy(unpack(database, bits)).to(device, torch.float32)
    labels = torch.from_numpy(relevance.database).to(device)
    step = max(1, BLOCK // len(database))
    for start in range(0, len(queries), step):
        rows = slice(start, min(start + step, len(queries)))
        block = torch.from_numpy(unpack(queries[rows], bits)).to(device, torch.float32)
        distances = ((bits - block @ items.T) / 2).to(torch.int64)
        yield (
            rows,
            distances,
            shares_label(torch.from_numpy(relevance.query[rows]).to(device), labels),
        )


def count_on_device(
    queries: NDArray[np.uint8],
    database: NDArray[np.uint8],
    relevance: Relevance,
    bits: int,
    device: str,
) -> NDArray[np.int32]:
    """(queries, 2 (bits + 1)): per distance first the irrelevant items, then the relevant ones."""
    bins = bits + 1
    table = np.empty((len(queries), 2 * bins), np.int32)
    for rows, key, relevant in _blocks(queries, database, relevance, bits, device):
        key += bins * relevant
        key += 2 * bins * torch.arange(len(key), device=device)[:, None]
        found = torch.bincount(key.ravel(), minlength=len(key) * 2 * bins)
        table[rows] = found.reshape(len(key), 2 * bins).cpu().numpy()
    return table


def ranked_on_device(
    queries: NDArray[np.uint8],
    database: NDArray[np.uint8],
    relevance: Relevance,
    bits: int,
    k: int,
    device: str,
) -> Iterator[tuple[slice, NDArray[np.bool_], NDArray[np.int64]]]:
    """The same blocks as `ddh.evaluation.ranking.ranked_relevance`, ties in database order."""
    for rows, key, relevant in _blocks(queries, database, relevance, bits, device):
        # The place breaks ties between equal distances, so every key is different.
        key *= len(database)
        key += torch.arange(len(database), device=device)
        best = key.topk(k, dim=1, largest=False, sorted=True).indices
        ranked = relevant.gather(1, best).cpu().numpy()
        yield rows, ranked, relevant.sum(dim=1).cpu().numpy()
