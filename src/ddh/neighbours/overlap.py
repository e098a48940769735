"""Neighbour lists as rows of a sparse matrix, and who wins the last places of a ranking.

With A the indicator of the lists (the image itself included), the sizes of the intersections
L_i n L_j of Alg. 1 are the entries of A A^T, and because

    ||a_i - a_j||^2 = |L_i| + |L_j| - 2 |L_i n L_j|

they order lists of one length as the paper's 1 / ||L_i - L_j||^2 does.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from ddh.neighbours.cosine import CosineSpace


@dataclass(frozen=True)
class Lists:
    """Rows of different lengths: row i holds items[starts[i] : starts[i + 1]]."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    def matrix(self, columns: int, dtype: DTypeLike = np.int32) -> sparse.csr_array:
        """The indicator of the lists, with 32-bit indices as long as they can name all entries."""
        ones = np.ones(len(self.items), dtype)
        narrow = len(self.items) < 2**31
        starts = self.starts.astype(np.int32) if narrow else self.starts
        return sparse.csr_array((ones, self.items, starts), shape=(len(self), columns))

    def __len__(self) -> int:
        return len(self.starts) - 1


def from_ends(ends: NDArray[np.int64], items: bytes | NDArray[np.int32]) -> Lists:
    """Lists from where each row ends."""
    return Lists(np.r_[np.int64(0), ends], np.frombuffer(items, np.int32))


def membership(lists: NDArray[np.integer], *, mutual: bool = False) -> Lists:
    """A: the members of L_i and the image i itself, in order, each once.

    With `mutual` only those that have i in their own list too.
    """
    itself = np.arange(len(lists), dtype=np.int32)
    members = np.column_stack([itself, lists.astype(np.int32)])
    members.sort(axis=1)
    new = np.ones(members.shape, bool)
    np.not_equal(members[:, 1:], members[:, :-1], out=new[:, 1:])
    rows = from_ends(np.cumsum(new.sum(axis=1), dtype=np.int64), members[new])
    if not mutual:
        return rows
    A = rows.matrix(len(lists))
    both = A.multiply(A.T.tocsr()).tocsr()
    return Lists(both.indptr.astype(np.int64), both.indices.astype(np.int32))


def fill_places(
    certain: Lists,
    tied: Lists,
    k2: int,
    first: int,
    names: NDArray[np.integer],
    space: CosineSpace | None,
) -> Lists:
    """`certain`, with the places up to K2 filled from `tied`; row r is the image names[first + r].

    Ties go to the larger cosine where a space is given, then to the smaller index. These few
    candidates are the only ones whose cosine is ever asked for.
    """
    if not len(tied.items):
        return certain
    rows = np.arange(len(tied))
    i, j = np.repeat(rows, tied.lengths), tied.items
    keys = np.zeros(len(i)) if space is None else space.order_keys(names[first + i], names[j])
    order = np.lexsort((names[j], -keys, i))
    place = np.arange(len(i)) - tied.starts[i]
    wins = place < (k2 - certain.lengths)[i]
    i = np.concatenate([np.repeat(rows, certain.lengths), i[wins]])
    j = np.concatenate([certain.items, j[order][wins]])
    by_row = np.argsort(i, kind="stable")
    return from_ends(np.cumsum(np.bincount(i, minlength=len(rows))), j[by_row])
