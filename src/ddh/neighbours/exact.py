"""Exact neighbour lists: a fast product names candidates, float64 orders them.

If the cosines of the product are off by at most e, then everything that belongs into a list of
k has there a cosine of at least t - 2e, where t is the k-th largest of its row. So the
candidates above t - 2e are certain to hold the true list, whatever the rounding was.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.progress import bar
from ddh.neighbours.cosine import CosineSpace
from ddh.neighbours.device import DeviceRows, torch_device
from ddh.neighbours.native import in_parallel, loops, shares
from ddh.neighbours.products import Product, fastest_product, threshold

Pairs = tuple[NDArray[np.integer], NDArray[np.integer]]

# Rows and columns of a tile of the product (16 MB of float32: it stays in the cache).
TILE = 2048
# Numbers in a block of whole rows of the product (64 MB of float32).
BLOCK = 1 << 24
# Rows whose candidates are ordered at a time.
ROWS = 8192


def exact_lists(space: CosineSpace, k: int, *, device: Any = None) -> NDArray[np.int32]:
    """Lists (N, k) int32 in the exact order of the cosine, ties by the smaller index.

    Memory: the features once more as float32 (or bfloat16), and about 40 k + 600 bytes an image.
    """
    lists = np.empty((len(space), k), np.int32)
    copies, originals = surplus_copies(space, k)
    index = np.delete(np.arange(len(space), dtype=np.int32), copies)
    accelerator = torch_device(device)
    if accelerator is not None:
        lists[index] = index[DeviceRows(space, index, accelerator).lists(k)]
    else:
        for i, j in candidates(fastest_product(space, index, k, room_for(k) // 2), k):
            rows = index[np.unique(i)]
            lists[rows] = rank(space, index[i], index[j], k)
    if copies.size:
        # the row of a copy is that of its original: same candidates, and the original itself
        near = np.column_stack([originals, lists[originals]])
        lists[copies] = rank(space, np.repeat(copies, k + 1), near.ravel(), k)
    return lists


def surplus_copies(space: CosineSpace, k: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Rows that equal k + 1 or more earlier rows, and for each the first of those.

    No list can name them, for ties go to the smaller index. Leaving them out keeps a collection
    with thousands of equal pictures (blank ones, placeholders) from tying with itself.
    """
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
    """Pieces (i, j), i in order, of all pairs in which j may belong into the list of i."""
    if loops is None:
        rows = np.arange(len(product), dtype=np.int32)
        with bar("Neighbours", total=len(product), unit="image") as progress:
            for pair in row_candidates(product, rows, k):
                yield pair
                progress.update(pair[0][-1] + 1 - progress.n)
        return
    held = _Held(product, k)
    held.collect()
    for start in range(0, len(product), ROWS):
        i, j = held.piece(slice(start, start + ROWS))
        if len(i):
            yield i, j
    yield from row_candidates(product, held.crowded(), k)


def room_for(k: int) -> int:
    """Candidates that a row can hold before those are dropped that its list has outgrown."""
    return 4 * k + 64


class _Held:
    """The candidates of every row while tiles of the product go by.

    The product is symmetric: a tile serves its rows and its columns, so only half of them are
    computed. `threshold` rises as better candidates come, and few values still pass it.
    """

    def __init__(self, product: Product, k: int) -> None:
        images = len(product)
        self.product = product
        self.k, self.room = k, room_for(k)
        self.threshold = np.full(images, -np.inf, np.float32)
        self.count = np.zeros(images, np.int32)
        self.value = np.empty((images, self.room), np.float32)
        self.column = np.empty((images, self.room), np.int32)

    def _state(self) -> tuple:
        slack = 2.0 * self.product.error
        return (self.k, self.room, slack, self.threshold, self.count, self.value, self.column)

    def collect(self) -> None:
        starts = range(0, len(self.product), TILE)
        total = len(starts) * (len(starts) + 1) // 2
        with bar("Neighbours", total=total, unit="tile") as progress:
            for row in starts:
                for column in starts[row // TILE :]:
                    self._collect_tile(row, column)
                    progress.update()
        loops.settle(*self._state())

    def _collect_tile(self, row: int, column: int) -> None:
        tile = self.product.tile(slice(row, row + TILE), slice(column, column + TILE))
        place = (*tile.shape, row, column)
        state = self._state()

        def rows(part: slice) -> None:
            loops.collect(tile, *place, part.start, part.stop, True, *state)

        def columns(part: slice) -> None:
            loops.collect(tile, *place, part.start, part.stop, False, *state)

        in_parallel(rows, shares(tile.shape[0], least=256))
        if row != column:
            in_parallel(columns, shares(tile.shape[1], least=256))

    def piece(self, rows: slice) -> Pairs:
        """The candidates of some rows, without those that had no room for theirs."""
        count = self.count[rows]
        held = np.arange(self.room) < count[:, None]
        i = np.repeat(np.arange(rows.start, rows.start + len(count), dtype=np.int32), held.sum(1))
        return i, self.column[rows][held]

    def crowded(self) -> NDArray[np.int32]:
        """Rows with more candidates than there was room for."""
        return np.flatnonzero(self.count < 0).astype(np.int32)


def row_candidates(product: Product, rows: NDArray[np.int32], k: int) -> Iterator[Pairs]:
    """As `candidates`, for some rows, each against all columns at once: any number fits."""
    step = max(1, BLOCK // len(product))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        cosines = product.tile(part, slice(None))
        cosines[np.arange(len(part)), part] = -np.inf
        i, j = np.nonzero(cosines >= threshold(cosines, k, product.error)[:, None])
        yield part[i], j.astype(np.int32)


def rank(
    space: CosineSpace, i: NDArray[np.integer], j: NDArray[np.integer], k: int
) -> NDArray[np.int32]:
    """The best k candidates j of each i (in order, k or more of each), ties by smaller index."""
    keys = space.order_keys(i, j)
    order = np.lexsort((j, -keys, i))
    i, j = i[order], j[order]
    first = np.flatnonzero(np.r_[True, i[1:] != i[:-1]])
    return j[first[:, None] + np.arange(k)].astype(np.int32)
