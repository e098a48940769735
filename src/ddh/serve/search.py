"""`POST /search`: the nearest rows to a code, to a row, to an image, or to a text.

What is nearest to an image is ordered by its outputs, and a row or a file is its own first answer.
Requests that arrive while others are being answered are searched together: one pass over the codes
for all that share their filters and page.
"""

import base64
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from starlette.exceptions import HTTPException

from ddh._core.errors import DDHError, InputError
from ddh.codes.packing import MAX_BITS
from ddh.index import Hit, Index, IndexRecoded
from ddh.index.collection import COMPARED_HITS, same_content_first
from ddh.index.features import Stored
from ddh.index.filters import make_filter
from ddh.index.ranking import CANDIDATES, FEATURE_CANDIDATES, check_values
from ddh.index.rows import check_text, recoded
from ddh.serve.bodies import CodeText, Fields, Where, parse_code
from ddh.serve.errors import no_such_key
from ddh.serve.items import Pictures
from ddh.serve.settings import Settings

CHANGED = "the index has codes of another model since: search again with the picture or the key"

Code = NDArray[np.uint8]
Values = NDArray[np.float32]
Filters = tuple[str, str | None]  # `where` as JSON, and the folder


class SearchParams(Fields):
    """The parameters of every search, whatever it searches by."""

    k: int = Field(50, ge=1, description="Number of results.")
    offset: int = Field(0, ge=0, description="Number of results to skip, for paging.")
    radius: int | None = Field(None, ge=0, description="Largest distance in bits; null for any.")
    where: Where | None = Field(None, description="Metadata values that must be equal.")
    folder: str | None = Field(None, description="Only pictures below this folder; empty for all.")


class SearchRequest(SearchParams):
    """A search by a code, by the key of a row, or by a text."""

    code: CodeText | None = None
    key: str | None = Field(None, description="The key of a row, to search by its code.")
    model_id: str | None = Field(
        None, description="The model of `code`, to be refused when the index has another one."
    )
    text: str | None = Field(
        None, min_length=1, max_length=1000,
        description="What is to be seen, in words; only with `--text-model`.",
    )  # fmt: skip
    values: list[Annotated[float, Field(allow_inf_nan=False)]] | None = Field(
        None,
        max_length=MAX_BITS,
        description="The real-valued outputs whose signs are `code`, one per bit; they order what "
        "the code finds, as those of a picture do.",
    )
    features: str | None = Field(
        None, description="The stored form of features beside `values`, as `query` names them."
    )


@dataclass(frozen=True)
class Query:
    """A validated search by `code`, or by the code of the row `key` where it is None.

    A picture also has the `values` whose signs are its code, `features`, and the `digest` of its
    file. `model_id` is the model of the code.
    """

    params: SearchParams
    filters: Filters
    code: Code | None = None
    key: str | None = None
    values: Values | None = None
    features: Values | Stored | None = None
    digest: str = ""
    text: str = ""
    model_id: str | None = None

    @property
    def end(self) -> int:
        """The end of the page."""
        return self.params.offset + self.params.k

    @property
    def cost(self) -> int:
        """Its share of a batch: a deep page is searched alone."""
        return 1 + self.end // 1000


class Searcher:
    """Answers queries as JSON, with several handles of one index that threads take in turn."""

    def __init__(self, handles: Sequence[Index], pictures: Pictures, settings: Settings) -> None:
        self._pictures, self._settings = pictures, settings
        self.follow(handles[0])
        self._free: SimpleQueue[Index] = SimpleQueue()
        for handle in handles:
            self._free.put(handle)

    def follow(self, index: Index) -> None:
        """Take queries for the codes that the index has now."""
        self._bits, self._model_id = index.bits, index.model_id

    def validate(self, params: SearchParams) -> Query:
        """Check a request against the index and the limits of the service."""
        code = key = values = None
        if isinstance(params, SearchRequest):
            given = (params.code, params.key, params.text)
            if sum(value is not None for value in given) != 1:
                raise InputError("give either code, key or text, the one to search by")
            key = None if params.key is None else check_text(params.key, "a key")
            if params.model_id not in (None, self._model_id):
                raise HTTPException(409, CHANGED)
            code = None if params.code is None else parse_code(params.code, self._bits)
            if params.values is not None:
                if code is None:
                    raise InputError("values are the outputs whose signs are a code: give it too")
                values = check_values([params.values], 1, self._bits)[0]
        limits = self._settings
        if params.k > limits.max_results:
            raise InputError(f"k is at most {limits.max_results}, not {params.k}")
        if params.offset + params.k > limits.max_depth:
            raise InputError(f"offset + k is at most {limits.max_depth}: narrow the search")
        if params.radius is not None and params.radius > self._bits:
            raise InputError(f"the radius is at most {self._bits} bits, not {params.radius}")
        folder = params.folder or None
        make_filter(params.where, folder)  # refuses what no engine can compare
        where = json.dumps(params.where, sort_keys=True) if params.where else ""
        text = (isinstance(params, SearchRequest) and params.text) or ""
        features = _parse_features(params)
        return Query(
            params, (where, folder), code, key, values, features, text=text, model_id=self._model_id
        )

    def answer(self, queries: Sequence[Query]) -> list[bytes | Exception]:
        """The response body of each query, or its error; runs in a worker thread."""
        index = self._free.get()
        try:
            newer = any(query.model_id != index.model_id for query in queries)
            if newer or index.engine != "local":  # others do not say that codes have changed
                index.follow()
            return self._answer(index, queries)
        except IndexRecoded:
            index.follow()
            return self._answer(index, queries)
        finally:
            self._free.put(index)

    def _answer(self, index: Index, queries: Sequence[Query]) -> list[bytes | Exception]:
        started = time.perf_counter()
        answers: list[bytes | Exception] = [b""] * len(queries)
        groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        queries = _with_codes(index, queries)
        for position, query in enumerate(queries):
            if query.code is None:
                answers[position] = no_such_key(query.key or "")
                continue
            if query.key is None and query.model_id != index.model_id:
                answers[position] = recoded(index.location, index.model_id)
                continue
            try:
                queries[position] = query = _with_stored_features(index, query)
            except InputError as error:
                answers[position] = error
                continue
            page, kind = query.params, (query.values is None, query.features is None)
            groups[page.offset, page.k, query.filters, kind].append(position)
        for positions in groups.values():
            found = _nearest(index, [queries[i] for i in positions])
            seconds = round(time.perf_counter() - started, 6)
            for position, hits in zip(positions, found, strict=True):
                answers[position] = self._body(queries[position], hits, seconds, index.bits)
        return answers

    def text_body(
        self,
        query: Query,
        index: Index,
        found: list[tuple[str, float]],
        covered: int,
        started: float,
    ) -> bytes:
        """One page of what a text finds, as JSON; it has scores and no distances."""
        page = dict(found[query.params.offset : query.end])
        rows = index.get_many(list(page))
        document = {
            "query": {
                "code": None, "bits": self._bits, "key": None, "text": query.text,
                "covered": covered,
            },
            "results": [{**self._pictures.item(row), "score": page[row.key]} for row in rows],
            "more": query.end < min(len(found), self._settings.max_depth),
            "seconds": round(time.perf_counter() - started, 6),
        }  # fmt: skip
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    def _body(
        self, query: Query, hits: list[Hit] | DDHError, seconds: float, bits: int
    ) -> bytes | DDHError:
        """One page of results as JSON."""
        if isinstance(hits, DDHError):
            return hits
        k, radius = query.params.k, query.params.radius
        if radius is not None:
            hits = [hit for hit in hits if hit.distance <= radius]
        assert query.code is not None
        document = {
            "query": {
                "code": query.code.tobytes().hex(),
                "bits": bits,
                "key": query.key,
                "model_id": query.model_id,
                # the shortest digits that read back as the same float32
                "values": None if query.values is None else [float(str(v)) for v in query.values],
                "features": None
                if query.features is None
                else base64.b64encode(query.features.tobytes()).decode(),
            },
            "results": [
                {**self._pictures.item(hit), "distance": hit.distance, "score": hit.score}
                for hit in hits[:k]
            ],
            "more": len(hits) > k and query.end < self._settings.max_depth,
            "seconds": seconds,
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _with_codes(index: Index, queries: Sequence[Query]) -> list[Query]:
    """Look up the codes of the queries by key; those of unknown keys stay None."""
    keys = [query.key for query in queries if query.key is not None]
    codes = {row.key: row.code for row in index.get_many(keys)} if keys else {}
    return [
        query
        if query.key is None
        else replace(query, code=codes.get(query.key), model_id=index.model_id)
        for query in queries
    ]


def _with_stored_features(index: Index, query: Query) -> Query:
    """The features of a picture as the index stores them, so that all pages compare the same."""
    if query.features is None:
        return query
    transform = index.feature_transform
    stored = None if transform is None else transform.encode(query.features[None])[0]
    return replace(query, features=stored)


def _parse_features(params: SearchParams) -> Stored | None:
    if not isinstance(params, SearchRequest) or params.features is None:
        return None
    if params.values is None:
        raise InputError("features are those of a code with values: give all three")
    try:
        return np.frombuffer(base64.b64decode(params.features, validate=True), np.int8)
    except ValueError as error:
        raise InputError("features are base64 text, as an answer names them") from error


def _nearest(index: Index, queries: Sequence[Query]) -> Sequence[list[Hit] | DDHError]:
    """The page of each query, and one row more, which tells if there are more.

    They share page and filters, and are pictures or not; an error is the answer to all.
    """
    codes, page = np.array([query.code for query in queries]), queries[0].params
    where, folder = queries[0].filters
    candidates = FEATURE_CANDIDATES if index.header.features else CANDIDATES  # on every page
    search = partial(
        index.search,
        codes,
        where=json.loads(where) if where else None,
        folder=folder,
        candidates=candidates,
    )
    try:
        if queries[0].values is None:
            keys = [query.key for query in queries]
            return search(page.k + 1, offset=page.offset, keys=keys)
        values = np.array([query.values for query in queries])
        search = partial(search, values=values)
        if queries[0].features is not None:
            search = partial(search, features=np.array([query.features for query in queries]))
        if queries[0].end >= candidates:
            return search(page.k + 1, offset=page.offset)
        limited = any(query.params.radius is not None for query in queries)
        found = search(candidates if limited else max(queries[0].end + 1, COMPARED_HITS))
        return [_page(index, query, hits) for query, hits in zip(queries, found, strict=True)]
    except IndexRecoded:
        raise
    except DDHError as error:
        return [error] * len(queries)


def _page(index: Index, query: Query, hits: list[Hit]) -> list[Hit]:
    """The page of a picture: the same file first, and a radius leaves out any of the hits."""
    radius = query.params.radius
    if radius is not None:
        hits = [hit for hit in hits if hit.distance <= radius]
    if query.digest:
        hits = same_content_first(index, hits, query.digest)
    return hits[query.params.offset : query.end + 1]
