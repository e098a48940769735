"""Overlaps of neighbour lists: the steps of Algorithm 1 behind `alg1`, compiled or by SciPy.

With A the indicator of the lists (the image itself included), the sizes of the intersections
L_i n L_j are the entries of A A^T, and because

    ||a_i - a_j||^2 = |L_i| + |L_j| - 2 |L_i n L_j|

they order lists of equal length as the paper's 1 / ||L_i - L_j||^2 does. Rows of A A^T exist for
some images at a time, never all of them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from ddh._core.errors import InputError
from ddh.neighbours import native
from ddh.neighbours.cosine import CosineSpace

# Overlaps are counted in 16 bits; the image itself is one of the members.
LONGEST_LIST = 2**16 - 2
# Rows per block of the compiled loops, and rows of A A^T that SciPy holds at a time.
COMPILED_ROWS, SCIPY_ROWS = 1 << 18, 4096


@dataclass(frozen=True)
class Lists:
    """Rows of different lengths: row i holds items[starts[i] : starts[i + 1]]."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]

    @classmethod
    def from_ends(cls, ends: NDArray[np.int64], items: bytes | NDArray[np.int32]) -> "Lists":
        return cls(np.r_[np.int64(0), ends], np.frombuffer(items, np.int32))

    @classmethod
    def concatenate(cls, blocks: "list[Lists]") -> "Lists":
        ends = np.cumsum(np.concatenate([block.lengths for block in blocks]))
        return cls.from_ends(ends, np.concatenate([block.items for block in blocks]))

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        return self.starts, self.items

    def part(self, rows: slice) -> "Lists":
        starts = self.starts[rows.start : rows.stop + 1]
        return Lists(starts - starts[0], self.items[starts[0] : starts[-1]])

    def matrix(self, columns: int, dtype: DTypeLike = np.int32) -> sparse.csr_array:
        """The indicator of the lists, with 32-bit indices where they can count the entries."""
        ones = np.ones(len(self.items), dtype)
        narrow = len(self.items) < 2**31
        starts = self.starts.astype(np.int32) if narrow else self.starts
        return sparse.csr_array((ones, self.items, starts), shape=(len(self), columns))

    def __len__(self) -> int:
        return len(self.starts) - 1


def check_lists(lists: ArrayLike) -> NDArray[np.integer]:
    """Neighbour lists as whole numbers (N, K1) that name images, or an error."""
    array = np.asarray(lists)
    if array.ndim != 2 or array.dtype.kind not in "iu" or 0 in array.shape:
        raise InputError(
            f"neighbour lists are whole numbers (images, K1), not {array.dtype} {array.shape}"
        )
    if array.shape[1] > LONGEST_LIST:
        raise InputError(f"a list holds at most {LONGEST_LIST} neighbours, not {array.shape[1]}")
    strange = np.flatnonzero(((array < 0) | (array >= len(array))).any(axis=1))
    if strange.size:
        raise InputError(
            f"{strange.size} neighbour list(s) name images outside 0 to {len(array) - 1}, the "
            f"first is that of image {strange[0]}; an index that finds fewer than K1 fills with -1"
        )
    return array


def membership(lists: NDArray[np.integer], *, mutual: bool = False) -> Lists:
    """A: the members of L_i (if `mutual`, those that list i too) and i itself, ascending."""
    itself = np.arange(len(lists), dtype=np.int32)
    members = np.column_stack([itself, lists.astype(np.int32)])
    members.sort(axis=1)
    new = np.ones(members.shape, bool)
    np.not_equal(members[:, 1:], members[:, :-1], out=new[:, 1:])
    rows = Lists.from_ends(np.cumsum(new.sum(axis=1), dtype=np.int64), members[new])
    if not mutual:
        return rows
    A = rows.matrix(len(lists))
    return _from_matrix(A.multiply(A.T.tocsr()).tocsr())


def renumber(lists: Lists) -> tuple[Lists, NDArray[np.int32]]:
    """The lists under numbers that are close within a list, and the image of each number."""
    images = np.arange(len(lists), dtype=np.int32)
    if native.loops is None:
        return lists, images
    renumbered = Lists(np.empty_like(lists.starts), np.empty_like(lists.items))
    native.loops.renumber(*lists.arrays, images, *renumbered.arrays)
    return renumbered, images


def top_overlaps(
    lists: Lists,
    k2: int,
    images: NDArray[np.int32],
    *,
    space: CosineSpace | None,
    min_overlap: int,
) -> Lists:
    """The K2 rows with the largest overlap of each row; ties by cosine, then the smaller image."""
    k2, by_image = min(k2, len(lists)), images if space is None else b""
    A = lists.matrix(len(lists), np.int32 if native.loops is None else np.int8)
    transposed = A.T.tocsr()
    holders = _from_matrix(transposed)

    def counted(part: slice) -> Lists:
        ends = np.empty((2, part.stop - part.start), np.int64)
        limits = (part.start, part.stop, k2, min_overlap)
        certain, tied = native.loops.top_overlaps(
            *lists.arrays, *holders.arrays, by_image, *limits, ends[0], ends[1]
        )
        found = Lists.from_ends(ends[0], certain), Lists.from_ends(ends[1], tied)
        return _fill_places(*found, k2, images, part.start, space)

    def multiplied(part: slice) -> Lists:
        found = A[part] @ transposed
        return top_by_product(found, k2, images, part.start, space=space, min_overlap=min_overlap)

    if native.loops is None:
        blocks = native.parallel(multiplied, len(lists), max_size=SCIPY_ROWS)
    else:
        blocks = native.parallel(counted, len(lists), max_size=COMPILED_ROWS)
    return Lists.concatenate(blocks)


def union(chosen: Lists, lists: Lists) -> Lists:
    """For each row of `chosen` the union of the lists that it names."""
    if native.loops is None:
        return _from_matrix(chosen.matrix(len(lists)) @ lists.matrix(len(lists)))

    def united(part: slice) -> Lists:
        rows = chosen.part(part)
        ends = np.empty(len(rows), np.int64)
        items = native.loops.union(*rows.arrays, *lists.arrays, ends)
        return Lists.from_ends(ends, items)

    return Lists.concatenate(native.parallel(united, len(chosen), max_size=COMPILED_ROWS))


def symmetrize(directed: Lists, images: NDArray[np.int32]) -> sparse.csr_array:
    """S = S or S^T with an empty diagonal, as int8 CSR; row r of `directed` is image images[r]."""
    one_way = directed.matrix(len(directed), np.int8)
    if native.loops is None:
        S = one_way.maximum(one_way.T.tocsr())
        S.setdiag(0)
        S.eliminate_zeros()
        S.sort_indices()
        return S
    back = _from_matrix(one_way.T.tocsr())
    rows = (*directed.arrays, *back.arrays, images)
    lengths, starts = np.empty(len(directed), np.int64), np.zeros(len(directed) + 1, np.int64)
    columns = np.empty(0, np.int32)

    def write(part: slice) -> None:  # the lengths first, then the columns
        native.loops.symmetrize(*rows, part.start, part.stop, lengths, starts, columns)

    native.parallel(write, len(directed))
    np.cumsum(lengths, out=starts[1:])
    columns = np.empty(starts[-1], np.int32)
    native.parallel(write, len(directed))
    return Lists(starts, columns).matrix(len(directed), np.int8)


def _from_matrix(matrix: sparse.csr_array) -> Lists:
    return Lists(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))


def top_by_product(
    overlaps: sparse.csr_array,
    k2: int,
    images: NDArray[np.int32],
    first: int,
    *,
    space: CosineSpace | None,
    min_overlap: int,
) -> Lists:
    """The K2 largest of each row of A A^T; row r is image images[first + r]."""
    rows = overlaps.shape[0]
    enough = overlaps.data >= min_overlap
    i = np.repeat(np.arange(rows), np.diff(overlaps.indptr))[enough]
    j, overlap = overlaps.indices[enough].astype(np.int32), overlaps.data[enough]
    order = np.lexsort((-overlap, i))
    i, j, overlap = i[order], j[order], overlap[order]
    starts = np.searchsorted(i, np.arange(rows + 1))
    # the overlap of the first column without a place; only what is above it is certain
    beyond = starts[:-1] + k2
    full = beyond < starts[1:]
    cut = np.zeros(rows, overlap.dtype)
    cut[full] = overlap[beyond[full]]

    def selected(which: NDArray[np.bool_]) -> Lists:
        return Lists.from_ends(np.cumsum(np.bincount(i[which], minlength=rows)), j[which])

    found = selected(overlap > cut[i]), selected(overlap == cut[i])
    return _fill_places(*found, k2, images, first, space)


def _fill_places(
    certain: Lists,
    tied: Lists,
    k2: int,
    images: NDArray[np.int32],
    first: int,
    space: CosineSpace | None,
) -> Lists:
    """`certain`, with the places up to K2 filled from `tied`; only these ever need a cosine."""
    if not len(tied.items):
        return certain
    rows = np.arange(len(tied))
    i, j = np.repeat(rows, tied.lengths), tied.items
    keys = np.zeros(len(i)) if space is None else space.order_keys(images[first + i], images[j])
    order = np.lexsort((images[j], -keys, i))
    place = np.arange(len(i)) - tied.starts[i]
    wins = place < (k2 - certain.lengths)[i]
    i = np.concatenate([np.repeat(rows, certain.lengths), i[wins]])
    j = np.concatenate([certain.items, j[order][wins]])
    by_row = np.argsort(i, kind="stable")
    return Lists.from_ends(np.cumsum(np.bincount(i, minlength=len(rows))), j[by_row])
