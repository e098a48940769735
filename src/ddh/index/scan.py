"""Search over codes, leaving out rows that are deleted or excluded by a filter.

Slots are rows of the code array; every answer is ordered by distance, then by slot.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ddh.codes import ApproximateIndex, Neighbours, search, search_radius
from ddh.index.rows import Codes

Slots = NDArray[np.int64]

CHUNK_ROWS = 1 << 20  # gathered at once: 8 MB of 64-bit codes
DEEPEST = 1 << 16  # of neighbours asked for to get past deleted ones
MOST_GROWTH = 1.25  # of the slots, until lists are made anew
FEW_BYTES = 160 << 20  # compared: some milliseconds, for which threads are not worth starting


class Tombstones:
    """Which slots are deleted: one bit each, the order of bits within a byte as in the codes."""

    def __init__(self, bitmap: Codes, slots: int, dead: int) -> None:
        self.bitmap, self.slots, self.dead = bitmap, slots, dead

    @classmethod
    def of_all_but(cls, live: Slots, slots: int) -> Self:
        """A filter: all slots but the given ones count as deleted."""
        excluded = np.ones(slots, np.uint8)
        excluded[live] = 0
        return cls(np.packbits(excluded), slots, slots - len(live))

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


class Lists:
    """Inverted lists of the slots there were, with the slots written since compared one by one."""

    def __init__(self, generation: int, codes: Codes) -> None:
        self.generation = generation
        self.index = ApproximateIndex(codes, 8 * codes.shape[1])

    def fits(self, generation: int, slots: int) -> bool:
        """Whether the lists are of these codes, and most slots are in them."""
        return generation == self.generation and slots <= MOST_GROWTH * len(self.index)

    def search(self, queries: Codes, codes: Codes, k: int) -> Neighbours:
        """The k nearest slots that the lists find."""
        built = len(self.index)
        found = self.index.search(queries, k)
        if built == len(codes):
            return found
        distances, slots = search(queries, codes[built:], k)
        return Neighbours.merge([found, Neighbours(distances, slots + built)], k)


def nearest(
    queries: Codes, codes: Codes, k: int, deleted: Tombstones, lists: Lists | None = None
) -> Neighbours:
    """The k nearest live slots of each query, fewer where fewer live; exact without lists.

    More than k are asked for until enough of them live, or the live codes are gathered.
    """

    def find(asked: Codes, depth: int) -> Neighbours:
        if lists is not None:
            return lists.search(asked, codes, depth)
        return search(asked, codes, depth, _threads(asked, codes))

    k = min(k, deleted.slots - deleted.dead)
    if not k or not len(queries):
        return Neighbours.empty(len(queries), k)
    if not deleted.dead:
        return find(queries, k)
    if deleted.dead > deleted.slots // 2:
        return nearest_among(queries, codes, k, deleted.live())
    distances, slots = Neighbours.empty(len(queries), k)
    todo, depth = np.arange(len(queries)), k + min(k, deleted.dead)
    while len(todo) and depth <= max(DEEPEST, 2 * k):
        found = find(queries[todo], depth)
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
    best = Neighbours.empty(len(queries), 0)
    for chunk in among:
        distances, rows = search(queries, codes[chunk], k)
        best = Neighbours.merge([best, Neighbours(distances, chunk[rows])], k)
    return best


def within(queries: Codes, codes: Codes, radius: int, deleted: Tombstones) -> list[Neighbours]:
    """All live slots within `radius` of each query; where few live, their codes are gathered."""
    if deleted.dead > deleted.slots // 2:
        return within_among(queries, codes, radius, deleted.live())
    answers = []
    for distances, slots in search_radius(queries, codes, radius):
        alive = ~deleted.at(slots)
        answers.append(Neighbours(distances[alive], slots[alive]))
    return answers


def within_among(
    queries: Codes, codes: Codes, radius: int, among: Iterable[Slots]
) -> list[Neighbours]:
    """Those of the given slots (ascending chunks) that lie within `radius` of each query."""
    parts = [(chunk, search_radius(queries, codes[chunk], radius)) for chunk in among]
    answers = []
    for query in range(len(queries)):
        distances = np.concatenate([found[query].distances for _, found in parts])
        slots = np.concatenate([chunk[found[query].indices] for chunk, found in parts])
        order = np.argsort(distances, kind="stable")
        answers.append(Neighbours(distances[order], slots[order]))
    return answers
