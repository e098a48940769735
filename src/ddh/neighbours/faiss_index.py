"""Indexes of faiss over unit rows, built block by block from features that stay on disk.

`Cells` (IVF) cuts the rows into cells around centres and searches some cells: small and fast,
because rows are held as short codes. `HNSWIndex` (HNSW) walks a graph of whole rows: slower to
build and large. Both name candidates, which whoever asks orders by the features themselves.
"""

from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError, MissingDependency
from ddh._core.progress import track
from ddh.neighbours.cosine import CosineSpace, pieces

# Rows of a cell at least, and rows of the sample for each centre.
CELL_ROWS, TRAINING_ROWS = 128, 32
# From so many rows and dimensions on, cells hold codes of 4 bits for two dimensions.
CODED_ROWS, CODED_DIMENSIONS = 20_000, 32


class NeighbourIndex(Protocol):
    """Unit rows to search in; more effort finds more of the true neighbours."""

    name: str
    first_effort: int
    last_effort: int

    def candidates(self, queries: NDArray[np.float32], k: int, effort: int) -> NDArray[np.int64]:
        """(queries, k or more) rows that may be among the k nearest, -1 where fewer were found."""
        ...


def load_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingDependency(
            "approximate neighbours need faiss (pip install faiss-cpu); exact ones do not"
        ) from error
    return faiss


def cells_for(images: int) -> int:
    """4 sqrt(N), or as many as leave 128 rows to a cell: then the work is near-linear in N."""
    return max(1, min(int(4 * images**0.5), images // CELL_ROWS))


class Cells:
    """Rows in cells around centres; the effort is the number of cells searched.

    Memory: d / 4 bytes a row (product quantisation, 4 bits for two dimensions), and for few rows
    or dimensions 2 d (float16).
    """

    name = "IVF"
    first_effort = 4

    def __init__(self, index: Any) -> None:
        self.index = index
        self.last_effort = int(index.nlist)
        self.coded = hasattr(index, "pq")

    @classmethod
    def build(cls, space: CosineSpace, seed: int = 0) -> Self:
        """Centres by k-means on a sample, then all rows, block by block."""
        index = _empty_cells(len(space), space.dimensions)
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
        """An index that was saved."""
        if not path.is_file():
            raise InputError(f"there is no index of neighbours at {path}")
        return cls(load_faiss().read_index(str(path)))

    def candidates(self, queries: NDArray[np.float32], k: int, effort: int) -> NDArray[np.int64]:
        self.index.nprobe = effort
        # codes tell near rows apart only roughly: several times as many hold the nearest, and
        # more of them where more rows compete
        asked = 5 * k + 16 + effort if self.coded else k + 4
        return self.index.search(_even(queries), min(asked, self.index.ntotal))[1]


def _empty_cells(images: int, dimensions: int) -> Any:
    faiss = load_faiss()
    cells, even = cells_for(images), dimensions + dimensions % 2
    centres, metric = faiss.IndexFlatIP(even), faiss.METRIC_INNER_PRODUCT
    if images >= CODED_ROWS and dimensions >= CODED_DIMENSIONS:
        return faiss.IndexIVFPQFastScan(centres, even, cells, even // 2, 4, metric)
    half = faiss.ScalarQuantizer.QT_fp16
    return faiss.IndexIVFScalarQuantizer(centres, even, cells, half, metric, False)


class HNSWIndex:
    """A graph of small worlds; the effort is the number of candidates kept while walking it.

    Memory: 4 N d + 400 N bytes.
    """

    name = "HNSW"
    first_effort = 32
    last_effort = 1024

    def __init__(self, space: CosineSpace) -> None:
        faiss = load_faiss()
        even = space.dimensions + space.dimensions % 2
        self.index = faiss.IndexHNSWFlat(even, 24, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = 80
        _fill(self.index, space)

    def candidates(self, queries: NDArray[np.float32], k: int, effort: int) -> NDArray[np.int64]:
        self.index.hnsw.efSearch = max(effort, k + 1)
        return self.index.search(_even(queries), min(k + 1, self.index.ntotal))[1]


def _units(space: CosineSpace, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
    return _even(space.l2_normalize(rows).astype(np.float32))


def _even(units: NDArray[np.float32]) -> NDArray[np.float32]:
    """An even number of dimensions, by a column of zeros, which changes no cosine."""
    return np.pad(units, ((0, 0), (0, 1))) if units.shape[1] % 2 else units


def _sample(images: int, count: int, seed: int) -> NDArray[np.int64]:
    """Rows in order, which a mapped file likes; of few rows, all."""
    if count >= images:
        return np.arange(images)
    return np.sort(np.random.default_rng(seed).choice(images, count, replace=False))


def _fill(index: Any, space: CosineSpace) -> None:
    for part in track(pieces(len(space), space.dimensions), "Index", unit="block"):
        index.add(_units(space, part))
