"""The Milvus engine: rows in a collection of a Milvus server, or of a Milvus Lite file.

Milvus has no transactions. A row is written whole or not at all, its key is the primary key, and
every write is an upsert by that key, so that a batch which is sent again after a dropped
connection never makes a second row. The order of rows is kept in a field of its own: the time of
writing, in nanoseconds. Codes are padded with zero bits to whole bytes.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymilvus import MilvusClient

from ddh._core.errors import DDHError
from ddh.codes import search, search_radius
from ddh.index import milvus_database as database
from ddh.index.base import Index
from ddh.index.features import Stored
from ddh.index.filters import Filter, make_filter
from ddh.index.header import IndexHeader, OpenOptions
from ddh.index.location import split_name, without_password
from ddh.index.rows import Codes, Columns, Hit, Row, key_digest

MOST_ANSWERS = 16384  # that Milvus gives to a query
WRITTEN_ROWS = 4096  # a request
ASKED_ROWS = 1000  # a request
PICKS = 3  # attempts at a view that nobody deletes from
SEARCHED_TOGETHER = 1 << 18  # answers a request

Found = list[tuple[int, str]]  # distance and id of each answer to one query
Near = Iterable[tuple[NDArray[np.int32], NDArray[np.int64]]]  # of each query


class MilvusIndex(Index):
    """Rows in the collection NAME; the collection NAME_settings keeps its settings."""

    engine = "milvus"

    def __init__(self, location: str, options: OpenOptions) -> None:
        address, name = split_name(location)
        self.location = without_password(location)
        self._file = None if "://" in address else Path(address).absolute()
        self._collections = database.Collections(name)
        self._last_order = 0
        if self._file is not None and not self._file.exists():
            options.new_header(self.location)  # refuses before a file is made
        self._connection = database.MilvusConnection(address, self._collections.load)
        try:
            run, collections = self._connection.run, self._collections
            self.header: IndexHeader = run(collections.header) or run(
                lambda client: collections.create(client, options.new_header(self.location))
            )
            options.check(self.location, self.header)
            if options.approximate:
                run(collections.use_lists)
            self._kind = run(collections.kind)
            # Search parameters that make an IVF index exact.
            self._exact = {"nprobe": database.LISTS} if self._kind == database.IVF else {}
        except BaseException:
            self._connection.close()
            raise

    # -- writing -----------------------------------------------------------------------------

    def _add(self, rows: Columns) -> None:
        if existing := self._existing(rows.keys):
            raise self._refuse_existing(existing)
        self._put(rows)

    def _upsert(self, rows: Columns) -> int:
        replaced = len(self._existing(rows.keys))
        self._put(rows)
        return replaced

    def _put(self, rows: Columns) -> None:
        first = max(time.time_ns(), self._last_order + 1)
        self._last_order = first + len(rows)
        for batch in _parts(database.milvus_rows(rows, first), WRITTEN_ROWS):
            self._connection.call(
                MilvusClient.upsert, collection_name=self._collections.rows, data=batch
            )

    def _present_header(self) -> IndexHeader | None:
        run, collections = self._connection.run, database.Collections(self._collections.name)
        run(collections.load)
        return run(collections.header)

    def _take_over(self, header: IndexHeader) -> None:
        self._connection.run(self._collections.load)
        self._kind, self._exact = self._connection.run(self._collections.kind), {}
        super()._take_over(header)

    def _recode(
        self, header: IndexHeader, settings: dict[str, str], encode: Callable[[Stored], Codes]
    ) -> None:
        run, fields = self._connection.run, [*database.ROW_FIELDS, "written", "features"]
        name = run(lambda client: self._collections.begin_recoding(client, header))
        walk = self._walk(make_filter(None, None), fields)
        while rows := list(islice(walk, WRITTEN_ROWS)):
            stored = np.frombuffer(b"".join(row["features"][0] for row in rows), np.int8)
            codes = encode(stored.reshape(len(rows), -1))
            data = [
                {**row, "code": bytes(code), "features": row["features"][0]}
                for row, code in zip(rows, codes, strict=True)
            ]
            self._connection.call(MilvusClient.upsert, collection_name=name, data=data)
        run(lambda client: self._collections.end_recoding(client, name, settings))
        self._kind, self._exact = run(self._collections.kind), {}

    def _delete(self, keys: list[str]) -> int:
        existing = self._existing(keys)
        for part in _parts([key_digest(key) for key in existing], ASKED_ROWS):
            self._connection.call(
                MilvusClient.delete, collection_name=self._collections.rows, ids=part
            )
        return len(existing)

    def _existing(self, keys: Sequence[str]) -> list[str]:
        return [found["key"] for found in self._asked([key_digest(key) for key in keys], ["key"])]

    def _asked(self, ids: Sequence[str], fields: list[str]) -> Iterator[dict[str, Any]]:
        for part in _parts(ids, ASKED_ROWS):
            yield from self._query(f"id in {json.dumps(part)}", fields)

    def _query(self, condition: str, fields: list[str]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._connection.call(
            MilvusClient.query,
            collection_name=self._collections.rows,
            filter=condition,
            output_fields=fields,
        )
        return rows

    # -- searching ---------------------------------------------------------------------------

    def _search(
        self, queries: Codes, k: int, offset: int, only: Filter, approximate: bool
    ) -> list[list[Hit]]:
        depth = offset + k
        if approximate and self._kind == database.IVF and depth <= MOST_ANSWERS:
            probed = {"nprobe": database.PROBED_LISTS}
            found = list(self._ask(queries, depth, only, probed))
        else:
            found = self._nearest(queries, depth, only)
        return self._hits([answer[offset:] for answer in found])

    def _nearest(self, queries: Codes, k: int, only: Filter) -> list[Found]:
        """The k nearest rows of each query, in the order of the tie rule."""
        # Milvus breaks ties as it likes. So more than k answers are asked for, until the last one
        # lies further than the k-th and all rows that share its distance are known to be there.
        answers: list[Found] = [[] for _ in queries]
        todo = list(range(len(queries)))
        for limit in sorted({min(2 * k + 14, MOST_ANSWERS), MOST_ANSWERS}):
            if not todo or limit <= k:
                continue
            tied = []
            asked = self._ask(queries[todo], limit, only, self._exact)
            for query, found in zip(todo, asked, strict=True):
                answers[query] = found[:k]
                if len(found) == limit and found[-1][0] == found[k - 1][0]:
                    tied.append(query)
            todo = tied
        self._scan(
            answers, todo, only, lambda codes: zip(*search(queries[todo], codes, k), strict=True)
        )
        return answers

    def _ask(
        self, queries: Codes, limit: int, only: Filter, params: dict[str, Any]
    ) -> Iterator[Found]:
        """What Milvus finds for each query, by distance and then in the order written."""
        for part in _parts(
            [query.tobytes() for query in queries], max(1, SEARCHED_TOGETHER // limit)
        ):
            found = self._connection.call(
                MilvusClient.search,
                collection_name=self._collections.rows,
                data=part,
                limit=limit,
                filter=database.expression(only),
                anns_field="code",
                output_fields=["written"],
                search_params={"metric_type": "HAMMING", "params": params},
            )
            for hits in found:
                ordered = sorted((int(hit.distance), hit.entity["written"], hit.id) for hit in hits)
                yield [(distance, row) for distance, _, row in ordered]

    def _search_radius(self, queries: Codes, radius: int, only: Filter) -> list[list[Hit]]:
        params = {"radius": radius + 1, **self._exact}
        answers = list(self._ask(queries, MOST_ANSWERS, only, params))
        cut = [query for query, found in enumerate(answers) if len(found) == MOST_ANSWERS]
        self._scan(answers, cut, only, lambda codes: search_radius(queries[cut], codes, radius))
        return self._hits(answers)

    def _scan(
        self, answers: list[Found], cut: list[int], only: Filter, find: Callable[[Codes], Near]
    ) -> None:
        """Answer the queries `cut` here, with all codes fetched: Milvus has no room for them."""
        if not cut:
            return
        ids, codes = self._all_codes(only)
        for query, (distances, positions) in zip(cut, find(codes), strict=True):
            rows = [ids[position] for position in positions.tolist()]
            answers[query] = list(zip(distances.tolist(), rows, strict=True))

    def _hits(self, answers: list[Found]) -> list[list[Hit]]:
        rows = self._rows(list({row: None for answer in answers for _, row in answer}))
        # what is not in `rows` has been deleted since
        return [[rows[row].at(far) for far, row in answer if row in rows] for answer in answers]

    # -- reading rows ------------------------------------------------------------------------

    def _walk(self, only: Filter, fields: list[str]) -> Iterator[dict[str, Any]]:
        walk = self._connection.call(
            MilvusClient.query_iterator,
            collection_name=self._collections.rows,
            batch_size=WRITTEN_ROWS,
            filter=database.expression(only),
            output_fields=fields,
        )
        try:
            while page := walk.next():
                yield from page
        finally:
            walk.close()

    def _all_codes(self, only: Filter) -> tuple[list[str], Codes]:
        """Ids and codes of all rows in the order in which they were written."""
        found = [
            (row["written"], row["id"], row["code"][0])
            for row in self._walk(only, ["id", "written", "code"])
        ]
        found.sort()
        codes = np.frombuffer(b"".join(code for *_, code in found), np.uint8)
        return [row for _, row, _ in found], codes.reshape(-1, self.code_bytes)

    def _pick(self, only: Filter, choose: Callable[[Codes], NDArray[np.int64]]) -> list[Row]:
        for _ in range(PICKS):
            ids, codes = self._all_codes(only)
            chosen = [ids[position] for position in choose(codes).tolist()]
            rows = self._in_order(chosen)
            if len(rows) == len(chosen):
                return rows
        raise DDHError(f"rows of {self.location} are being deleted while they are read: try again")

    def _in_order(self, ids: list[str]) -> list[Row]:
        """The rows of these ids in their order, those left out that have been deleted."""
        rows = self._rows(ids)
        return [rows[row] for row in ids if row in rows]

    def _rows(self, ids: list[str]) -> dict[str, Row]:
        return {row["id"]: database.read_row(row) for row in self._asked(ids, database.ROW_FIELDS)}

    def _get(self, keys: list[str]) -> list[Row]:
        return list(self._rows([key_digest(key) for key in keys]).values())

    def _features(self, keys: list[str]) -> Iterator[tuple[str, bytes]]:
        for row in self._asked([key_digest(key) for key in keys], ["key", "features"]):
            yield row["key"], row["features"][0]

    def _each_feature(self) -> Iterator[bytes]:
        for row in self._walk(make_filter(None, None), ["features"]):
            yield row["features"][0]

    def _items(self, only: Filter, after: str | None) -> Iterator[Row]:
        order = sorted((row["written"], row["id"]) for row in self._walk(only, ["id", "written"]))
        if after is not None:
            cut = [row["written"] for row in self._asked([key_digest(after)], ["written"])]
            order = [(written, row) for written, row in order if cut and written > cut[0]]
        for part in _parts([row for _, row in order], ASKED_ROWS):
            yield from self._in_order(part)

    def __len__(self) -> int:
        return int(self._query("", ["count(*)"])[0]["count(*)"])

    # -- the index itself --------------------------------------------------------------------

    def settings(self) -> dict[str, str]:
        return self._connection.run(self._collections.settings)

    def set_setting(self, **settings: str) -> None:
        self._connection.run(lambda client: self._collections.set_settings(client, settings))

    def _storage(self) -> tuple[int, int | None, dict[str, str]]:
        file = self._file
        size = file.stat().st_size if file is not None and file.is_file() else None
        return 0, size, {"vector index": self._kind}

    def compact(self) -> None:
        """Ask the server to merge its segments; Milvus Lite has nothing to merge."""
        self._connection.run(self._collections.compact)

    def close(self) -> None:
        self._connection.close()


def _parts(values: Sequence[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(values), size):
        yield list(values[start : start + size])
