"""Approximate neighbour lists for large N, with their recall measured and the effort set by it.

A sample of rows is compared with its exact lists; the least effort is taken at which the sample
shows the recall that was asked for. Many rows need little effort for it, because their lists are
refined: a neighbour's neighbours are looked at too (a step of NN-descent; Dong et al., 2011), which
takes the same time for a row whatever N is. Features may be a mapped file: they are read in
blocks and never held whole.

On one machine `approximate_lists` does it all. Over several (Ray, or anything else) the same
steps are: `Cells.build(space).save(path)` and `choose_effort` once, `shard_lists` with
`Cells.open(path)` wherever there is a processor, for the rows a..b that it was given.
"""

import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ddh._core.errors import DDHWarning
from ddh._core.progress import track
from ddh.neighbours.cosine import CosineSpace, pieces
from ddh.neighbours.exact import rank
from ddh.neighbours.faiss_index import Cells, HNSWIndex, NeighbourIndex

RECALL = 0.95
SAMPLE = 512
# Rows that are searched at a time.
ROWS = 16384
# From so many rows on, refined lists cost less than the effort that they save.
REFINED_ROWS = 50_000
# Lists of more bytes than this go to a mapped file, where a folder is given.
LARGE_LISTS = 1 << 30


@dataclass(frozen=True)
class Choice:
    """The effort that was chosen, the recall of the sample at it, and whether that is enough."""

    effort: int
    recall: float
    sample: int
    enough: bool


@dataclass(frozen=True)
class ApproximateLists:
    """`lists` (N, k) int32, the recall seen on `sample` rows, the index, and the seconds it took.

    `index` names the kind and the effort; `seconds` are those to build, to choose and to search.
    """

    lists: NDArray[np.int32]
    recall: float
    sample: int
    index: str
    seconds: dict[str, float]


def approximate_lists(
    space: CosineSpace,
    k: int,
    *,
    recall: float = RECALL,
    graph: bool = False,
    folder: Path | None = None,
) -> ApproximateLists:
    """Lists by cells (IVF) or, with `graph`, by HNSW; best first.

    Warns when even the largest effort stays below `recall`. Memory: N d / 4 bytes for the index
    and 8 N k for the lists; with `folder`, large lists are mapped files there.
    """
    refine = len(space) >= REFINED_ROWS
    clock = [time.perf_counter()]
    index: NeighbourIndex = HNSWIndex(space) if graph else Cells.build(space)
    clock.append(time.perf_counter())
    choice = choose_effort(space, index, k, recall, refine=refine)
    clock.append(time.perf_counter())
    lists = _room(len(space), k, folder, "lists")
    for start in track(range(0, len(space), ROWS), "Neighbours", unit="block"):
        stop = min(start + ROWS, len(space))
        lists[start:stop] = shard_lists(space, index, start, stop, k, choice.effort)
    clock.append(time.perf_counter())
    if refine:
        lists = _refined_lists(space, lists, _room(len(space), k, folder, "refined-lists"))
        clock.append(time.perf_counter())
    stages = ("build", "choose", "search", "refine")[: len(clock) - 1]
    seconds = dict(zip(stages, np.diff(clock).tolist(), strict=True))
    name = f"{index.name}, {choice.effort} of {index.last_effort}{', refined' if refine else ''}"
    return ApproximateLists(lists, choice.recall, choice.sample, name, seconds)


def shard_lists(
    space: CosineSpace, index: NeighbourIndex, start: int, stop: int, k: int, effort: int
) -> NDArray[np.int32]:
    """The lists of the rows start..stop, (stop - start, k) int32, best first.

    This is the unit of work of a cluster: `index` may come from `Cells.open`, and `space` may be
    `CosineSpace(np.load(file, mmap_mode="r"), mean, squares)` with the `mean` and `squares` of
    the `cosine_space` that the index was built from. Rows for which the index finds fewer
    than k get exact lists. Memory: about 100 MB, and 12 k + 8 d bytes a row of the shard.
    """
    parts = []
    for at in range(start, stop, ROWS):
        rows = np.arange(at, min(at + ROWS, stop), dtype=np.int32)
        parts.append(_search(space, index, rows, k, effort))
    return np.concatenate(parts)


def _refined_lists(
    space: CosineSpace, lists: NDArray[np.int32], out: NDArray[np.int32]
) -> NDArray[np.int32]:
    for start in track(range(0, len(space), ROWS), "Refining", unit="block"):
        rows = np.arange(start, min(start + ROWS, len(space)), dtype=np.int32)
        own = lists[rows]
        out[rows] = refined(space, rows, own, lists[own])
    return out


def refined(
    space: CosineSpace,
    rows: NDArray[np.int32],
    own: NDArray[np.int32],
    of_neighbours: NDArray[np.int32],
) -> NDArray[np.int32]:
    """The best of the lists of some rows (r, k) and of the lists of their neighbours (r, k, k)."""
    found = np.concatenate([own, of_neighbours.reshape(len(rows), -1)], axis=1)
    found.sort(axis=1)
    others = found != rows[:, None]
    others[:, 1:] &= found[:, 1:] != found[:, :-1]
    keys = np.full(found.shape, -np.inf)
    keys[others] = space.order_keys(np.repeat(rows, others.sum(axis=1)), found[others])
    return _best(found, keys, own.shape[1])


def choose_effort(
    space: CosineSpace,
    index: NeighbourIndex,
    k: int,
    recall: float = RECALL,
    *,
    refine: bool = False,
) -> Choice:
    """The least effort, up to a seventh, whose lists reach `recall` on a sample of rows.

    With `refine`, once these are refined.
    """
    sample = np.random.default_rng(0).permutation(len(space))[: SAMPLE // 2 if refine else SAMPLE]
    rows = np.sort(sample).astype(np.int32)
    exact = exact_rows(space, rows, k)
    kth = space.order_keys(rows, exact[:, -1])

    def reached(effort: int) -> float:
        found = _search(space, index, rows, k, effort)
        if refine:
            near = np.unique(found)
            lists = _search(space, index, near, k, effort)
            found = refined(space, rows, found, lists[np.searchsorted(near, found)])
        keys = space.order_keys(np.repeat(rows, k), found.ravel()).reshape(found.shape)
        # by cosine and not by name: of equal pictures any is right
        return float((keys >= kth[:, None]).mean())

    low, high = 0, min(index.first_effort, index.last_effort)
    seen = reached(high)
    while seen < recall and high < index.last_effort:
        low, high = high, min(2 * high, index.last_effort)
        seen = reached(high)
    while seen >= recall and high - low > max(1, high // 7):
        middle = (low + high) // 2
        tried = reached(middle)
        if tried >= recall:
            high, seen = middle, tried
        else:
            low = middle
    if seen < recall:
        warnings.warn(
            f"approximate neighbours reach a recall of {seen:.3f} only, {recall:g} was asked "
            "for; use exact ones, or fewer neighbours",
            DDHWarning,
            stacklevel=3,
        )
    return Choice(high, seen, len(rows), seen >= recall)


def exact_rows(space: CosineSpace, rows: NDArray[np.int32], k: int) -> NDArray[np.int32]:
    """Exact lists of some rows, against blocks of all of them.

    Memory: len(rows) times a block of rows in float32.
    """
    units = space.l2_normalize(rows).astype(np.float32)
    # a float32 product may confuse the last few: the final order is that of float64
    kept = min(k + k // 2 + 8, len(space) - 1)
    held = _Held(len(rows), kept)
    for block in pieces(len(space), max(space.dimensions, len(rows))):
        tile = units @ space.l2_normalize(block).astype(np.float32).T
        inside = np.flatnonzero((rows >= block.start) & (rows < block.stop))
        tile[inside, rows[inside] - block.start] = -np.inf
        held.take(tile, block.start)
    return rank(space, rows[held.row], held.column, k)


class _Held:
    """The best columns of each row so far, while tiles of cosines go by."""

    def __init__(self, rows: int, kept: int) -> None:
        self.kept = kept
        self.threshold = np.full(rows, -np.inf, np.float32)
        self.row, self.column = np.empty(0, np.int64), np.empty(0, np.int32)
        self.value = np.empty(0, np.float32)

    def take(self, tile: NDArray[np.float32], start: int) -> None:
        if not len(self.row) and tile.shape[1] > self.kept:
            self.threshold = np.partition(tile, -self.kept, axis=1)[:, -self.kept]
        i, j = np.nonzero(tile >= self.threshold[:, None])
        row = np.concatenate([self.row, i])
        column = np.concatenate([self.column, (j + start).astype(np.int32)])
        value = np.concatenate([self.value, tile[i, j]])
        order = np.lexsort((column, -value, row))
        row, column, value = row[order], column[order], value[order]
        starts = np.searchsorted(row, np.arange(len(self.threshold)))
        best = np.arange(len(row)) - starts[row] < self.kept
        self.row, self.column, self.value = row[best], column[best], value[best]
        last = np.searchsorted(self.row, np.arange(1, len(self.threshold) + 1)) - 1
        full = np.bincount(self.row, minlength=len(self.threshold)) == self.kept
        self.threshold[full] = self.value[last[full]]


def _search(
    space: CosineSpace, index: NeighbourIndex, rows: NDArray[np.int32], k: int, effort: int
) -> NDArray[np.int32]:
    """Lists of some rows, ordered exactly; rows for which too few were found get exact lists."""
    found = index.candidates(space.l2_normalize(rows).astype(np.float32), k + 1, effort)
    others = (found >= 0) & (found != rows[:, None])
    keys = np.full(found.shape, -np.inf)
    owner = np.repeat(rows, others.sum(axis=1))
    keys[others] = space.order_keys(owner, found[others].astype(np.int32))
    lists = _best(found, keys, k)
    short = np.flatnonzero(others.sum(axis=1) < k)
    for at in range(0, len(short), SAMPLE):
        part = short[at : at + SAMPLE]
        lists[part] = exact_rows(space, rows[part], k)
    return lists


def _best(found: NDArray[np.integer], keys: NDArray[np.float64], k: int) -> NDArray[np.int32]:
    """The k columns of the largest keys, best first; of equal keys the smaller number."""
    best = np.argpartition(-keys, k - 1, axis=1)[:, :k]
    names = np.take_along_axis(found, best, axis=1)
    order = np.lexsort((names, -np.take_along_axis(keys, best, axis=1)), axis=1)
    return np.take_along_axis(names, order, axis=1).astype(np.int32)


def _room(images: int, k: int, folder: Path | None, name: str) -> NDArray[np.int32]:
    if folder is None or 4 * images * k <= LARGE_LISTS:
        return np.empty((images, k), np.int32)
    return open_memmap(folder / f"{name}.npy", "w+", np.int32, (images, k))
