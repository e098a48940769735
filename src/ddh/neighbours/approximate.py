"""Approximate neighbour lists for large N by faiss, with their recall measured.

`IVFIndex` or `HNSWIndex` finds candidates, which the features themselves put in order. `tune` takes
the smallest nprobe (IVF) or ef (HNSW) that reaches the recall asked for on a sample of rows. In
large collections that is small, because lists are refined: the neighbours of a row's neighbours
are candidates too (a step of NN-descent; Dong et al., 2011). Features are read in blocks.

On one machine `approximate_lists` does it all. On several machines the same steps are:
`IVFIndex.build(space).save(path)` and `tune` once, then `shard_lists` with `IVFIndex.open(path)`
on every worker for its range of rows.
"""

import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from scipy import sparse

from ddh._core.errors import DDHWarning, InputError, optional
from ddh._core.progress import track
from ddh._core.spans import spans
from ddh.neighbours.cosine import CosineSpace, pieces
from ddh.neighbours.overlap import Lists, top_by_product

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
# Rows whose labels are checked, and rows whose overlaps are counted at a time.
LABEL_SAMPLE, BLOCK = 24, 1 << 20


# -- indexes --------------------------------------------------------------------------------


def load_faiss() -> Any:
    """faiss, or an error that says how to get it."""
    hint = 'approximate neighbours need faiss (pip install "ddh[faiss]"); exact ones do not'
    return optional("faiss", hint)


class NeighbourIndex(ABC):
    """Unit rows to search in; a larger `parameter` finds more of the true neighbours."""

    name: str
    parameter: str
    smallest: int
    largest: int
    index: Any

    def candidates(self, queries: NDArray[np.float32], k: int, value: int) -> NDArray[np.int64]:
        """(queries, k or more) rows that may be among the k nearest, -1 where fewer were found."""
        wanted = min(self.prepare(k, value), self.index.ntotal)
        return np.asarray(self.index.search(queries, wanted)[1])

    @abstractmethod
    def prepare(self, k: int, value: int) -> int:
        """Set the parameter; how many candidates are needed to find the k nearest."""


class IVFIndex(NeighbourIndex):
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
        """Find 4 sqrt(N) centres (fewer for small N) by k-means on a sample, then add all rows."""
        faiss = load_faiss()
        images, even = len(space), space.dimensions + space.dimensions % 2
        cells = max(1, min(int(4 * images**0.5), images // CELL_ROWS))
        centres, metric = faiss.IndexFlatIP(even), faiss.METRIC_INNER_PRODUCT
        if images >= CODED_ROWS and space.dimensions >= CODED_DIMENSIONS:
            index = faiss.IndexIVFPQFastScan(centres, even, cells, even // 2, 4, metric)
        else:
            half = faiss.ScalarQuantizer.QT_fp16
            index = faiss.IndexIVFScalarQuantizer(centres, even, cells, half, metric, False)
        index.cp.niter, index.cp.seed, index.cp.spherical = 4, seed, True
        index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = TRAINING_ROWS, 1
        count = min(images, cells * TRAINING_ROWS)
        sample = np.sort(np.random.default_rng(seed).choice(images, count, replace=False))
        index.train(_units(space, sample))
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

    def prepare(self, k: int, value: int) -> int:
        self.index.nprobe = value
        # codes separate near rows only roughly: several times k rows contain the nearest, and
        # more of them where more rows compete
        return 5 * k + 16 + value if self.coded else k + 4


class HNSWIndex(NeighbourIndex):
    """A hierarchical graph of whole rows (4 N d + 400 N bytes); a search keeps `ef` candidates."""

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

    def prepare(self, k: int, value: int) -> int:
        self.index.hnsw.efSearch = max(value, k + 1)
        return k + 1


def _units(space: CosineSpace, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
    """Unit rows of an even number of dimensions: a column of zeros changes no cosine."""
    units = space.l2_normalize(rows).astype(np.float32)
    return np.pad(units, ((0, 0), (0, 1))) if units.shape[1] % 2 else units


def _fill(index: Any, space: CosineSpace) -> None:
    for part in track(pieces(*space.features.shape), "Index", unit="block"):
        index.add(_units(space, part))


# -- lists ----------------------------------------------------------------------------------


class Tuning(NamedTuple):
    """The nprobe (IVF) or ef (HNSW) that was chosen, and the recall that `sample` rows showed."""

    value: int
    recall: float
    sample: int


@dataclass(frozen=True)
class ApproximateLists:
    """Lists (N, k) int32, the recall measured on `sample` rows, and the seconds of each stage."""

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
    """Lists, nearest first. Memory: N d / 4 bytes for an IVF index, 8 N k for lists in memory."""
    refine = len(space) >= REFINED_ROWS
    clock = [time.perf_counter()]
    index = HNSWIndex(space) if hnsw else IVFIndex.build(space)
    clock.append(time.perf_counter())
    tuning = tune(space, index, k, recall, refine=refine)
    clock.append(time.perf_counter())
    lists = _empty_lists(len(space), k, folder, "lists")
    for part in track(spans(len(space), ROWS), "Neighbours", unit="block"):
        lists[part] = shard_lists(space, index, part.start, part.stop, k, tuning.value)
    clock.append(time.perf_counter())
    if refine:
        better = _empty_lists(len(space), k, folder, "refined-lists")
        for part in track(spans(len(space), ROWS), "Refining", unit="block"):
            rows = np.arange(part.start, part.stop, dtype=np.int32)
            better[part] = refined(space, rows, lists[part], lists[lists[part]])
        lists = better
        clock.append(time.perf_counter())
    stages = ("build", "tune", "search", "refine")[: len(clock) - 1]
    seconds = dict(zip(stages, np.diff(clock).tolist(), strict=True))
    name = f"{index.name}, {index.parameter} {tuning.value}{', refined' if refine else ''}"
    return ApproximateLists(lists, tuning.recall, tuning.sample, name, seconds)


def shard_lists(
    space: CosineSpace, index: NeighbourIndex, start: int, stop: int, k: int, value: int
) -> NDArray[np.int32]:
    """Neighbour lists of the rows start..stop, nearest first: the unit of work of a cluster.

    `value` is the nprobe of an `IVFIndex` or the ef of an `HNSWIndex` that `tune` found. On
    another machine the space is `CosineSpace(np.load(file, mmap_mode="r"), mean, squares)`, with
    the `mean` and `squares` of the space that the index was built from. Rows for which the index
    finds fewer than k get exact lists. Memory: about 100 MB, and 12 k + 8 d bytes per row.
    """
    blocks = [np.arange(p.start, p.stop, dtype=np.int32) for p in spans(stop, ROWS, start)]
    return np.concatenate([_search(space, index, rows, k, value) for rows in blocks])


def _search(
    space: CosineSpace, index: NeighbourIndex, rows: NDArray[np.int32], k: int, value: int
) -> NDArray[np.int32]:
    found = index.candidates(_units(space, rows), k + 1, value)
    others = (found >= 0) & (found != rows[:, None])
    lists = _best(space, rows, found, others, k)
    short = np.flatnonzero(others.sum(axis=1) < k)
    if len(short):
        lists[short] = exact_rows(space, rows[short], k)
    return lists


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
    return _best(space, rows, found, others, own.shape[1])


def _best(
    space: CosineSpace,
    rows: NDArray[np.int32],
    found: NDArray[np.integer],
    valid: NDArray[np.bool_],
    k: int,
) -> NDArray[np.int32]:
    """Of the valid candidates of each row the k nearest, ties by the smaller index."""
    keys = np.full(found.shape, -np.inf)
    keys[valid] = space.order_keys(np.repeat(rows, valid.sum(axis=1)), found[valid])
    best = np.argpartition(-keys, k - 1, axis=1)[:, :k]
    columns = np.take_along_axis(found, best, axis=1)
    order = np.lexsort((columns, -np.take_along_axis(keys, best, axis=1)), axis=1)
    return np.take_along_axis(columns, order, axis=1).astype(np.int32)


def _empty_lists(images: int, k: int, folder: Path | None, name: str) -> NDArray[np.int32]:
    if folder is None or 4 * images * k <= LARGE_LISTS:
        return np.empty((images, k), np.int32)
    return open_memmap(folder / f"{name}.npy", "w+", np.int32, (images, k))


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
    kth = space.order_keys(rows, exact_rows(space, rows, k)[:, -1])

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
    """Exact lists of some rows against blocks of all rows. Memory: SAMPLE blocks in float32."""
    if len(rows) > SAMPLE:
        return np.concatenate(
            [exact_rows(space, rows[part], k) for part in spans(len(rows), SAMPLE)]
        )
    units = space.l2_normalize(rows).astype(np.float32)
    # a float32 product may confuse the last few: the final order is that of float64
    kept = min(k + k // 2 + 8, len(space) - 1)
    threshold = np.full(len(rows), -np.inf, np.float32)
    row, column = np.empty(0, np.int64), np.empty(0, np.int32)
    value = np.empty(0, np.float32)
    for block in pieces(len(space), max(space.dimensions, len(rows))):
        tile = units @ space.l2_normalize(block).astype(np.float32).T
        inside = np.flatnonzero((rows >= block.start) & (rows < block.stop))
        tile[inside, rows[inside] - block.start] = -np.inf
        if not block.start and tile.shape[1] > kept:
            threshold = np.partition(tile, -kept, axis=1)[:, -kept]
        i, j = np.nonzero(tile >= threshold[:, None])
        row, value = np.concatenate([row, i]), np.concatenate([value, tile[i, j]])
        column = np.concatenate([column, (j + block.start).astype(np.int32)])
        order = np.lexsort((column, -value, row))
        row, column, value = row[order], column[order], value[order]
        place = np.arange(len(row)) - np.searchsorted(row, np.arange(len(rows)))[row]
        threshold[row[place == kept - 1]] = value[place == kept - 1]
        keep = place < kept
        row, column, value = row[keep], column[keep], value[keep]
    ranked = space.rank(rows[row], column, k)  # in ascending order of the rows
    return ranked[np.argsort(np.argsort(rows))]


# -- what it cost ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Approximation:
    """What approximate neighbours cost: the index, its recall and the recall asked for, measured
    on `sample` rows; the share of the exact labels that were found and the share of the labels
    found that are exact, on `label_sample` rows; the seconds of each stage.
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


def judge(space: CosineSpace, found: ApproximateLists, k2: int, target: float) -> Approximation:
    """Compare the labels of a few rows with those of exact lists, before S is symmetrised."""
    lists, k = found.lists, found.lists.shape[1]
    sample = min(LABEL_SAMPLE, len(space))
    rows = np.sort(np.random.default_rng(1).permutation(len(space))[:sample]).astype(np.int32)
    members = np.concatenate([exact_rows(space, rows, k), lists[rows]])
    both = zip(np.tile(rows, 2), members, strict=True)  # what may be among their K2: about 50 K2
    near = [_most_overlapping(lists, np.r_[i, own], 2 * k2) for i, own in both]
    images = np.r_[rows, np.setdiff1d(np.concatenate(near), rows)].astype(np.int32)
    made = labels_of_first(space, images, lists[images], k2, sample)
    true = labels_of_first(space, images, exact_rows(space, images, k), k2, sample)
    common = made.multiply(true).nnz
    shares = (common / max(1, true.nnz), common / max(1, made.nnz))
    measured = (found.recall, target, found.sample, *shares, sample)
    return Approximation(found.index, *measured, found.seconds)


def labels_of_first(
    space: CosineSpace, images: NDArray[np.int32], lists: NDArray[np.int32], k2: int, count: int
) -> sparse.csr_array:
    """Algorithm 1 among some images for the first `count` of them, before S is symmetrised."""
    members = np.column_stack([images, lists])
    starts = np.arange(0, members.size + 1, members.shape[1])
    A = Lists(starts, members.ravel()).matrix(len(space))
    top = top_by_product(A[:count] @ A.T.tocsr(), k2, images, 0, space=space, min_overlap=1)
    S = (top.matrix(len(images)) @ A).tolil()
    S[np.arange(count), images[:count]] = 0
    return S.tocsr().astype(bool)


def _most_overlapping(
    lists: NDArray[np.int32], members: NDArray[np.integer], count: int
) -> NDArray[np.intp]:
    """The rows whose lists have most of these members, each a member of its own list."""
    wanted = np.zeros(len(lists), bool)
    wanted[members] = True
    blocks = spans(len(lists), BLOCK)
    overlaps = np.concatenate([wanted[lists[part]].sum(axis=1) + wanted[part] for part in blocks])
    count = min(count, len(lists))
    best = np.argpartition(-overlaps, count - 1)[:count]
    return best[overlaps[best] > 0]
