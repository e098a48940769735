"""`GET /find`: the rows that a name, a folder, a date, a tag or metadata select."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.index import Index
from ddh.serve.catalog import NO_DATE, Catalog, Scalar
from ddh.serve.names import words_of

Rows = NDArray[np.int64]
Order = Literal["added", "newest", "oldest", "name"]

DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")
CACHED_ANSWERS = 8
TAG = "#"  # before a word that is a tag


@dataclass(frozen=True)
class Selection:
    """What rows are found by; all of it must hold. Empty texts select everything."""

    text: str = ""
    folder: str = ""
    where: tuple[tuple[str, Scalar], ...] = ()
    since: str = ""
    until: str = ""
    order: Order = "added"


class Finder:
    """Positions of the selected rows of a catalog; the last few answers are cached."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._catalog: Catalog | None = None
        self._answers: dict[tuple[object, ...], Rows] = {}

    def rows(self, catalog: Catalog, wanted: Selection, tags: Mapping[str, list[str]]) -> Rows:
        """The rows of a selection, in its order."""
        tagged = [word[1:] for word in words_of(wanted.text) if _is_tag(word)]
        # as text: True and 1 are equal, and so are selections with them
        about = (repr(wanted), *(tuple(tags.get(tag, ())) for tag in tagged))
        if self._catalog is not catalog or len(self._answers) >= CACHED_ANSWERS:
            self._catalog, self._answers = catalog, {}
        if about not in self._answers:
            self._answers[about] = _find(catalog, self._index, wanted, tagged, tags)
        return self._answers[about]


def _is_tag(word: str) -> bool:
    return word.startswith(TAG) and word != TAG


def _find(
    catalog: Catalog,
    index: Index,
    wanted: Selection,
    tagged: list[str],
    tags: Mapping[str, list[str]],
) -> Rows:
    kept = np.ones(len(catalog), bool)
    if len(catalog):
        words = [word for word in words_of(wanted.text) if not _is_tag(word)]
        if words:
            _keep(kept, catalog.texts.rows_with(words))
        for tag in tagged:
            _keep(kept, catalog.rows_of(tags.get(tag, [])))
        if wanted.folder:
            _keep(kept, catalog.rows_below(wanted.folder))
        for name, value in wanted.where:
            _keep(kept, _with_value(catalog, index, name, value))
        if wanted.since or wanted.until:
            kept &= _between(catalog.taken, wanted.since, wanted.until)
    orders = {"newest": "by_date", "oldest": "by_date", "name": "by_name"}
    if wanted.order not in orders:
        return np.flatnonzero(kept)
    order: Rows = getattr(catalog, orders[wanted.order])
    rows = order[kept[order]]
    if wanted.order == "newest":
        dated = int((catalog.taken[rows] != NO_DATE).sum())
        rows = np.concatenate([rows[:dated][::-1], rows[dated:]])
    return rows


def _keep(kept: NDArray[np.bool_], rows: Rows) -> None:
    """Leave only rows that are among these."""
    others = np.ones(len(kept), bool)
    others[rows] = False
    kept[others] = False


def _with_value(catalog: Catalog, index: Index, name: str, value: Scalar) -> Rows:
    """Rows with a value of metadata; for a name that is no category the index is asked."""
    category = catalog.categories.get(name)
    if category is None:
        return catalog.rows_of([row.key for row in index.items(where={name: value})])
    matching = [
        number
        for number, each in enumerate(category.values)
        if each == value and isinstance(each, bool) == isinstance(value, bool)
    ]
    return np.flatnonzero(np.isin(category.of_row, matching))


def _between(taken: NDArray[np.int64], since: str, until: str) -> NDArray[np.bool_]:
    """Dates of two days, months or years, both included."""
    kept: NDArray[np.bool_] = taken != NO_DATE
    if since:
        kept &= taken >= _start(since).astype("datetime64[s]").astype(np.int64)
    if until:
        kept &= taken < (_start(until) + 1).astype("datetime64[s]").astype(np.int64)
    return kept


def _start(date: str) -> Any:
    try:
        if DATE.fullmatch(date):
            start: Any = np.datetime64(date)  # of its day, month or year
            return start
    except ValueError:
        pass
    raise InputError(f"a date is written 2024, 2024-05 or 2024-05-31, not {date[:40]!r}")


def months(catalog: Catalog, rows: Rows) -> list[tuple[str, int]]:
    """The months in which some rows were taken, and how many in each."""
    taken = catalog.taken[rows]
    dates = taken[taken != NO_DATE].astype("datetime64[s]").astype("datetime64[M]")
    found, counts = np.unique(dates, return_counts=True)
    return list(zip(found.astype(str).tolist(), counts.tolist(), strict=True))
