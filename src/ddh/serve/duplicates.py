"""Groups of near-duplicates, page by page: which pictures, and which of them to keep."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.output import csv_line
from ddh.codes import search_radius
from ddh.duplicates import RankedPicture, group_codes, measure, rank
from ddh.index import Index
from ddh.serve.catalog import Catalog
from ddh.serve.items import Pictures, picture_name

MAX_PAIRS = 20_000_000  # 24 bytes each while groups are found
SAMPLED = 256
CACHED_ANSWERS = 8
COLUMNS = ("group", "key", "path", "width", "height", "bytes", "distance", "keep")


class Duplicates:
    """Finds groups in a catalog, which caches the last few answers. For one thread."""

    def __init__(self, index: Index, pictures: Pictures) -> None:
        self._index, self._pictures = index, pictures

    def groups(self, catalog: Catalog, radius: int, folder: str) -> list[list[str]]:
        """Keys of the rows of each group, by age; groups by their first rows."""
        if not 0 <= radius <= self._index.bits:
            raise InputError(f"the radius is a distance from 0 to {self._index.bits}, not {radius}")
        cached = catalog.duplicates
        if (radius, folder) not in cached:
            if len(cached) == CACHED_ANSWERS:
                cached.clear()
            cached[radius, folder] = _find(catalog, radius, folder)
        groups = cached[radius, folder]
        return [[catalog.keys[row] for row in rows.tolist()] for rows in groups]

    def page(self, groups: Sequence[list[str]]) -> list[dict[str, Any]]:
        """Groups as in the JSON response; rows deleted since are left out."""
        return [
            {"items": [self._member(copy) for copy in copies], "keep": copies[0].row.key}
            for copies in map(self._copies, groups)
            if len(copies) > 1
        ]

    def _copies(self, keys: list[str]) -> list[RankedPicture]:
        rows = self._index.get_many(keys)
        sizes = [measure(self._pictures.file(picture_name(row))) for row in rows]
        return rank(rows, sizes) if rows else []

    def _member(self, copy: RankedPicture) -> dict[str, Any]:
        known = copy.size.bytes > 0
        figures = {name: value if known else None for name, value in copy.size._asdict().items()}
        return {**self._pictures.item(copy.row), "distance": copy.distance, **figures}

    def csv(self, groups: Sequence[list[str]]) -> Iterator[str]:
        """All groups as lines of a CSV table."""
        yield csv_line(COLUMNS)
        for number, keys in enumerate(groups, 1):
            for place, (row, size, distance) in enumerate(self._copies(keys)):
                yield csv_line((number, row.key, row.path, *size, distance, place == 0))


def _find(catalog: Catalog, radius: int, folder: str) -> list[NDArray[np.int64]]:
    rows = catalog.rows_below(folder) if folder else np.arange(len(catalog))
    codes = catalog.codes[rows]
    _refuse_too_many(codes, radius)
    return [rows[found] for found in group_codes(codes, radius)]


def _refuse_too_many(codes: NDArray[np.uint8], radius: int) -> None:
    """Estimate the pairs from a few rows, so that no radius fills the memory."""
    sample = np.random.default_rng(0).permutation(len(codes))[:SAMPLED]
    pairs = 0
    for seen, row in enumerate(sample.tolist(), 1):
        found = search_radius(codes[row : row + 1], codes, radius)
        different = (codes[found.indices] != codes[row]).any(axis=1)  # equal ones cost no pair
        pairs += int(different.sum())
        if seen >= 16 and pairs / seen * len(codes) / 2 > MAX_PAIRS:
            raise InputError(
                f"far too many pictures lie within {radius} bits of each other: "
                "choose a smaller radius, or a folder"
            )
