"""The one interface of every engine: what an index is, whatever keeps its rows.

Tie rule, the same in all engines: answers are ordered by distance, and equal distances by the
order in which the rows were written. An upsert writes its row anew, so it goes to the end. Where
scores come first, equal scores are ordered by that rule.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import compress
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh.codes import code_bytes
from ddh.codes.inputs import check_codes
from ddh.index.features import SETTING, FeatureTransform, Stored
from ddh.index.filters import Filter, Scalar, make_filter
from ddh.index.header import PAGE_SETTING, IndexHeader
from ddh.index.ranking import Ranking, check_values
from ddh.index.rows import (
    Codes,
    Columns,
    FileStamp,
    Hit,
    IndexInfo,
    Metadata,
    Row,
    Written,
    check_columns,
    check_radius,
    check_text,
)


class Index(ABC):
    """Rows of (key, packed code, path, file stamp, metadata), and the nearest ones to a code.

    Get one from `ddh.index.open`. It is a context manager; calls from several threads take
    turns. When a writing call returns, its rows are on disk.
    """

    engine: ClassVar[str]
    location: str
    header: IndexHeader
    _transform: FeatureTransform | None = None

    # -- what an engine gives ----------------------------------------------------------------

    @abstractmethod
    def _add(self, rows: Columns) -> None:
        """Write new rows, or raise `_refuse_existing` and write none."""

    @abstractmethod
    def _upsert(self, rows: Columns) -> int:
        """Write rows, replacing those with the same keys; how many were replaced."""

    @abstractmethod
    def _delete(self, keys: list[str]) -> int:
        """Remove the rows that are there; how many were."""

    @abstractmethod
    def _search(
        self, queries: Codes, k: int, offset: int, only: Filter, approximate: bool
    ) -> list[list[Hit]]: ...

    @abstractmethod
    def _search_radius(self, queries: Codes, radius: int, only: Filter) -> list[list[Hit]]: ...

    @abstractmethod
    def _pick(self, only: Filter, choose: Callable[[Codes], NDArray[np.int64]]) -> list[Row]:
        """Rows that `choose` takes from all codes, both in one view and in the order written."""

    @abstractmethod
    def _get(self, keys: list[str]) -> list[Row]:
        """The rows with these keys that are there, in any order."""

    @abstractmethod
    def _features(self, keys: list[str]) -> Iterable[tuple[str, bytes]]:
        """Key and stored features of the rows with these keys that are there."""

    @abstractmethod
    def _each_feature(self) -> Iterator[bytes]:
        """The stored features of all rows, in the order written where the engine has one."""

    @abstractmethod
    def _recode(
        self, header: IndexHeader, settings: dict[str, str], encode: Callable[[Stored], Codes]
    ) -> None:
        """Give all rows new codes, made from their stored features, with a header and settings
        that belong to them: all or nothing."""

    @abstractmethod
    def _present_header(self) -> IndexHeader | None:
        """The header as it is stored now."""

    def _take_over(self, header: IndexHeader) -> None:
        """Go on with the codes of another header, which somebody else has given the rows."""
        self.header = header

    @abstractmethod
    def _items(self, only: Filter, after: str | None) -> Iterator[Row]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Text values kept with the index, such as the paths of its model and its pictures."""

    @abstractmethod
    def set_setting(self, **settings: str) -> None:
        """Store text values with the index, overwriting those of the same names."""

    @abstractmethod
    def _storage(self) -> tuple[int, int | None, dict[str, str]]:
        """Rows deleted but not compacted, bytes on disk, and details of the engine."""

    @abstractmethod
    def compact(self) -> None:
        """Give back the room of deleted rows; answers stay the same."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections; closing twice is fine."""

    # -- what a caller uses ------------------------------------------------------------------

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.header.bits

    @property
    def code_bytes(self) -> int:
        """Bytes of a packed code."""
        return code_bytes(self.header.bits)

    @property
    def model_id(self) -> str | None:
        """The id of the model that made the codes."""
        return self.header.model_id

    def add(
        self,
        keys: Sequence[str],
        codes: ArrayLike,
        *,
        paths: Sequence[str | None] | None = None,
        stamps: Sequence[FileStamp | None] | None = None,
        metadata: Sequence[Metadata | None] | None = None,
        features: ArrayLike | None = None,
    ) -> int:
        """Write new rows and return how many; a key that is there already is an error.

        Tens of thousands of rows a call are fast; one call is held in memory. An index that was
        opened with `features` needs those of every row, (n, dimensions) of the model, or
        (n, components) as `features` returns them.
        """
        rows = self._columns(keys, codes, paths, stamps, metadata, features)
        if len(rows):
            self._add(rows)
        return len(rows)

    def upsert(
        self,
        keys: Sequence[str],
        codes: ArrayLike,
        *,
        paths: Sequence[str | None] | None = None,
        stamps: Sequence[FileStamp | None] | None = None,
        metadata: Sequence[Metadata | None] | None = None,
        features: ArrayLike | None = None,
    ) -> Written:
        """Write rows, replacing whole rows that have the same keys."""
        rows = self._columns(keys, codes, paths, stamps, metadata, features)
        replaced = self._upsert(rows) if len(rows) else 0
        return Written(len(rows) - replaced, replaced)

    def delete(self, keys: Sequence[str]) -> int:
        """Remove rows and return how many were there; keys that are not are passed over."""
        names = self._check_keys(keys)
        return self._delete(names) if names else 0

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        offset: int = 0,
        values: ArrayLike | None = None,
        features: ArrayLike | None = None,
        candidates: int | None = None,
        keys: Sequence[str | None] | None = None,
        where: Mapping[str, Scalar] | None = None,
        folder: str | None = None,
        approximate: bool = False,
    ) -> list[list[Hit]]:
        """The k nearest rows of each packed query, nearest first; fewer where fewer are there.

        Parameters
        ----------
        queries : uint8 array of shape (n, code_bytes(bits))
        k : int
            Number of hits per query.
        offset : int
            Number of nearest rows to skip, for paging; the rows themselves are not read.
        values : array of shape (n, bits), optional
            Real-valued outputs of the queries (`Hasher.outputs`). Hits are then ordered by their
            asymmetric score, descending, and carry it: see `ddh.codes.search_asymmetric`.
        features : array of shape (n, dimensions), optional
            Features of the queries, for an index that stores them. Hits are then ordered by the
            cosine of the features, which is their score; `values` choose the candidates.
        candidates : int, optional
            How many rows, found by distance, are ordered by score; max(k, 1000) where it is None,
            2000 by features.
            More than k, because the best scores often lie behind the k-th distance, and because a
            cut through rows of equal distance is blind. Rows after the candidates stay ordered by
            distance: with a fixed number, the answer to a smaller k begins that to a larger one.
        keys : list of (str or None), optional
            Keys of the rows that the queries are themselves; such a row is the first answer,
            whatever other rows have its code. Their stored features are used, if any.
        where : mapping, optional
            Metadata values that a hit must have.
        folder : str, optional
            Folder that the path of a hit must lie below.
        approximate : bool
            Let an engine that keeps an approximate structure answer from it; otherwise answers
            are exact. The local engine makes inverted lists in memory at the first such search,
            for a recall of 0.99 among the ten nearest, and compares rows added since one by one.

        Returns
        -------
        list of list of Hit
        """
        codes = check_codes(queries, self.bits, "the queries")
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k, the number of answers, is a whole number from 1, not {k!r}")
        if isinstance(offset, bool) or not isinstance(offset, int | np.integer) or offset < 0:
            raise InputError(f"offset is a whole number from 0, not {offset!r}")
        only, page = make_filter(where, folder), (int(k), int(offset))
        rows = None if keys is None else self._own_rows(keys, len(codes), only)
        if features is None and keys is not None and self.header.features:
            features = self.features([key or "" for key in keys])
        ranking = self._ranking(len(codes), values, features, candidates)
        search = partial(self._search, only=only, approximate=approximate)
        if ranking is not None:
            search = partial(
                self._search_ranked, only=only, approximate=approximate, ranking=ranking
            )
        if rows is None:
            return search(codes, *page)
        return self._own_first(search, codes, *page, rows, ranking)

    def search_radius(
        self,
        queries: ArrayLike,
        radius: int,
        *,
        where: Mapping[str, Scalar] | None = None,
        folder: str | None = None,
    ) -> list[list[Hit]]:
        """All rows at a distance of `radius` or less from each packed query, nearest first."""
        codes = check_codes(queries, self.bits, "the queries")
        return self._search_radius(
            codes, check_radius(radius, self.bits), make_filter(where, folder)
        )

    def pick(
        self,
        choose: Callable[[Codes], NDArray[np.int64]],
        *,
        where: Mapping[str, Scalar] | None = None,
        folder: str | None = None,
    ) -> list[Row]:
        """Rows at the positions that `choose` selects from the codes of all rows.

        Codes and rows come from one view of the index, in the order written. `choose` may be
        called more than once.
        """
        return self._pick(make_filter(where, folder), choose)

    def get(self, key: str) -> Row | None:
        """The row with this key, None where there is none."""
        return next(iter(self._get([check_text(key, "a key")])), None)

    def get_many(self, keys: Sequence[str]) -> list[Row]:
        """The rows with these keys that are there, in the order of `keys`."""
        names = self._check_keys(keys)
        found = {row.key: row for row in self._get(names)} if names else {}
        return [found[name] for name in names if name in found]

    def items(
        self,
        *,
        where: Mapping[str, Scalar] | None = None,
        folder: str | None = None,
        after: str | None = None,
    ) -> Iterator[Row]:
        """All rows in the order in which they were written, a few thousand in memory at a time.

        With `after`, the rows that follow the one of that key; none where it is not there.
        """
        return self._items(make_filter(where, folder), after)

    def fit_features(self, sample: ArrayLike) -> None:
        """Choose how features are stored, from a sample of some thousand (n, dimensions).

        The first `add` does it with its own features where nobody has; it cannot be changed.
        """
        if not self.header.features:
            raise InputError(
                f"{self.location} stores no features: make it with ddh.index.open(features=128)"
            )
        if self.feature_transform is not None:
            raise InputError(f"{self.location} has chosen how it stores features already")
        self.set_setting(**FeatureTransform.fit(sample, self.header.features).as_settings())

    @property
    def feature_transform(self) -> FeatureTransform | None:
        """How features are stored; None where nothing is or nothing has been added yet."""
        if self._transform is None and self.header.features:
            self._transform = FeatureTransform.from_settings(self.settings())
        return self._transform

    def features(self, keys: Sequence[str]) -> NDArray[np.int8]:
        """The stored features of rows, (n, components); zeros where a key is not there."""
        stored = np.zeros((len(keys), self.header.features), np.int8)
        if not self.header.features:
            raise InputError(f"{self.location} stores no features")
        place = {key: i for i, key in enumerate(keys)}
        for key, value in self._features(list(place)):
            stored[place[key]] = np.frombuffer(value, np.int8)
        for i, key in enumerate(keys):
            stored[i] = stored[place[key]]  # a key that is asked for twice
        return stored

    def sample_features(self, rows: int, seed: int = 0) -> NDArray[np.int8]:
        """The stored features of all rows, or of so many random ones, (n, components)."""
        total = len(self)
        chosen = np.ones(total, bool)
        if total > rows:
            chosen[np.random.default_rng(seed).permutation(total)[rows:]] = False
        stored = b"".join(compress(self._each_feature(), chosen))
        return np.frombuffer(stored, np.int8).reshape(-1, self.header.features)

    def recode(
        self,
        encode: Callable[[NDArray[np.int8]], ArrayLike],
        *,
        bits: int,
        model_id: str | None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Give all rows the codes of another model, made from their stored features.

        All or nothing: whoever has the index open meanwhile goes on with the codes that it had,
        and must open it again, or `follow`, afterwards.

        Parameters
        ----------
        encode : callable
            Packed codes (n, code_bytes(bits)) of stored features (n, components).
        bits, model_id
            Length of the new codes, and the model that makes them.
        settings : mapping, optional
            Settings to store in the same step, such as where that model lies.
        """
        if not self.header.features:
            raise InputError(
                f"{self.location} stores no features to make other codes from: make it with "
                "ddh.index.open(features=128)"
            )
        code_bytes(bits)
        header = replace(self.header, bits=bits, model_id=model_id)
        self._recode(
            header, dict(settings or {}), lambda part: check_codes(encode(part), bits, "the codes")
        )
        self.header = header

    def follow(self) -> bool:
        """Go on with the codes that somebody else has given the rows; whether there are any.

        Codes and outputs of the former model must not be searched with any more.
        """
        header = self._present_header()
        if header is None or (header.bits, header.model_id) == (self.bits, self.model_id):
            return False
        self._take_over(header)
        return True

    def info(self) -> IndexInfo:
        """What this index is and how large."""
        header = {name: value for name, value in asdict(self.header).items() if name != "format"}
        deleted, size, details = self._storage()
        return IndexInfo(
            self.engine, self.location, **header, rows=len(self), deleted=deleted,
            disk_bytes=size, details=details, settings={
                name: text
                for name, text in self.settings().items()
                if not name.startswith((SETTING, PAGE_SETTING))
            },
        )  # fmt: skip

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.location}: {len(self)} rows of {self.bits} bits>"

    # -- what engines share ------------------------------------------------------------------

    def _search_ranked(
        self,
        queries: Codes,
        k: int,
        offset: int,
        only: Filter,
        approximate: bool,
        ranking: Ranking,
    ) -> list[list[Hit]]:
        """As `_search`, in the order of the ranking."""
        if ranking.candidates is not None and offset >= ranking.candidates:
            found = self._search(queries, k, offset, only, approximate)
            return ranking.scored(found)
        found = self._search(queries, ranking.depth(offset + k), 0, only, approximate)
        return [hits[offset : offset + k] for hits in ranking.ranked(found, self.features)]

    def _ranking(
        self,
        queries: int,
        values: ArrayLike | None,
        features: ArrayLike | None,
        candidates: int | None,
    ) -> Ranking | None:
        """How to order what is found; None for distances alone."""
        if candidates is not None and candidates < 1:
            raise InputError(f"candidates, the rows to order, are 1 or more, not {candidates!r}")
        outputs = None if values is None else check_values(values, queries, self.bits)
        transform = None if features is None else self.feature_transform
        if features is not None and not self.header.features:
            raise InputError(f"{self.location} stores no features: search without them")
        if outputs is None and transform is None:
            return None
        if features is None or transform is None:
            return Ranking(outputs, candidates)
        unit = transform.unit(features)
        if len(unit) != queries:
            raise InputError(f"{queries} queries have {len(unit)} rows of features: give one each")
        return Ranking(outputs, candidates, unit, transform)

    def _columns(
        self,
        keys: Sequence[str],
        codes: ArrayLike,
        paths: Sequence[str | None] | None,
        stamps: Sequence[FileStamp | None] | None,
        metadata: Sequence[Metadata | None] | None,
        features: ArrayLike | None,
    ) -> Columns:
        """Checked rows, their features as they are stored."""
        rows = check_columns(self.bits, keys, codes, paths, stamps, metadata)
        if not len(rows) or (features is None and not self.header.features):
            return rows
        if features is None:
            raise InputError(f"{self.location} stores features: give features= with every row")
        if self.header.features and self.feature_transform is None:
            self.fit_features(features)
        transform = self.feature_transform
        if transform is None:
            raise InputError(
                f"{self.location} stores no features: make it with ddh.index.open(features=128)"
            )
        stored = transform.encode(features)
        if len(stored) != len(rows):
            raise InputError(f"there are {len(rows)} codes and {len(stored)} rows of features")
        return replace(rows, features=stored)

    def _own_first(
        self,
        search: Callable[[Codes, int, int], list[list[Hit]]],
        queries: Codes,
        k: int,
        offset: int,
        rows: Sequence[Row | None],
        ranking: Ranking | None,
    ) -> list[list[Hit]]:
        """What `search` finds, with the row that a query is itself, if any, before all others."""
        ahead = min(offset, 1)  # one row that stands before the page moves into it
        answers = []
        for query, hits in enumerate(search(queries, k + ahead, offset - ahead)):
            row = rows[query]
            if row is None:
                answers.append(hits[ahead:])
                continue
            own = [row.at(int(np.bitwise_count(row.code ^ queries[query]).sum()))]
            others = [hit for hit in hits if hit.key != row.key]
            if offset and hits and len(others) == len(hits):
                if ranking is not None or own[0].distance >= hits[0].distance:  # where is it?
                    found = self._own_first(search, queries, offset + k, 0, rows, ranking)
                    return [answer[offset:] for answer in found]
                others = others[1:]
            elif not offset:
                others = [
                    *(ranking.of(query).ranked([own], self.features)[0] if ranking else own),
                    *others,
                ]
            answers.append(others[:k])
        return answers

    def _own_rows(self, keys: Sequence[str | None], queries: int, only: Filter) -> list[Row | None]:
        """The rows of the queries' own keys, None where there is none or the filter excludes it."""
        if isinstance(keys, str) or len(keys) != queries:
            raise InputError(f"keys are a list of {queries}, one for each query or None")
        found = self.get_many([key for key in keys if key is not None])
        rows = {row.key: row for row in found if only.accepts(row)}
        return [None if key is None else rows.get(key) for key in keys]

    def _check_keys(self, keys: Sequence[str]) -> list[str]:
        if isinstance(keys, str):
            raise InputError("keys are a list of strings, not a single string")
        return list(dict.fromkeys(check_text(key, "a key") for key in keys))

    def _refuse_existing(self, existing: list[str]) -> InputError:
        shown = ", ".join(repr(key) for key in existing[:3]) + (", ..." if existing[3:] else "")
        return InputError(
            f"{len(existing)} of these keys are in the index already ({shown}): use upsert to "
            "replace rows; nothing was added"
        )
