"""Indexes of faiss over unit rows, built block by block from features that stay on disk.

`Cells` (IVF) cuts the rows into cells around centres and searches some cells: half a float32 a
number, and a mapped file instead of memory where a folder is given. `SmallWorld` (HNSW) walks a
graph: slower to build, held in memory whole.
"""

from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ddh.errors import InputError, MissingDependency
from ddh.neighbours.cosine import CosineSpace, pieces
from ddh.progress import track

# Rows of a cell at least, and rows of the sample for each centre.
CELL_ROWS, TRAINING_ROWS = 128, 32
# With a folder, the index is built in parts of so many bytes, each a mapped file.
PART_BYTES = 1 << 31


class NeighbourIndex(Protocol):
    """Unit rows to search in; more effort finds more of the true neighbours."""

    name: str
    first_effort: int
    last_effort: int

    def search(self, queries: NDArray[np.float32], k: int, effort: int) -> NDArray[np.int64]:
        """(queries, k) rows by falling cosine, -1 where fewer were found."""
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
    """Rows in cells around centres, as float16; the effort is the number of cells searched.

    The rows are held in one or more parts, which share the centres. Memory: 2 N d bytes; with a
    folder one part of at most PART_BYTES, and mapped files of 2 N d bytes.
    """

    name = "IVF"
    first_effort = 4

    def __init__(self, parts: list[Any], starts: list[int]) -> None:
        self.parts, self.starts = parts, starts
        self.last_effort = int(parts[0].nlist)

    @classmethod
    def build(cls, space: CosineSpace, folder: Path | None = None, seed: int = 0) -> Self:
        """Centres by k-means on a sample, then all rows, block by block."""
        faiss = load_faiss()
        centres = _centres(space, seed)
        rows = _part_rows(len(space), space.dimensions) if folder else [slice(0, len(space))]
        parts = []
        for number, some in enumerate(rows):
            part = faiss.clone_index(centres)
            _fill(part, space, some)
            if len(rows) > 1:
                assert folder is not None
                part = _mapped(part, folder / f"cells-{number}.faiss")
            parts.append(part)
        return cls(parts, [some.start for some in rows])

    def save(self, folder: Path) -> None:
        """Write the index, for other processes to `open`."""
        folder.mkdir(parents=True, exist_ok=True)
        for start, part in zip(self.starts, self.parts, strict=True):
            load_faiss().write_index(part, str(folder / f"{start}.faiss"))

    @classmethod
    def open(cls, folder: Path) -> Self:
        """An index that was saved; its rows are mapped, not read."""
        files = sorted(folder.glob("*.faiss"), key=lambda file: int(file.stem))
        if not files:
            raise InputError(f"there is no index of neighbours in {folder}")
        return cls([_open(file) for file in files], [int(file.stem) for file in files])

    def search(self, queries: NDArray[np.float32], k: int, effort: int) -> NDArray[np.int64]:
        cosines, cells = self.parts[0].quantizer.search(queries, effort)
        found = []
        for start, part in zip(self.starts, self.parts, strict=True):
            part.nprobe = effort
            values, rows = part.search_preassigned(queries, k, cells, cosines)
            found.append((values, np.where(rows >= 0, rows + start, -1)))
        if len(found) == 1:
            return found[0][1]
        values, rows = (np.concatenate(one, axis=1) for one in zip(*found, strict=True))
        best = np.argsort(-values, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(rows, best, axis=1)


def _centres(space: CosineSpace, seed: int) -> Any:
    """An empty index with its centres, found by k-means on a sample of the rows."""
    faiss = load_faiss()
    count, dimensions = cells_for(len(space)), space.dimensions
    index = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dimensions),
        dimensions,
        count,
        faiss.ScalarQuantizer.QT_fp16,
        faiss.METRIC_INNER_PRODUCT,
        False,
    )
    index.cp.niter, index.cp.seed, index.cp.spherical = 4, seed, True
    index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = TRAINING_ROWS, 1
    index.train(_units(space, _sample(len(space), count * TRAINING_ROWS, seed)))
    return index


def _mapped(part: Any, file: Path) -> Any:
    load_faiss().write_index(part, str(file))
    return _open(file)


def _open(file: Path) -> Any:
    faiss = load_faiss()
    return faiss.read_index(str(file), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)


class SmallWorld:
    """A graph of small worlds; the effort is the number of candidates kept while walking it.

    Memory: 4 N d + 400 N bytes.
    """

    name = "HNSW"
    first_effort = 32
    last_effort = 1024

    def __init__(self, space: CosineSpace) -> None:
        faiss = load_faiss()
        self.index = faiss.IndexHNSWFlat(space.dimensions, 24, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = 80
        _fill(self.index, space, slice(0, len(space)))

    def search(self, queries: NDArray[np.float32], k: int, effort: int) -> NDArray[np.int64]:
        self.index.hnsw.efSearch = max(effort, k)
        return self.index.search(queries, k)[1]


def _units(space: CosineSpace, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
    return space.unit_rows(rows).astype(np.float32)


def _sample(images: int, count: int, seed: int) -> NDArray[np.int64]:
    """Rows in order, which a mapped file likes; with a small one all of them."""
    if count >= images:
        return np.arange(images)
    return np.sort(np.random.default_rng(seed).choice(images, count, replace=False))


def _fill(index: Any, space: CosineSpace, rows: slice) -> None:
    blocks = pieces(rows.stop - rows.start, space.dimensions)
    for block in track(blocks, "Index", unit="block"):
        part = slice(rows.start + block.start, rows.start + block.stop)
        index.add(_units(space, part))


def _part_rows(images: int, dimensions: int) -> list[slice]:
    """Rows whose part of an index fits PART_BYTES."""
    step = max(1, PART_BYTES // (2 * dimensions))
    return [slice(start, min(start + step, images)) for start in range(0, images, step)]
