"""Approximate neighbour lists for large N by faiss, with their recall measured.

`IVFIndex` assigns rows to the cells of a k-means and searches some cells: small and fast, because
rows are held as short codes. `HNSWIndex` walks a graph of whole rows: slower to build and larger.
Both find candidates, which are ordered by the features themselves.

`tune` compares a sample of rows with its exact lists and takes the smallest nprobe (IVF) or ef
(HNSW) that reaches the recall asked for. For many rows that is small, because their lists are
refined: the neighbours of a row's neighbours are candidates too (a step of NN-descent; Dong et
al., 2011), which takes the same time per row whatever N is. Features may be a memory-mapped
file: they are read in blocks and never held whole.

On one machine `approximate_lists` does it all. On several machines (with Ray or anything else)
the same steps are: `IVFIndex.build(space).save(path)` and `tune` once, then `shard_lists` with
`IVFIndex.open(path)` on every worker for its range of rows.
"""

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ddh._core.errors import DDHWarning, InputError, MissingDependency
from ddh._core.progress import track
from ddh.neighbours.cosine import CosineSpace, pieces

RECALL = 0.95
SAMPLE = 512
# Rows that are searched at a time.
ROWS = 16384
# From this many rows on, refining the lists costs less than the probes it saves.
REFINED_ROWS = 50_000
# Lists of more bytes than this become a memory-mapped file, where a folder is given.
LARGE_LISTS = 1 << 30
# Minimum rows per cell, and rows of the k-means sample per centre.
CELL_ROWS, TRAINING_ROWS = 128, 32
# From this many rows and dimensions on, cells hold codes of 4 bits per two dimensions.
CODED_ROWS, CODED_DIMENSIONS = 20_000, 32
# Rows whose labels are checked; their possible neighbours per K2; rows compared at a time.
LABEL_SAMPLE, CANDIDATES, BLOCK = 24, 2, 1 << 20


# -- indexes --------------------------------------------------------------------------------


class NeighbourIndex(Protocol):
    """Unit rows to search in; a larger `parameter` finds more of the true neighbours."""

    name: str
    parameter: str
    smallest: int
    largest: int

    def candidates(self, queries: NDArray[np.float32], k: int, value: int, /) -> NDArray[np.int64]:
        """(queries, k or more) rows that may be among the k nearest, -1 where fewer were found."""
        ...


def load_faiss() -> Any:
    """faiss, or an error that says how to get it."""
    try:
        import faiss
    except ImportError as error:
        raise MissingDependency(
            'approximate neighbours need faiss (pip install "ddh[faiss]"); exact ones do not'
        ) from error
    return faiss


class IVFIndex:
    """Rows in the cells of a k-means; `nprobe` cells are searched per query.

    Memory: d / 4 bytes per row (product quantisation, 4 bits per two dimensions), for few rows
    or dimensions 2 d (float16).
    """

    name = "IVF"
    parameter = "nprobe"
    smallest = 4

    def __init__(self, index: Any) -> None:
        self.index = index
        self.largest = int(index.nlist)
        self.coded = hasattr(index, "pq")

    @classmethod
    def build(cls, space: CosineSpace, seed: int = 0) -> Self:
        """Find the centres by k-means on a sample, then add all rows, block by block."""
        index = _empty_ivf(len(space), space.dimensions)
        index.cp.niter, index.cp.seed, index.cp.spherical = 4, seed, True
        index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = TRAINING_ROWS, 1
        index.train(_units(space, _sample(len(space), index.nlist * TRAINING_ROWS, seed)))
        _fill(index, space)
        return cls(index)

    def save(self, path: Path) -> None:
        """Write the index to a file, for other processes to `open`."""
        load_faiss().write_index(self.index, str(path))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read an index that was saved."""
        if not path.is_file():
            raise InputError(f"there is no index of neighbours at {path}")
        return cls(load_faiss().read_index(str(path)))

    def candidates(self, queries: NDArray[np.float32], k: int, nprobe: int, /) -> NDArray[np.int64]:
        """Rows of the `nprobe` nearest cells that may be among the k nearest, -1 where fewer."""
        self.index.nprobe = nprobe
        # codes separate near rows only roughly: several times k rows contain the nearest, and
        # more of them where more rows compete
        count = 5 * k + 16 + nprobe if self.coded else k + 4
        found: NDArray[np.int64] = self.index.search(_even(queries), min(count, self.index.ntotal))[
            1
        ]
        return found


def _empty_ivf(images: int, dimensions: int) -> Any:
    """4 sqrt(N) cells, fewer where a cell would get less than 128 rows: near-linear work in N."""
    faiss = load_faiss()
    cells = max(1, min(int(4 * images**0.5), images // CELL_ROWS))
    even = dimensions + dimensions % 2
    centres, metric = faiss.IndexFlatIP(even), faiss.METRIC_INNER_PRODUCT
    if images >= CODED_ROWS and dimensions >= CODED_DIMENSIONS:
        return faiss.IndexIVFPQFastScan(centres, even, cells, even // 2, 4, metric)
    half = faiss.ScalarQuantizer.QT_fp16
    return faiss.IndexIVFScalarQuantizer(centres, even, cells, half, metric, False)


class HNSWIndex:
    """A hierarchical graph of whole rows; `ef` candidates are kept during the walk.

    Memory: 4 N d + 400 N bytes.
    """

    name = "HNSW"
    parameter = "ef"
    smallest = 32
    largest = 1024

    def __init__(self, space: CosineSpace) -> None:
        faiss = load_faiss()
        even = space.dimensions + space.dimensions % 2
        self.index = faiss.IndexHNSWFlat(even, 24, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = 80
        _fill(self.index, space)

    def candidates(self, queries: NDArray[np.float32], k: int, ef: int, /) -> NDArray[np.int64]:
        """k + 1 rows found with `ef` candidates on the way, -1 where fewer were found."""
        self.index.hnsw.efSearch = max(ef, k + 1)
        found: NDArray[np.int64] = self.index.search(_even(queries), min(k + 1, self.index.ntotal))[
            1
        ]
        return found


def _units(space: CosineSpace, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
    return _even(space.l2_normalize(rows).astype(np.float32))


def _even(units: NDArray[np.float32]) -> NDArray[np.float32]:
    """An even number of dimensions, by a column of zeros, which changes no cosine."""
    return np.pad(units, ((0, 0), (0, 1))) if units.shape[1] % 2 else units


def _sample(images: int, count: int, seed: int) -> NDArray[np.int64]:
    """Rows in order, which suits a mapped file; of few rows, all."""
    if count >= images:
        return np.arange(images)
    return np.sort(np.random.default_rng(seed).choice(images, count, replace=False))


def _fill(index: Any, space: CosineSpace) -> None:
    for part in track(pieces(len(space), space.dimensions), "Index", unit="block"):
        index.add(_units(space, part))


# -- lists ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuning:
    """The nprobe (IVF) or ef (HNSW) that was chosen, and the recall that `sample` rows showed."""

    value: int
    recall: float
    sample: int


@dataclass(frozen=True)
class ApproximateLists:
    """Approximate neighbour lists, nearest first.

    `lists` (N, k) int32; `recall` measured on `sample` rows; `index` names the index and its
    parameter; `seconds` are those of each stage.
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
    hnsw: bool = False,
    folder: Path | None = None,
) -> ApproximateLists:
    """Lists by an `IVFIndex` or, with `hnsw`, by an `HNSWIndex`; nearest first.

    Warns if `recall` is out of reach. Memory: N d / 4 bytes for the index and 8 N k for the
    lists; with `folder`, large lists are memory-mapped files there.
    """
    refine = len(space) >= REFINED_ROWS
    clock = [time.perf_counter()]
    index: NeighbourIndex = HNSWIndex(space) if hnsw else IVFIndex.build(space)
    clock.append(time.perf_counter())
    tuning = tune(space, index, k, recall, refine=refine)
    clock.append(time.perf_counter())
    lists = _empty_lists(len(space), k, folder, "lists")
    for start in track(range(0, len(space), ROWS), "Neighbours", unit="block"):
        stop = min(start + ROWS, len(space))
        lists[start:stop] = shard_lists(space, index, start, stop, k, tuning.value)
    clock.append(time.perf_counter())
    if refine:
        lists = _refined_lists(space, lists, _empty_lists(len(space), k, folder, "refined-lists"))
        clock.append(time.perf_counter())
    stages = ("build", "tune", "search", "refine")[: len(clock) - 1]
    seconds = dict(zip(stages, np.diff(clock).tolist(), strict=True))
    name = f"{index.name}, {index.parameter} {tuning.value}{', refined' if refine else ''}"
    return ApproximateLists(lists, tuning.recall, tuning.sample, name, seconds)


def shard_lists(
    space: CosineSpace, index: NeighbourIndex, start: int, stop: int, k: int, value: int
) -> NDArray[np.int32]:
    """Neighbour lists of the rows start..stop: the unit of work of a cluster.

    Parameters
    ----------
    space : CosineSpace
        All features. On another machine: `CosineSpace(np.load(file, mmap_mode="r"), mean, squares)`
        with the `mean` and `squares` of the space that the index was built from.
    index : IVFIndex or HNSWIndex
        For example from `IVFIndex.open`.
    start, stop : int
        Range of rows.
    k : int
        Neighbours per row.
    value : int
        nprobe of an `IVFIndex`, ef of an `HNSWIndex`; `tune` finds it.

    Returns
    -------
    ndarray of int32, shape (stop - start, k)
        Nearest first. Rows for which the index finds fewer than k get exact lists.

    Notes
    -----
    Memory: about 100 MB, and 12 k + 8 d bytes per row of the shard.
    """
    parts = []
    for at in range(start, stop, ROWS):
        rows = np.arange(at, min(at + ROWS, stop), dtype=np.int32)
        parts.append(_search(space, index, rows, k, value))
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


def tune(
    space: CosineSpace,
    index: NeighbourIndex,
    k: int,
    recall: float = RECALL,
    *,
    refine: bool = False,
) -> Tuning:
    """The smallest nprobe or ef, within a seventh, that reaches `recall` on a sample of rows.

    With `refine`, the recall is that of the refined lists. Warns if it is out of reach.
    """
    sample = np.random.default_rng(0).permutation(len(space))[: SAMPLE // 2 if refine else SAMPLE]
    rows = np.sort(sample).astype(np.int32)
    exact = exact_rows(space, rows, k)
    kth = space.order_keys(rows, exact[:, -1])

    def reached(value: int) -> float:
        found = _search(space, index, rows, k, value)
        if refine:
            near = np.unique(found)
            lists = _search(space, index, near, k, value)
            found = refined(space, rows, found, lists[np.searchsorted(near, found)])
        keys = space.order_keys(np.repeat(rows, k), found.ravel()).reshape(found.shape)
        # by cosine and not by index: of equal pictures any is right
        return float((keys >= kth[:, None]).mean())

    low, high = 0, min(index.smallest, index.largest)
    seen = reached(high)
    while seen < recall and high < index.largest:
        low, high = high, min(2 * high, index.largest)
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
    return Tuning(high, seen, len(rows))


def exact_rows(space: CosineSpace, rows: NDArray[np.int32], k: int) -> NDArray[np.int32]:
    """Exact lists of some rows, against blocks of all of them.

    Memory: len(rows) times a block of rows in float32.
    """
    units = space.l2_normalize(rows).astype(np.float32)
    # a float32 product may confuse the last few: the final order is that of float64
    kept = min(k + k // 2 + 8, len(space) - 1)
    held = _BestColumns(len(rows), kept)
    for block in pieces(len(space), max(space.dimensions, len(rows))):
        tile = units @ space.l2_normalize(block).astype(np.float32).T
        inside = np.flatnonzero((rows >= block.start) & (rows < block.stop))
        tile[inside, rows[inside] - block.start] = -np.inf
        held.take(tile, block.start)
    return space.rank(rows[held.row], held.column, k)


class _BestColumns:
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
    space: CosineSpace, index: NeighbourIndex, rows: NDArray[np.int32], k: int, value: int
) -> NDArray[np.int32]:
    """Lists of some rows, ordered exactly; rows for which too few were found get exact lists."""
    found = index.candidates(space.l2_normalize(rows).astype(np.float32), k + 1, value)
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
    """The k columns of the largest keys, best first; of equal keys the smaller index."""
    best = np.argpartition(-keys, k - 1, axis=1)[:, :k]
    rows = np.take_along_axis(found, best, axis=1)
    order = np.lexsort((rows, -np.take_along_axis(keys, best, axis=1)), axis=1)
    return np.take_along_axis(rows, order, axis=1).astype(np.int32)


def _empty_lists(images: int, k: int, folder: Path | None, name: str) -> NDArray[np.int32]:
    """Room for lists, in memory or, where they are large and a folder is given, in a file."""
    if folder is None or 4 * images * k <= LARGE_LISTS:
        return np.empty((images, k), np.int32)
    return open_memmap(folder / f"{name}.npy", "w+", np.int32, (images, k))


# -- what it cost ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Approximation:
    """What approximate neighbours cost.

    Attributes
    ----------
    index : str
        Index and parameter that found the lists.
    recall, target : float
        Share of the true neighbours found on `sample` rows, and the share asked for.
    label_recall, label_precision : float
        Share of the exact labels that were found, and share of the labels found that are exact,
        on `label_sample` rows.
    seconds : dict
        Time per stage.
    """

    index: str
    recall: float
    target: float
    sample: int
    label_recall: float
    label_precision: float
    label_sample: int
    seconds: dict[str, float]

    def __str__(self) -> str:
        return (
            f"approximate  {self.index}: recall {self.recall:.3f} (target {self.target:g}); of the "
            f"exact labels {self.label_recall:.3f} are found, {self.label_precision:.3f} of the "
            f"labels found are exact; {sum(self.seconds.values()):.0f} s"
        )


def judge(
    space: CosineSpace, found: ApproximateLists, k2: int, target: float, *, min_overlap: int = 1
) -> Approximation:
    """Report on approximate lists. Labels of a few rows are made twice by Algorithm 1 (before S
    is symmetrised): from the approximate lists, and from exact lists of the row and of the rows
    that may be among its K2. Work: about 50 K2 exact lists.
    """
    sample = min(LABEL_SAMPLE, len(space))
    rows = np.sort(np.random.default_rng(1).permutation(len(space))[:sample]).astype(np.int32)
    pairs = _labels_both_ways(space, found.lists, rows, k2, min_overlap)
    common = [len(made & true) for made, true in pairs]
    return Approximation(
        found.index,
        found.recall,
        target,
        found.sample,
        sum(common) / max(1, sum(len(true) for _, true in pairs)),
        sum(common) / max(1, sum(len(made) for made, _ in pairs)),
        sample,
        found.seconds,
    )


def _labels_both_ways(
    space: CosineSpace,
    lists: NDArray[np.int32],
    rows: NDArray[np.int32],
    k2: int,
    min_overlap: int,
) -> list[tuple[set[int], set[int]]]:
    """For each row the labels of the approximate lists, and of exact ones."""
    true = exact_rows(space, rows, lists.shape[1])
    possible = [
        _most_overlapping(lists, np.r_[i, mine], CANDIDATES * k2)
        for i, mine in zip(rows, true, strict=True)
    ]
    needed = np.unique(np.concatenate([*possible, rows]))
    parts = [
        exact_rows(space, needed[at : at + SAMPLE], lists.shape[1])
        for at in range(0, len(needed), SAMPLE)
    ]
    exact = dict(zip(needed.tolist(), np.concatenate(parts), strict=True))
    pairs = []
    for i, near in zip(rows.tolist(), possible, strict=True):
        among = np.union1d(near, [i]).astype(np.int32)
        right = _united(space, i, among, {int(j): exact[int(j)] for j in among}, k2, min_overlap)
        held = _most_overlapping(lists, np.r_[i, lists[i]], CANDIDATES * k2)
        made = _united(space, i, held, {int(j): lists[j] for j in held}, k2, min_overlap)
        pairs.append((made, right))
    return pairs


def _most_overlapping(
    lists: NDArray[np.int32], members: NDArray[np.integer], count: int
) -> NDArray[np.int32]:
    """The rows whose lists have most of these members, each a member of its own list."""
    wanted = np.zeros(len(lists), bool)
    wanted[members] = True
    overlaps = np.empty(len(lists), np.int32)
    for start in range(0, len(lists), BLOCK):
        block = slice(start, start + BLOCK)
        overlaps[block] = wanted[lists[block]].sum(axis=1) + wanted[block]
    count = min(count, len(lists))
    best = np.argpartition(-overlaps, count - 1)[:count]
    return best[overlaps[best] > 0].astype(np.int32)


def _united(
    space: CosineSpace,
    i: int,
    rows: NDArray[np.int32],
    lists: dict[int, NDArray[np.int32]],
    k2: int,
    min_overlap: int,
) -> set[int]:
    """S_i: the lists of the K2 rows of largest overlap with row i; ties as everywhere else."""
    members = {j: {j, *lists[j].tolist()} for j in rows.tolist()}
    overlaps = np.array([len(members[i] & members[j]) for j in rows.tolist()])
    keys = space.order_keys(np.full(len(rows), i, np.int32), rows)
    order = np.lexsort((rows, -keys, -overlaps))[:k2]
    chosen = [int(rows[place]) for place in order if overlaps[place] >= min_overlap]
    return set().union(*(members[j] for j in chosen)) - {i}
