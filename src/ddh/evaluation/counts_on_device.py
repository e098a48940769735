"""Counts per distance on a GPU (or any torch device); imported only when a device is given."""

import numpy as np
import torch
from numpy.typing import NDArray

from ddh.codes import unpack
from ddh.evaluation.counts import DistanceCounts
from ddh.evaluation.inputs import Relevance

# Distances in one block; each needs about 20 bytes on the device.
BLOCK = 1 << 24


def count_on_device(
    queries: NDArray[np.uint8],
    database: NDArray[np.uint8],
    relevance: Relevance,
    bits: int,
    device: str,
) -> DistanceCounts:
    """The same counts as `ddh.evaluation.counts.count`, from products of +-1 codes."""
    # Sums of at most 4,096 products of +-1 are exact in float32, also in the TF32 mode of a GPU.
    items = torch.from_numpy(unpack(database, bits)).to(device, torch.float32)
    labels = torch.from_numpy(relevance.database).to(device)
    bins = bits + 1
    table = np.empty((len(queries), 2 * bins), np.int32)
    step = max(1, BLOCK // len(database))
    for start in range(0, len(queries), step):
        rows = slice(start, start + step)
        block = torch.from_numpy(unpack(queries[rows], bits)).to(device, torch.float32)
        distance = ((bits - block @ items.T) / 2).to(torch.int64)
        query_labels = torch.from_numpy(relevance.query[rows]).to(device)
        distance += bins * _relevant(query_labels, labels)
        distance += 2 * bins * torch.arange(len(block), device=device)[:, None]
        found = torch.bincount(distance.ravel(), minlength=len(block) * 2 * bins)
        table[rows] = found.reshape(len(block), 2 * bins).cpu().numpy()
    relevant = np.ascontiguousarray(table[:, bins:])
    return DistanceCounts(table[:, :bins] + relevant, relevant)


def _relevant(queries: torch.Tensor, database: torch.Tensor) -> torch.Tensor:
    if queries.ndim == 1:
        return queries[:, None] == database[None, :]
    return (queries @ database.T) > 0.5
