"""Groups of near-duplicates: rows linked by distances within a radius."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddh.codes import pairs_within
from ddh.index import Hit, Index
from ddh.index.filters import Scalar
from ddh.index.rows import Codes, check_radius


@dataclass(frozen=True)
class DuplicateGroup:
    """Rows of an index connected by distances within a radius, the earliest written first.

    The distance of each hit is the distance to the first row. Two rows of a group may lie further
    apart than the radius when other rows connect them.
    """

    hits: tuple[Hit, ...]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


def find_groups(
    index: Index,
    radius: int,
    *,
    where: Mapping[str, Scalar] | None = None,
    folder: str | None = None,
) -> list[DuplicateGroup]:
    """Groups of rows connected by Hamming distances of `radius` or less, by their first rows.

    `where` and `folder` restrict the search as in `Index.search`. All codes are held in memory,
    together with the pairs found among the distinct ones.
    """
    radius = check_radius(radius, index.bits)
    groups: list[NDArray[np.int64]] = []

    def members(codes: Codes) -> NDArray[np.int64]:
        groups[:] = group_codes(codes, radius)  # the engine may repeat the call
        return np.concatenate([np.empty(0, np.int64), *groups])

    rows = iter(index.pick(members, where=where, folder=folder))
    found = ([next(rows) for _ in positions] for positions in groups)
    return [
        DuplicateGroup(tuple(row.at(row.distance(group[0])) for row in group)) for group in found
    ]


def group_codes(codes: Codes, radius: int) -> list[NDArray[np.int64]]:
    """Ascending positions of the codes of each group, groups in the order of their first codes.

    Equal codes are merged before pairs are searched for, so a thousand copies of a picture cost
    one row and not half a million pairs.
    """
    if not len(codes):
        return []
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    width = codes.shape[1]
    kind = f"u{width}" if width in (1, 2, 4, 8) else f"V{width}"
    whole = np.ascontiguousarray(codes).view(kind).ravel()
    values, member = np.unique(whole, return_inverse=True)
    distinct = values.view(np.uint8).reshape(-1, width)
    pairs = pairs_within(distinct, radius)
    ones = np.ones(len(pairs.first), np.int8)
    links = coo_array((ones, (pairs.first, pairs.second)), shape=(len(distinct), len(distinct)))
    component = connected_components(links, directed=False)[1][member.ravel()]
    rows = np.flatnonzero(np.bincount(component)[component] > 1)
    rows = rows[np.argsort(component[rows], kind="stable")]
    groups = np.split(rows, np.flatnonzero(np.diff(component[rows])) + 1)
    return sorted(filter(len, groups), key=lambda members: members[0])
