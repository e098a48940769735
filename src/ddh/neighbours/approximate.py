"""Approximate neighbour lists for large N, by an index of faiss, with their recall measured.

Up to a million images the rows are cut into cells and some cells are searched (IVF): its work
grows as N^1.5. Above that a graph is walked (HNSW): slower to build, but it grows as N log N.
The effort is doubled until a sample of rows, compared with their exact lists, shows the recall
that was asked for.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh.errors import DDHWarning, MissingDependency
from ddh.neighbours.cosine import CosineSpace
from ddh.neighbours.exact import rank, row_candidates
from ddh.neighbours.products import SingleProduct
from ddh.progress import track

RECALL = 0.95
LARGEST_IVF = 1_000_000
SAMPLE = 512
# Rows that are searched at a time.
ROWS = 16384


@dataclass(frozen=True)
class ApproximateLists:
    """`lists` (N, k) int32, the recall seen on `sample` rows, and the index that found them."""

    lists: NDArray[np.int32]
    recall: float
    sample: int
    index: str


def approximate_lists(
    space: CosineSpace, k: int, *, recall: float = RECALL, graph: bool | None = None
) -> ApproximateLists:
    """Lists by IVF or (with `graph`) HNSW, by default chosen by size; best first, as found.

    Warns when even the largest effort stays below `recall`. Memory: the features twice more as
    float32, and for HNSW 400 bytes an image.
    """
    product = SingleProduct(space, np.arange(len(space), dtype=np.int32))
    index = _Graph(product.units) if _wants_graph(graph, len(space)) else _Cells(product.units)
    rows = np.sort(np.random.default_rng(0).permutation(len(space))[:SAMPLE]).astype(np.int32)
    exact = _exact(space, product, rows, k)
    effort, seen = index.first_effort, 0.0
    while True:
        seen = _recall(exact, _search(space, index, product, rows, k, effort))
        if seen >= recall or effort >= index.last_effort:
            break
        effort = min(2 * effort, index.last_effort)
    if seen < recall:
        warnings.warn(
            f"approximate neighbours reach a recall of {seen:.3f} only; "
            "use exact ones, or fewer neighbours",
            DDHWarning,
            stacklevel=2,
        )
    parts = [
        _search(space, index, product, np.arange(at, min(at + ROWS, len(space))), k, effort)
        for at in track(range(0, len(space), ROWS), "Neighbours", unit="block")
    ]
    return ApproximateLists(np.concatenate(parts), seen, len(rows), f"{index.name}, {effort}")


def _wants_graph(graph: bool | None, images: int) -> bool:
    return images > LARGEST_IVF if graph is None else graph


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingDependency(
            "approximate neighbours need faiss (pip install faiss-cpu); exact ones do not"
        ) from error
    return faiss


class _Cells:
    """Rows in about 2 sqrt(N) cells around centres; the effort is the number of cells searched."""

    name = "IVF"
    first_effort = 4

    def __init__(self, units: NDArray[np.float32]) -> None:
        faiss = _faiss()
        images, dimensions = units.shape
        cells = max(1, min(int(2 * images**0.5), images // 40))
        centres = faiss.IndexFlatIP(dimensions)
        self.index = faiss.IndexIVFFlat(centres, dimensions, cells, faiss.METRIC_INNER_PRODUCT)
        self.index.cp.niter = 5
        self.index.cp.max_points_per_centroid = 64
        self.index.cp.min_points_per_centroid = 1
        self.index.train(units)
        self.index.add(units)
        self.last_effort = cells

    def search(self, queries: NDArray[np.float32], k: int, effort: int) -> NDArray[np.int64]:
        self.index.nprobe = effort
        return self.index.search(queries, k)[1]


class _Graph:
    """A graph of small worlds; the effort is the number of candidates kept while walking it."""

    name = "HNSW"
    first_effort = 32
    last_effort = 1024

    def __init__(self, units: NDArray[np.float32]) -> None:
        faiss = _faiss()
        self.index = faiss.IndexHNSWFlat(units.shape[1], 24, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = 80
        self.index.add(units)

    def search(self, queries: NDArray[np.float32], k: int, effort: int) -> NDArray[np.int64]:
        self.index.hnsw.efSearch = max(effort, k)
        return self.index.search(queries, k)[1]


def _search(
    space: CosineSpace,
    index: _Cells | _Graph,
    product: SingleProduct,
    rows: NDArray[np.integer],
    k: int,
    effort: int,
) -> NDArray[np.int32]:
    """Lists of some rows, ordered exactly; rows for which too few were found get exact lists."""
    rows = rows.astype(np.int32)
    found = index.search(product.units[rows], k + 1, effort)
    others = (found >= 0) & (found != rows[:, None])
    # where the row itself was not found, the last of the k + 1 is one too many
    others &= np.cumsum(others, axis=1) <= k
    enough = others.sum(axis=1) == k
    lists = np.empty((len(rows), k), np.int32)
    if enough.any():
        members = found[enough][others[enough]].astype(np.int32)
        lists[enough] = rank(space, np.repeat(rows[enough], k), members, k)
    if not enough.all():
        lists[~enough] = _exact(space, product, rows[~enough], k)
    return lists


def _exact(
    space: CosineSpace, product: SingleProduct, rows: NDArray[np.int32], k: int
) -> NDArray[np.int32]:
    return np.concatenate([rank(space, i, j, k) for i, j in row_candidates(product, rows, k)])


def _recall(exact: NDArray[np.int32], found: NDArray[np.int32]) -> float:
    """The share of the exact neighbours that were found."""
    return float((exact[:, :, None] == found[:, None, :]).any(axis=2).mean())
