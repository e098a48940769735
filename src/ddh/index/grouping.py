"""Groups of near-duplicates: rows linked by distances within a radius."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddh.codes import pairs_within
from ddh.index.rows import Codes


@dataclass(frozen=True)
class Group:
    """Positions of the rows of one group, ascending, and their distances to the first of them."""

    positions: NDArray[np.int64]
    distances: NDArray[np.int64]


def group(codes: Codes, radius: int) -> list[Group]:
    """The connected components of two rows and more, in the order of their first rows.

    Equal codes are taken together before pairs are looked for, so that a thousand copies of a
    picture cost one row and not half a million pairs.
    """
    if not len(codes):
        return []
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    distinct, member = _distinct(codes)
    pairs = pairs_within(distinct, radius)
    ones = np.ones(len(pairs.first), np.int8)
    shape = (len(distinct), len(distinct))
    links = coo_array((ones, (pairs.first, pairs.second)), shape=shape)
    component = connected_components(links, directed=False)[1][member]
    return [Group(rows, _distances(codes, rows)) for rows in _members(component)]


def _distinct(codes: Codes) -> tuple[Codes, NDArray[np.int64]]:
    """The different codes, and for each row which of them it has."""
    width = codes.shape[1]
    kind = f"u{width}" if width in (1, 2, 4, 8) else f"V{width}"
    whole = np.ascontiguousarray(codes).view(kind).ravel()
    values, member = np.unique(whole, return_inverse=True)
    return values.view(np.uint8).reshape(-1, width), member.ravel()


def _members(component: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Rows of each component of two and more, ascending; components by their first row."""
    rows = np.flatnonzero(np.bincount(component)[component] > 1)
    if not len(rows):
        return []
    order = np.argsort(component[rows], kind="stable")
    cuts = np.flatnonzero(np.diff(component[rows][order])) + 1
    return sorted(np.split(rows[order], cuts), key=lambda members: members[0])


def _distances(codes: Codes, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    different = np.unpackbits(codes[rows] ^ codes[rows[0]], axis=1)
    return different.sum(axis=1, dtype=np.int64)
