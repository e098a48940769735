"""Exact neighbour lists: a float32 product names candidates, float64 orders them.

If float32 cosines are off by at most e, then everything that belongs into a list of k has a
float32 cosine of at least t - 2e, t being the k-th largest float32 cosine of the row. So the
candidates above t - 2e are certain to hold the true list, whatever the rounding was.
"""

import numpy as np
from numpy.typing import NDArray

from ddh.neighbours.cosine import CosineSpace
from ddh.progress import track

# Numbers in one block of the product (64 MB of float32).
BLOCK = 1 << 24


def rounding_error(dimensions: int) -> float:
    """How far a float32 dot product of two unit rows may be from the truth, in any order of sums.

    |fl(a.b) - a.b| <= gamma_d |a|.|b| (Higham, 3.1) with |a|.|b| <= 1 by Cauchy-Schwarz, and
    half a unit in the last place for writing each of the two rows in float32.
    """
    unit = 2.0**-24
    steps = (dimensions + 4) * unit
    return 1.01 * steps / (1.0 - steps)


def exact_lists(space: CosineSpace, k: int) -> NDArray[np.int32]:
    """Lists (N, k) int32 of the exact cosine order, in blocks of rows."""
    units = np.empty(space.features.shape, np.float32)
    for part in space.pieces():
        units[part] = space.unit_rows(part)
    slack = 2.0 * rounding_error(space.dimensions)
    lists = np.empty((len(space), k), np.int32)
    step = max(1, BLOCK // len(space))
    for start in track(range(0, len(space), step), "Neighbours", unit="block"):
        cosines = units[start : start + step] @ units.T
        rows = np.arange(start, start + len(cosines))
        cosines[np.arange(len(cosines)), rows] = -np.inf
        kth = np.partition(cosines, len(space) - k, axis=1)[:, len(space) - k]
        i, j = np.nonzero(cosines >= (kth - slack)[:, None])
        lists[start : start + step] = rank(space, i + start, j, k)
    return lists


def rank(
    space: CosineSpace, i: NDArray[np.integer], j: NDArray[np.integer], k: int
) -> NDArray[np.int32]:
    """The best k candidates j of each row i (sorted, k or more of each), ties by smaller index."""
    keys = space.order_keys(i, j)
    order = np.lexsort((j, -keys, i))
    i, j = i[order], j[order]
    first = np.flatnonzero(np.r_[True, i[1:] != i[:-1]])
    return j[first[:, None] + np.arange(k)].astype(np.int32)
