"""Exact search over codes, leaving out rows that are deleted or excluded by a filter.

Slots are rows of the code array; every answer is ordered by distance, then by slot.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh.codes import Neighbours, search, search_radius
from ddh.index.rows import Codes

Slots = NDArray[np.int64]

CHUNK_ROWS = 1 << 20  # gathered at once: 8 MB of 64-bit codes
DEEPEST = 1 << 16  # of neighbours asked for to get past deleted ones
FEW_BYTES = 160 << 20  # compared: some milliseconds, for which threads are not worth starting


class Tombstones:
    """Which slots are deleted: one bit each, the order of bits within a byte as in the codes."""

    def __init__(self, bitmap: Codes, slots: int, dead: int) -> None:
        self.bitmap, self.slots, self.dead = bitmap, slots, dead

    def at(self, slots: Slots) -> NDArray[np.bool_]:
        """Whether each of `slots` is deleted."""
        marks = self.bitmap[slots >> 3] >> (7 - (slots & 7)).astype(np.uint8)
        return np.asarray(marks & 1, bool)

    def live(self) -> Iterator[Slots]:
        """The slots that are not deleted, in chunks."""
        for start in range(0, self.slots, CHUNK_ROWS):
            rows = min(CHUNK_ROWS, self.slots - start)
            bits = np.unpackbits(self.bitmap[start >> 3 : (start + rows + 7) >> 3], count=rows)
            yield np.flatnonzero(bits == 0) + start


def chunks(slots: Slots) -> Iterator[Slots]:
    """Slots cut into pieces that are cheap to gather."""
    for start in range(0, len(slots), CHUNK_ROWS):
        yield slots[start : start + CHUNK_ROWS]


def nearest(queries: Codes, codes: Codes, k: int, deleted: Tombstones) -> Neighbours:
    """The k nearest live slots of each query, fewer where fewer live.

    Asks for more neighbours than k until enough live ones are among them, and gathers the live
    codes where that would ask for too many.
    """
    k = min(k, deleted.slots - deleted.dead)
    if not deleted.dead or not k or not len(queries):
        return search(queries, codes, k, _threads(queries, codes)) if k else _nothing(len(queries))
    if deleted.dead > deleted.slots // 2:
        return nearest_among(queries, codes, k, deleted.live())
    distances = np.empty((len(queries), k), np.int32)
    slots = np.empty((len(queries), k), np.int64)
    todo, depth = np.arange(len(queries)), k + min(k, deleted.dead)
    while len(todo) and depth <= max(DEEPEST, 2 * k):
        found = search(queries[todo], codes, depth, _threads(todo, codes))
        alive = ~deleted.at(found.indices)
        enough = alive.sum(axis=1) >= k
        first = alive[enough] & (alive[enough].cumsum(axis=1) <= k)
        distances[todo[enough]] = found.distances[enough][first].reshape(-1, k)
        slots[todo[enough]] = found.indices[enough][first].reshape(-1, k)
        todo, depth = todo[~enough], 4 * depth
    if len(todo):
        distances[todo], slots[todo] = nearest_among(queries[todo], codes, k, deleted.live())
    return Neighbours(distances, slots)


def _threads(queries: NDArray[Any], codes: Codes) -> int | None:
    return 1 if len(queries) * codes.nbytes <= FEW_BYTES else None


def nearest_among(queries: Codes, codes: Codes, k: int, among: Iterable[Slots]) -> Neighbours:
    """The k nearest of the given slots, which come in ascending chunks."""
    best = _nothing(len(queries))
    for chunk in among:
        found = search(queries, codes[chunk], k)
        distances = np.concatenate([best.distances, found.distances], axis=1)
        slots = np.concatenate([best.indices, chunk[found.indices]], axis=1)
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        best = Neighbours(
            np.take_along_axis(distances, order, 1), np.take_along_axis(slots, order, 1)
        )
    return best


def within(queries: Codes, codes: Codes, radius: int, deleted: Tombstones) -> list[Neighbours]:
    """All live slots within `radius` of each query."""
    answers = []
    for distances, slots in search_radius(queries, codes, radius):
        alive = ~deleted.at(slots)
        answers.append(Neighbours(distances[alive], slots[alive]))
    return answers


def within_among(
    queries: Codes, codes: Codes, radius: int, among: Iterable[Slots]
) -> list[Neighbours]:
    """Those of the given slots (ascending chunks) that lie within `radius` of each query."""
    parts: list[list[Neighbours]] = [[] for _ in queries]
    for chunk in among:
        found = search_radius(queries, codes[chunk], radius)
        for part, (distances, positions) in zip(parts, found, strict=True):
            part.append(Neighbours(distances, chunk[positions]))
    return [_merged(part) for part in parts]


def _merged(parts: list[Neighbours]) -> Neighbours:
    if not parts:
        return Neighbours(np.empty(0, np.int32), np.empty(0, np.int64))
    distances = np.concatenate([part.distances for part in parts])
    slots = np.concatenate([part.indices for part in parts])
    order = np.argsort(distances, kind="stable")
    return Neighbours(distances[order], slots[order])


def _nothing(queries: int) -> Neighbours:
    return Neighbours(np.empty((queries, 0), np.int32), np.empty((queries, 0), np.int64))
