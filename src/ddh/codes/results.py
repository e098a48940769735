"""What a search gives back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Neighbours(NamedTuple):
    """Nearest rows, by distance, equal distances by the smaller index; a plain pair of arrays."""

    distances: NDArray[np.int32]
    indices: NDArray[np.int64]


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
