"""Exact search by comparing every query with every row, and what a search returns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh.codes.inputs import neighbour_count, rows_and_queries, search_radius_bits, thread_count
from ddh.codes.kernels import Neighbours, chosen


@dataclass(frozen=True)
class RadiusNeighbours:
    """All rows within a radius of each query: those of query i lie in `limits[i]:limits[i + 1]`.

    Within one query they are ordered by distance, equal distances by the smaller index.
    `result[i]` gives the `Neighbours` of query i, and iterating walks through the queries.
    """

    limits: NDArray[np.int64]
    distances: NDArray[np.int32]
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.limits) - 1

    def __getitem__(self, query: int) -> Neighbours:
        if not -len(self) <= query < len(self):
            raise IndexError(f"query {query} of {len(self)}")
        query %= len(self)
        part = slice(self.limits[query], self.limits[query + 1])
        return Neighbours(self.distances[part], self.indices[part])

    def __iter__(self) -> Iterator[Neighbours]:
        return (self[query] for query in range(len(self)))

    def __repr__(self) -> str:
        return f"RadiusNeighbours({len(self)} queries, {len(self.indices)} rows)"


class Pairs(NamedTuple):
    """Pairs of rows with `first[p] < second[p]`, ordered by first, then by second."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    distances: NDArray[np.int32]


def hamming(a: ArrayLike, b: ArrayLike) -> NDArray[np.int32]:
    """(n, bytes) and (m, bytes) packed codes -> (n, m) Hamming distances; for small blocks."""
    a, b = rows_and_queries(a, b)
    if not len(a) or not len(b):
        return np.empty((len(a), len(b)), dtype=np.int32)
    return chosen()[1].hamming(a, b)


def search(
    queries: ArrayLike, database: ArrayLike, k: int, threads: int | None = None
) -> Neighbours:
    """The k nearest rows of each query, see `ddh.codes.search`."""
    queries, database = rows_and_queries(queries, database)
    k, threads = min(neighbour_count(k), len(database)), thread_count(threads)
    if not len(queries) or not len(database):
        return Neighbours.empty(len(queries), k)
    return chosen()[1].search(queries, database, k, threads)


def search_radius(
    queries: ArrayLike,
    database: ArrayLike,
    radius: int,
    threads: int | None = None,
    device: str | None = None,
) -> RadiusNeighbours:
    """All rows at a distance of `radius` or less from each query.

    Ordered within a query by distance, equal distances by the smaller index. Memory beyond the
    arguments is proportional to the answer. `device="cuda"` searches on a GPU, see `GpuIndex`.
    """
    if device is not None:
        from ddh.codes.gpu import GpuIndex

        return GpuIndex(database, device).search_radius(queries, radius)
    queries, database = rows_and_queries(queries, database)
    radius, threads = search_radius_bits(radius), thread_count(threads)
    if not len(queries) or not len(database):
        none = np.empty(0, dtype=np.int32)
        limits = np.zeros(len(queries) + 1, dtype=np.int64)
        return RadiusNeighbours(limits, none, none.astype(np.int64))
    radius = min(radius, 8 * database.shape[1])
    return RadiusNeighbours(*chosen()[1].search_radius(queries, database, radius, threads))
