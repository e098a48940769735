"""Searches answered in batches: one pass over the codes for all who ask the same way."""

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import DDHError, InputError
from ddh.index import Hit, Index
from ddh.index.filters import make_filter
from ddh.index.rows import check_text
from ddh.serve.errors import NoSuchKey
from ddh.serve.items import Pictures
from ddh.serve.search_params import Asked, Question, parse_code
from ddh.serve.settings import Settings

Code = NDArray[np.uint8]
Way = tuple[str, str | None]  # where as JSON, and folder: what can be asked together


@dataclass(frozen=True)
class Search:
    """One search: by `code`, or by the code of the row `key` where it is None."""

    code: Code | None
    key: str | None
    k: int
    offset: int
    radius: int | None
    way: Way

    @property
    def depth(self) -> int:
        """Nearest rows to look at: the page, those before it, and one to know if there are more."""
        return self.offset + self.k + 1


class Searcher:
    """Answers searches as JSON, by handles of one index that threads take in turn."""

    def __init__(self, handles: Sequence[Index], pictures: Pictures, settings: Settings) -> None:
        self._bits, self._pictures, self._settings = handles[0].bits, pictures, settings
        self._free: SimpleQueue[Index] = SimpleQueue()
        for handle in handles:
            self._free.put(handle)

    def plan(self, asked: Asked, code: Code | None = None) -> Search:
        """A checked search, by `code` or by what the question names."""
        limits, key = self._settings, None
        if isinstance(asked, Question):
            key = None if asked.key is None else check_text(asked.key, "a key")
            code = None if asked.code is None else parse_code(asked.code, self._bits)
        if asked.k > limits.most_results:
            raise InputError(f"k is at most {limits.most_results}, not {asked.k}")
        if asked.offset + asked.k > limits.deepest_result:
            raise InputError(f"offset + k is at most {limits.deepest_result}: narrow the search")
        if asked.radius is not None and asked.radius > self._bits:
            raise InputError(f"the radius is at most {self._bits} bits, not {asked.radius}")
        make_filter(asked.where, asked.folder or None)  # refuses what no engine can compare
        way = (json.dumps(asked.where, sort_keys=True) if asked.where else "", asked.folder or None)
        return Search(code, key, asked.k, asked.offset, asked.radius, way)

    def answer(self, searches: Sequence[Search]) -> list[bytes | Exception]:
        """Each search's answer as JSON, or what is wrong with it; runs in a worker thread."""
        index = self._free.get()
        try:
            return self._answer(index, searches)
        finally:
            self._free.put(index)

    def _answer(self, index: Index, searches: Sequence[Search]) -> list[bytes | Exception]:
        started = time.perf_counter()
        codes = _codes(index, searches)
        answers: list[bytes | Exception] = [NoSuchKey(search.key or "") for search in searches]
        groups: dict[tuple[int, Way], list[int]] = defaultdict(list)
        for place, (search, code) in enumerate(zip(searches, codes, strict=True)):
            if code is not None:
                groups[search.depth, search.way].append(place)
        for (depth, way), places in groups.items():
            queries = np.array([codes[place] for place in places])
            found = _nearest(index, queries, depth, way)
            seconds = round(time.perf_counter() - started, 6)
            for place, query, hits in zip(places, queries, found, strict=True):
                answers[place] = (
                    hits
                    if isinstance(hits, Exception)
                    else self._told(searches[place], query, hits, seconds)
                )
        return answers

    def _told(self, search: Search, code: Code, hits: list[Hit], seconds: float) -> bytes:
        """The page of a search as JSON."""
        page, more = self._page(search, hits)
        document = {
            "query": {"code": code.tobytes().hex(), "bits": self._bits, "key": search.key},
            "results": [self._pictures.result(hit) for hit in page],
            "more": more,
            "seconds": seconds,
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    def _page(self, search: Search, hits: list[Hit]) -> tuple[list[Hit], bool]:
        if search.radius is not None:
            hits = [hit for hit in hits if hit.distance <= search.radius]
        end = search.offset + search.k
        more = len(hits) > end and end < self._settings.deepest_result
        return hits[search.offset : end], more


def _codes(index: Index, searches: Sequence[Search]) -> list[Code | None]:
    keys = [search.key for search in searches if search.key is not None]
    rows = {row.key: row.code for row in index.get_many(keys)} if keys else {}
    return [s.code if s.key is None else rows.get(s.key) for s in searches]


def _nearest(index: Index, queries: Code, depth: int, way: Way) -> Sequence[list[Hit] | DDHError]:
    """The nearest rows of each query, or for each what is wrong."""
    where, folder = way
    equal = json.loads(where) if where else None
    try:
        return index.search(queries, depth, where=equal, folder=folder)
    except DDHError as error:
        return [error] * len(queries)
