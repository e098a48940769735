"""All pairs of rows within a radius of each other, for near-duplicates."""

import numpy as np
from numpy.typing import ArrayLike

from ddh.codes.inputs import packed_rows, search_radius_bits, thread_count
from ddh.codes.parallel import spans
from ddh.codes.results import Pairs
from ddh.codes.scan import search_radius

_QUERIES_AT_ONCE = 1024


def pairs_within(database: ArrayLike, radius: int, threads: int | None = None) -> Pairs:
    """All pairs i < j of rows at a distance of `radius` or less, ordered by i, then by j.

    Memory beyond the database is proportional to the answer.
    """
    database = packed_rows(database, "the database's rows")
    radius, threads = search_radius_bits(radius), thread_count(threads)
    columns = []
    for part in spans(len(database), _QUERIES_AT_ONCE):
        found = search_radius(database[part], database[part.start :], radius, threads)
        first = np.repeat(np.arange(part.start, part.stop), np.diff(found.limits))
        second = found.indices + part.start
        keep = first < second
        first, second, distances = first[keep], second[keep], found.distances[keep]
        order = np.lexsort((second, first))
        columns.append((first[order], second[order], distances[order]))
    if not columns:
        none = np.empty(0, dtype=np.int64)
        return Pairs(none, none, none.astype(np.int32))
    return Pairs(*(np.concatenate(column) for column in zip(*columns, strict=True)))
