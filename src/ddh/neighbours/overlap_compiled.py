"""The expansion of Alg. 1 by compiled loops: a counter for each image, one row at a time."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ddh.neighbours.cosine import CosineSpace
from ddh.neighbours.native import in_parallel, loops, shares
from ddh.neighbours.overlap import Lists, fill_places, from_ends

# Rows that one thread expands in one go.
ROWS = 1 << 18


def symmetric_expansion(
    lists: Lists, k2: int, *, space: CosineSpace | None, min_overlap: int
) -> sparse.csr_array:
    """S = S or S^T with an empty diagonal; S_i joins the K2 lists that overlap most with L_i.

    Memory: the lists three times, S about three times, 6 bytes an image and thread.
    """
    # the loops work on new numbers, under which neighbours stand close; names[n] has number n
    names, close = _renumbered(lists)
    directed = _directed(close, names, k2, space, min_overlap)
    return _symmetric(directed, names)


def _renumbered(lists: Lists) -> tuple[NDArray[np.int32], Lists]:
    names = np.empty(len(lists), np.int32)
    close = Lists(np.empty_like(lists.starts), np.empty_like(lists.items))
    loops.renumber(lists.starts, lists.items, names, close.starts, close.items)
    return names, close


def _directed(
    lists: Lists, names: NDArray[np.int32], k2: int, space: CosineSpace | None, min_overlap: int
) -> Lists:
    """S before it is made symmetric."""
    holders = _transpose(lists)
    both = (lists.starts, lists.items, holders.starts, holders.items)
    by_index = names if space is None else b""

    def expanded(part: slice) -> Lists:
        ends = np.empty((3, part.stop - part.start), np.int64)
        limits = (part.start, part.stop, min(k2, len(lists)), min_overlap)
        found = loops.best(*both, by_index, *limits, ends[0], ends[1])
        certain, tied = from_ends(ends[0], found[0]), from_ends(ends[1], found[1])
        chosen = fill_places(certain, tied, k2, part.start, names, space)
        union = loops.unite(chosen.starts, chosen.items, lists.starts, lists.items, ends[2])
        return from_ends(ends[2], union)

    blocks = in_parallel(expanded, shares(len(lists), most=ROWS))
    ends = np.cumsum(np.concatenate([block.lengths for block in blocks]))
    return from_ends(ends, np.concatenate([block.items for block in blocks]))


def _transpose(lists: Lists) -> Lists:
    turned = Lists(np.empty_like(lists.starts), np.empty_like(lists.items))
    loops.turn(lists.starts, lists.items, turned.starts, turned.items)
    return turned


def _symmetric(directed: Lists, names: NDArray[np.int32]) -> sparse.csr_array:
    back = _transpose(directed)
    rows = (directed.starts, directed.items, back.starts, back.items, names)
    lengths, starts = np.empty(len(directed), np.int64), np.zeros(len(directed) + 1, np.int64)
    columns = np.empty(0, np.int32)

    def join(part: slice) -> None:
        loops.join(*rows, part.start, part.stop, lengths, starts, columns)

    in_parallel(join, shares(len(directed)))
    np.cumsum(lengths, out=starts[1:])
    columns = np.empty(starts[-1], np.int32)
    in_parallel(join, shares(len(directed)))
    return Lists(starts, columns).matrix(len(directed), np.int8)
