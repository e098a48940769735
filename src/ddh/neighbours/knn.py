"""The first ranking of Algorithm 1: the K1 nearest images of every image by cosine, exactly.

A fast product of unit rows finds candidates, float64 orders them. If the cosines of the product
are off by at most e, then every member of a list of k has a product of at least t - 2e, where t
is the k-th largest of its row. So the candidates above t - 2e contain the true list, whatever
the rounding was. `knn_gpu` does the same on a GPU, `approximate` trades exactness for time.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh._core.progress import bar
from ddh._core.spans import spans
from ddh.neighbours import native
from ddh.neighbours.approximate import RECALL, approximate_lists
from ddh.neighbours.cosine import CosineSpace, cosine_space
from ddh.neighbours.products import Product, fastest_product, threshold

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]

# Rows and columns of a tile of the product (16 MB of float32: it stays in the cache).
TILE = 2048
# Numbers in a block of whole rows of the product (64 MB of float32).
BLOCK = 1 << 24
# Rows whose candidates are ordered at a time.
ROWS = 8192


@dataclass(frozen=True)
class NearestLists:
    """Neighbour lists (N, k) int32, nearest first, and their cosines (N, k) float32.

    `recall` is 1 for exact lists; for approximate ones it was measured on a sample of rows.
    """

    lists: NDArray[np.int32]
    similarities: NDArray[np.float32]
    recall: float


def knn(
    features: ArrayLike,
    k: int,
    *,
    centre: bool = False,
    device: Any = None,
    approximate: bool = False,
    recall: float = RECALL,
    folder: Path | None = None,
) -> NDArray[np.int32]:
    """The k nearest rows of every row by cosine.

    Parameters
    ----------
    features : array-like, shape (N, dimensions)
        Any real type, possibly memory-mapped. A zero vector has cosine 0 with everything.
    k : int
        Neighbours per row. A row is never in its own list.
    centre : bool
        Subtract the mean of the features first.
    device : str or torch.device, optional
        A GPU ("cuda") to search on.
    approximate : bool
        Search a faiss index instead, tuned to reach `recall` on a sample of rows.
    recall : float
        Share of the true neighbours that an approximate search must find.
    folder : Path, optional
        Where approximate lists of more than 1 GB are written as a memory-mapped file.

    Returns
    -------
    ndarray of int32, shape (N, k)
        Nearest first, ties by the smaller index. Exact lists are those of float64 arithmetic,
        equal rows included.

    Notes
    -----
    Memory: the features once more as float32, 56 k + 600 bytes per image, and some tiles;
    approximate: dimensions / 4 + 4 k bytes per image, and some blocks.

    Examples
    --------
    >>> from ddh.neighbours import knn
    >>> knn([[1, 0], [0, 1], [2, 1]], k=2).tolist()
    [[2, 1], [2, 0], [0, 1]]
    """
    space = cosine_space(features, centre=centre)
    lists, _ = nearest_in(
        space, k, device=device, approximate=approximate, recall=recall, folder=folder
    )
    return lists


def nearest(features: ArrayLike, k: int, *, centre: bool = False, **options: Any) -> NearestLists:
    """As `knn`, with the cosines of the lists and their recall."""
    space = cosine_space(features, centre=centre)
    lists, reached = nearest_in(space, k, **options)
    i = np.repeat(np.arange(len(space), dtype=np.int32), k)
    similarities = space.similarities(i, lists.ravel()).astype(np.float32)
    return NearestLists(lists, similarities.reshape(lists.shape), reached)


def nearest_in(
    space: CosineSpace,
    k: int,
    *,
    device: Any = None,
    approximate: bool = False,
    recall: float = RECALL,
    folder: Path | None = None,
) -> tuple[NDArray[np.int32], float]:
    """The lists of a prepared space and their recall."""
    k = check_k(k, len(space))
    if approximate:
        found = approximate_lists(space, k, recall=recall, folder=folder)
        return found.lists, found.recall
    return exact_lists(space, k, device=device), 1.0


def check_k(k: int, images: int) -> int:
    """k neighbours exist only among k + 1 images."""
    if not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"the number of neighbours K1 is a whole number from 1 on, not {k!r}")
    if k > images - 1:
        raise InputError(
            f"{k} neighbours need at least {k + 1} images, there are {images}: lower K1"
        )
    return int(k)


def exact_lists(space: CosineSpace, k: int, *, device: Any = None) -> NDArray[np.int32]:
    """Lists (N, k) int32 in the exact order of the cosine, ties by the smaller index."""
    lists = np.empty((len(space), k), np.int32)
    copies, originals = surplus_copies(space, k)
    index = np.delete(np.arange(len(space), dtype=np.int32), copies)
    if device is not None and str(device) != "cpu":
        from ddh.neighbours.knn_gpu import DeviceRows

        lists[index] = index[DeviceRows(space, index, device).lists(k)]
    else:
        for i, j in candidates(fastest_product(space, index, k, capacity_for(k) // 2), k):
            lists[index[np.unique(i)]] = space.rank(index[i], index[j], k)
    if copies.size:
        # the row of a copy is that of its original: same candidates, and the original itself
        near = np.column_stack([originals, lists[originals]])
        lists[copies] = space.rank(np.repeat(copies, k + 1), near.ravel(), k)
    return lists


def surplus_copies(space: CosineSpace, k: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Rows that equal k + 1 or more earlier ones, and the first of those: no list can name them."""
    order = np.argsort(space.squares, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(space.squares[order])) + 1, len(order))
    starts = np.append(0, ends[:-1])
    long = ends - starts > k + 1
    surplus: list[tuple[int, int]] = []
    for start, end in zip(starts[long], ends[long], strict=True):
        copies = defaultdict(list)
        for row in order[start:end].tolist():
            copies[space.features[row].tobytes()].append(row)
        for rows in copies.values():
            surplus.extend((row, rows[0]) for row in rows[k + 1 :])
    pairs = np.array(sorted(surplus), np.int32).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def candidates(product: Product, k: int) -> Iterator[Pairs]:
    """Pieces (i, j), i ascending, of all pairs in which j may belong to the list of i."""
    if native.loops is not None:
        yield from _tiled_candidates(product, k)
        return
    rows = np.arange(len(product), dtype=np.int32)
    with bar("Neighbours", total=len(product), unit="image") as progress:
        for pair in row_candidates(product, rows, k):
            yield pair
            progress.update(pair[0][-1] + 1 - progress.n)


def capacity_for(k: int) -> int:
    """Candidates that a row can hold before those that its list has outgrown are dropped."""
    return 4 * k + 64


def _tiled_candidates(product: Product, k: int) -> Iterator[Pairs]:
    """As `candidates`, by the compiled loops; a tile serves its rows and its columns."""
    images, capacity, slack = len(product), capacity_for(k), 2.0 * product.error
    threshold, count = np.full(images, -np.inf, np.float32), np.zeros(images, np.int32)
    value = np.empty((images, capacity), np.float32)
    column = np.empty((images, capacity), np.int32)
    state = (k, capacity, slack, threshold, count, value, column)

    def collect(tile: NDArray[np.float32], row: int, first: int, by_row: bool) -> None:
        def work(part: slice) -> None:
            limits = (part.start, part.stop, by_row)
            native.loops.collect(tile, *tile.shape, row, first, *limits, *state)

        native.parallel(work, tile.shape[0 if by_row else 1], min_size=256)

    starts = range(0, images, TILE)
    total = len(starts) * (len(starts) + 1) // 2
    with bar("Neighbours", total=total, unit="tile") as progress:
        for row in starts:
            for first in starts[row // TILE :]:
                tile = product.tile(slice(row, row + TILE), slice(first, first + TILE))
                collect(tile, row, first, True)
                if row != first:
                    collect(tile, row, first, False)
                progress.update()
    for part in spans(images, ROWS):
        fits = count[part, None] > 0
        values = np.where(np.arange(capacity) < count[part, None], value[part], -np.inf)
        last = np.partition(values, -k, axis=1)[:, -k, None]
        held = (values >= last - np.float32(slack)) & fits
        if held.any():
            rows = np.arange(part.start, part.stop, dtype=np.int32)
            yield np.repeat(rows, held.sum(axis=1)), column[part][held]
    yield from row_candidates(product, np.flatnonzero(count < 0).astype(np.int32), k)


def row_candidates(product: Product, rows: NDArray[np.int32], k: int) -> Iterator[Pairs]:
    """As `candidates`, for some rows, each against all columns at once: any number fits."""
    for piece in spans(len(rows), max(1, BLOCK // len(product))):
        part = rows[piece]
        cosines = product.tile(part, slice(None))
        cosines[np.arange(len(part)), part] = -np.inf
        i, j = np.nonzero(cosines >= threshold(cosines, k, product.error)[:, None])
        yield part[i], j.astype(np.int32)
