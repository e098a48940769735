"""All pairs of rows within a radius, through the parts of their bits that such rows share.

Cut into `radius + shared` parts, two codes at a distance of `radius` or less agree in at least
`shared` of them. For each choice of that many parts, rows that agree there lie next to each other
once sorted by them; a pair is counted at the first parts that it shares, once.
"""

from dataclasses import dataclass
from itertools import combinations, pairwise
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.spans import even_spans, spans
from ddh._core.threads import thread_map
from ddh.codes import inputs, scan
from ddh.codes.inputs import Codes
from ddh.codes.kernels import native
from ddh.codes.multi_index import padded_width, substring
from ddh.codes.scan import Pairs

_MOST_PARTS = 60
_MOST_SHARED = 6
_MOST_TABLES = 1000
_SORTED_ROW, _LONGEST_KEY = 400.0, 18  # on a CPU, see `pair_plan`
_MOST_ROWS = 1 << 31
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class PairPlan:
    """Parts start..stop of the bits, of which pairs within the radius share at least `shared`."""

    parts: list[tuple[int, int]]
    shared: int

    @property
    def tables(self) -> list[tuple[int, ...]]:
        """All choices of the parts to sort by."""
        return list(combinations(range(len(self.parts)), self.shared))

    def masks(self, width: int, bit_order: Literal["big", "little"]) -> NDArray[np.uint8]:
        """(parts, width) bytes: where each part lies in a code."""
        bits = np.zeros((len(self.parts), 8 * width), dtype=np.uint8)
        for row, (start, stop) in zip(bits, self.parts, strict=True):
            row[start:stop] = 1
        return np.packbits(bits, axis=1, bitorder=bit_order)

    def table_bits(self, table: tuple[int, ...]) -> int:
        """A choice of parts as a set of bits."""
        return sum(1 << part for part in table)

    def key_bits(self, table: tuple[int, ...]) -> int:
        """The length of the bits to sort by."""
        return sum(stop - start for start, stop in (self.parts[part] for part in table))


def pair_plan(rows: int, bits: int, radius: int, sorted_row: float, longest_key: int) -> PairPlan:
    """The plan of the least work for codes without structure; no part shared: compare all rows.

    Sorting a row takes the time of `sorted_row` comparisons, and by at most `longest_key` bits.
    """

    def possible(shared: int) -> bool:
        parts = radius + shared
        return parts <= min(bits, _MOST_PARTS) and comb(parts, shared) <= _MOST_TABLES

    def cost(shared: int) -> float:
        if not shared:
            return rows * rows / 2
        key = min(shared * bits / (radius + shared), longest_key)
        compared: float = rows * rows / 2 / 2.0**key
        return comb(radius + shared, shared) * (sorted_row * rows + compared)

    shared = min([0, *filter(possible, range(1, _MOST_SHARED + 1))], key=cost)
    if not shared:
        return PairPlan([], 0)
    starts = [part * bits // (radius + shared) for part in range(radius + shared + 1)]
    longest = longest_key // shared  # parts that leave bits out find the same pairs
    parts = [(start, min(stop, start + longest)) for start, stop in pairwise(starts)]
    return PairPlan(parts, shared)


def pairs_within(
    database: ArrayLike, radius: int, threads: int | None = None, device: str | None = None
) -> Pairs:
    """All pairs i < j of rows at a distance of `radius` or less, ordered by i, then by j.

    Rows are sorted by parts of their bits that pairs within the radius share, where that is less
    work than comparing all rows with all rows. Memory beyond the database: about 40 bytes for each
    pair, the rows once more, and 8 bytes each. `device="cuda"` finds them on a GPU.
    """
    if device is not None:
        from ddh.codes.gpu import GpuIndex

        return GpuIndex(database, device).pairs_within(radius)
    database = inputs.packed_rows(database, "the database's rows")
    radius, threads = inputs.search_radius_bits(radius), inputs.thread_count(threads)
    n, width = database.shape
    plan = pair_plan(n, 8 * width, radius, _SORTED_ROW, _LONGEST_KEY)
    if not plan.shared or not native() or n >= _MOST_ROWS:
        return _pairs_by_scan(database, radius, threads)
    found = [_pairs_of_table(database, radius, threads, plan, table) for table in plan.tables]
    keys, distances = (np.concatenate(column) for column in zip(*found, strict=True))
    del found
    order = np.argsort(keys)
    keys = keys[order]
    first, second = keys >> np.uint64(32), keys & np.uint64(0xFFFFFFFF)
    return Pairs(first.astype(np.int64), second.astype(np.int64), distances[order])


def _pairs_of_table(
    database: Codes, radius: int, threads: int, plan: PairPlan, table: tuple[int, ...]
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Pairs that share these parts first, as `first << 32 | second`, and their distances."""
    from ddh.codes import _hamming

    kernel = native()
    assert kernel is not None
    n, width = database.shape
    keys = np.zeros(n, dtype=np.uint32)
    for part in table:
        start, stop = plan.parts[part]
        keys <<= np.uint32(stop - start)
        keys |= substring(database, start, stop)
    padded = padded_width(width)
    offsets = np.empty((1 << plan.key_bits(table)) + 1, dtype=np.uint32)
    ids, rows = np.empty(n, dtype=np.uint32), np.empty((n, padded), dtype=np.uint8)
    _hamming.sort_into_buckets(keys, offsets, ids, database, rows, width)
    del keys
    masks = plan.masks(padded, "big")

    def near(part: slice) -> tuple[bytes, bytes]:
        buckets = rows, padded, ids, offsets, part.start, part.stop
        options = radius, masks, plan.shared, plan.table_bits(table)
        return _hamming.bucket_pairs(kernel.variant, *buckets, *options)

    found = thread_map(near, even_spans(n, 16 * threads), threads)
    pairs, distances = (b"".join(column) for column in zip(*found, strict=True))
    return np.frombuffer(pairs, np.uint64), np.frombuffer(distances, np.int32)


def _pairs_by_scan(database: Codes, radius: int, threads: int) -> Pairs:
    """Every row against the later ones."""
    pages = [Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))]
    for part in spans(len(database), _ROWS_AT_ONCE):
        found = scan.search_radius(database[part], database[part.start :], radius, threads)
        first = np.repeat(np.arange(part.start, part.stop), np.diff(found.limits))
        second = found.indices + part.start
        keep = first < second
        first, second, distances = first[keep], second[keep], found.distances[keep]
        order = np.lexsort((second, first))
        pages.append(Pairs(first[order], second[order], distances[order]))
    return Pairs(*(np.concatenate(column) for column in zip(*pages, strict=True)))
