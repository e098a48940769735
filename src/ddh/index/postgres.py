"""The PostgreSQL engine: rows in tables of an ordinary database, distances taken by the server.

With the pgvector extension distances are `<~>` and an HNSW index may be kept; without it they
are `bit_count(code # query)`, exact only. Both use PostgreSQL's own `bit(n)`. Each write is one
transaction that also records a token, so that a write whose connection breaks, even while it is
being committed, is done once and only once.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.sql import SQL, Composable, Composed, Literal

from ddh._core.errors import DDHError
from ddh.index.base import Index, IndexHeader, OpenOptions
from ddh.index.filters import Filter, Scalar, make_filter
from ddh.index.location import split_name, without_password
from ddh.index.postgres_connection import Connection, bit_strings, packed_bits
from ddh.index.postgres_schema import Tables, create_schema, read_header
from ddh.index.rows import Codes, Columns, Hit, IndexInfo, Row, read_stamp

FETCHED_ROWS = 4096
MAX_EF_SEARCH = 1000  # what pgvector allows

_COLUMNS = SQL("key, code, path, mtime_ns, size, digest, metadata")


class PostgresIndex(Index):
    """Rows in `NAME_rows`; other tables of that name keep what the index is."""

    engine = "postgresql"

    def __init__(self, location: str, options: OpenOptions) -> None:
        address, name = split_name(location)
        self.location = without_password(location)
        self._tables = Tables(name)
        self._connection = Connection(address)
        try:
            self.header = self._connection.run(self._read_header) or self._create(options)
            options.check(self.location, self.header)
            self._vector = self._connection.run(self._has_vector)
            if options.approximate:
                self._keep_hnsw()
            self._hnsw: bool = self._one(
                SQL("SELECT to_regclass(%s) IS NOT NULL"), (self._tables.hnsw_name,)
            )
        except BaseException:
            self._connection.close()
            raise

    def _read_header(self, db: psycopg.Connection) -> IndexHeader | None:
        return read_header(db, self._tables)

    def _create(self, options: OpenOptions) -> IndexHeader:
        header = options.new_header(self.location)
        self._connection.run_alone(self._try_extension)
        return self._connection.run(lambda db: create_schema(db, self._tables, header))

    @staticmethod
    def _try_extension(db: psycopg.Connection) -> None:
        """Install pgvector where the server has it and this user may; do without it elsewhere."""
        try:
            db.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile):
            pass
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UniqueViolation):
            pass

    @staticmethod
    def _has_vector(db: psycopg.Connection) -> bool:
        found = db.execute("SELECT to_regoperator('<~>(bit,bit)') IS NOT NULL").fetchone()
        return bool(found and found[0])

    def _keep_hnsw(self) -> None:
        if not self._vector:
            raise DDHError(
                f"{self.location} has no pgvector extension, so it cannot search approximately: "
                "install pgvector 0.7 or newer on the server, or open without approximate"
            )
        self._connection.run(lambda db: db.execute(self._tables.hnsw_index))

    # -- writing -----------------------------------------------------------------------------

    def _write(self, work: Callable[[psycopg.Connection], int], *, alone: bool = False) -> int:
        """Do `work` once: a repeat after a broken connection first looks for its own token.

        The token goes in first, so that a repeat waits for a commit that is still under way.
        Upserts run `alone`; adds and deletes run beside each other.
        """
        tables, token = self._tables, uuid4()

        def attempt(db: psycopg.Connection) -> int:
            fresh = db.execute(tables.claim, (token,)).rowcount
            if not fresh:
                (result,) = db.execute(tables.claimed, (token,)).fetchone() or (0,)
                return int(result)
            db.execute(tables.lock_alone if alone else tables.lock_shared)
            result = work(db)
            db.execute(tables.finish, (result, token))
            return result

        return self._connection.run(attempt)

    def _add(self, rows: Columns) -> None:
        def work(db: psycopg.Connection) -> int:
            self._copy(db, self._tables.rows, rows)
            return len(rows)

        try:
            self._write(work)
        except psycopg.errors.UniqueViolation as error:
            raise self._refuse_existing([row.key for row in self._get(rows.keys)]) from error

    def _upsert(self, rows: Columns) -> int:
        def work(db: psycopg.Connection) -> int:
            db.execute(self._tables.make_staging)
            self._copy(db, self._tables.staging, rows)
            replaced = db.execute(self._tables.delete_staged).rowcount
            db.execute(self._tables.insert_staged)
            return replaced

        return self._write(work, alone=True)

    def _delete(self, keys: list[str]) -> int:
        statement = SQL("DELETE FROM {} WHERE key = ANY(%s)").format(self._tables.rows)
        return self._write(lambda db: db.execute(statement, (keys,)).rowcount)

    def _copy(self, db: psycopg.Connection, table: Composable, rows: Columns) -> None:
        statement = SQL("COPY {} ({}) FROM STDIN").format(table, _COLUMNS)
        codes = bit_strings(rows.codes, self.bits)
        with db.cursor() as cursor, cursor.copy(statement) as copy:
            for key, code, path, stamp, metadata in zip(
                rows.keys, codes, rows.paths, rows.stamps, rows.metadata, strict=True
            ):
                stamp_columns = stamp or (None, None, None)
                copy.write_row((key, code, path, *stamp_columns, metadata or "{}"))

    # -- searching ---------------------------------------------------------------------------

    def _distance(self) -> SQL:
        return SQL(
            "(code <~> query::bit({n}))::int"
            if self._vector
            else "bit_count(code # query::bit({n}))::int"
        )

    def _search(self, queries: Codes, k: int, only: Filter, approximate: bool) -> list[list[Hit]]:
        condition, values = _condition(only)
        by_index = approximate and self._hnsw
        inner = SQL(
            "SELECT id, key, path, metadata, code, {distance} AS distance FROM {rows} "
            "WHERE {condition} ORDER BY {order} LIMIT {k}"
        ).format(
            distance=self._distance().format(n=Literal(self.bits)),
            rows=self._tables.rows,
            condition=condition,
            order=SQL("code <~> query::bit({})").format(Literal(self.bits))
            if by_index
            else SQL("distance, id"),
            k=Literal(k),
        )
        statement = SQL(
            "SELECT n, key, distance, path, metadata, code "
            "FROM unnest(%(queries)s::text[]) WITH ORDINALITY AS asked (query, n), "
            "LATERAL ({}) AS answer ORDER BY n, distance, id"
        ).format(inner)

        def work(db: psycopg.Connection) -> list[list[Hit]]:
            _plan(db, k if by_index else None)
            return self._answers(db, statement, queries, values)

        return self._connection.run(work)

    def _search_radius(self, queries: Codes, radius: int, only: Filter) -> list[list[Hit]]:
        condition, values = _condition(only)
        statement = SQL(
            "SELECT n, key, distance, path, metadata, code "
            "FROM unnest(%(queries)s::text[]) WITH ORDINALITY AS asked (query, n), "
            "LATERAL (SELECT id, key, path, metadata, code, {distance} AS distance FROM {rows} "
            "WHERE {condition}) AS answer WHERE distance <= {radius} ORDER BY n, distance, id"
        ).format(
            distance=self._distance().format(n=Literal(self.bits)),
            rows=self._tables.rows,
            condition=condition,
            radius=Literal(radius),
        )
        return self._connection.run(lambda db: self._answers(db, statement, queries, values))

    def _answers(
        self, db: psycopg.Connection, statement: Composed, queries: Codes, values: dict[str, Any]
    ) -> list[list[Hit]]:
        asked = {"queries": bit_strings(queries, self.bits), **values}
        answers: list[list[Hit]] = [[] for _ in queries]
        for n, key, distance, path, metadata, bits in db.cursor(binary=True).execute(
            statement, asked
        ):
            code = packed_bits([bits], self.bits)[0]
            answers[n - 1].append(Hit(key, distance, path, metadata, code))
        return answers

    # -- reading rows ------------------------------------------------------------------------

    def _pick(self, only: Filter, choose: Callable[[Codes], NDArray[np.int64]]) -> list[Row]:
        condition, values = _condition(only)
        all_codes = SQL("SELECT id, code FROM {} WHERE {} ORDER BY id").format(
            self._tables.rows, condition
        )
        some_rows = SQL("SELECT id, {} FROM {} WHERE id = ANY(%s)").format(
            _COLUMNS, self._tables.rows
        )

        def work(db: psycopg.Connection) -> list[Row]:
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            ids, parts = [], [np.empty((0, self.code_bytes), np.uint8)]
            with db.cursor("codes", binary=True) as cursor:
                cursor.execute(all_codes, values)
                while page := cursor.fetchmany(FETCHED_ROWS):
                    ids += [row_id for row_id, _ in page]
                    parts.append(packed_bits([code for _, code in page], self.bits))
            chosen = [ids[position] for position in choose(np.concatenate(parts)).tolist()]
            found = db.cursor(binary=True).execute(some_rows, (chosen,))
            rows = {row_id: self._row(columns) for row_id, *columns in found}
            return [rows[row_id] for row_id in chosen]

        return self._connection.run(work)

    def _get(self, keys: list[str]) -> list[Row]:
        statement = SQL("SELECT {} FROM {} WHERE key = ANY(%s)").format(_COLUMNS, self._tables.rows)

        def work(db: psycopg.Connection) -> list[Row]:
            return [self._row(row) for row in db.cursor(binary=True).execute(statement, (keys,))]

        return self._connection.run(work)

    def _row(self, columns: Any) -> Row:
        key, code, path, mtime_ns, size, digest, metadata = columns
        packed = packed_bits([code], self.bits)[0]
        return Row(key, packed, path, read_stamp(mtime_ns, size, digest), metadata)

    def items(
        self,
        *,
        where: Mapping[str, Scalar] | None = None,
        folder: str | None = None,
        after: str | None = None,
    ) -> Iterator[Row]:
        condition, values = _condition(make_filter(where, folder))
        if after is not None:
            later = SQL("{} AND id > (SELECT id FROM {} WHERE key = %(after)s)")
            condition = later.format(condition, self._tables.rows)
            values["after"] = after
        statement = SQL("SELECT {} FROM {} WHERE {} ORDER BY id").format(
            _COLUMNS, self._tables.rows, condition
        )
        with self._connection.another() as db, db.cursor("items", binary=True) as cursor:
            cursor.itersize = FETCHED_ROWS
            for columns in cursor.execute(statement, values):
                yield self._row(columns)

    def __len__(self) -> int:
        return int(self._one(SQL("SELECT count(*) FROM {}").format(self._tables.rows)))

    def _one(self, statement: SQL | Composed, values: tuple[Any, ...] = ()) -> Any:
        def work(db: psycopg.Connection) -> Any:
            found = db.execute(statement, values).fetchone()
            return found[0] if found else None

        return self._connection.run(work)

    # -- the index itself --------------------------------------------------------------------

    def settings(self) -> dict[str, str]:
        statement = SQL("SELECT name, value FROM {}").format(self._tables.settings)
        return self._connection.run(lambda db: dict(db.execute(statement).fetchall()))

    def set_setting(self, **settings: str) -> None:
        statement = SQL(
            "INSERT INTO {} VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        ).format(self._tables.settings)

        def work(db: psycopg.Connection) -> None:
            with db.cursor() as cursor:
                cursor.executemany(statement, list(settings.items()))

        self._connection.run(work)

    def info(self) -> IndexInfo:
        rows = self._tables.rows_name
        return IndexInfo(
            engine=self.engine,
            location=self.location,
            bits=self.bits,
            bit_order=self.header.bit_order,
            model_id=self.model_id,
            created=self.header.created,
            rows=len(self),
            deleted=self._one(
                SQL("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = to_regclass(%s)"),
                (rows,),
            )
            or 0,
            disk_bytes=self._one(SQL("SELECT pg_total_relation_size(to_regclass(%s))"), (rows,)),
            details={
                "server": f"PostgreSQL {self._one(SQL('SHOW server_version'))}",
                "distance": "pgvector <~>" if self._vector else "bit_count",
                "approximate": "HNSW" if self._hnsw else "no",
            },
            settings=self.settings(),
        )

    def compact(self) -> None:
        """Make the room of deleted rows free again, refresh the planner's figures."""
        self._connection.run(lambda db: db.execute(self._tables.forget_old_claims))
        statement = SQL("VACUUM (ANALYZE) {}").format(self._tables.rows)
        self._connection.run_alone(lambda db: db.execute(statement))

    def close(self) -> None:
        self._connection.close()


def _plan(db: psycopg.Connection, nearest_by_index: int | None) -> None:
    """Keep the planner to the exact scan, or widen the HNSW search to what is asked for."""
    if nearest_by_index is None:
        db.execute("SET LOCAL enable_indexscan = off")  # HNSW would answer approximately
        return
    db.execute("SET LOCAL enable_seqscan = off")  # small tables would be scanned all the same
    width = min(MAX_EF_SEARCH, max(100, 2 * nearest_by_index))
    db.execute("SELECT set_config('hnsw.ef_search', %s, true)", (str(width),))
    if db.execute("SELECT current_setting('hnsw.iterative_scan', true)").fetchone() != (None,):
        db.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")


def _condition(only: Filter) -> tuple[Composable, dict[str, Any]]:
    """The filter in SQL, with the values that it names."""
    parts: list[Composable] = [SQL("true")]
    values: dict[str, Any] = {}
    if only.equal:
        parts.append(SQL("metadata @> %(equal)s::jsonb"))
        values["equal"] = json.dumps(dict(only.equal), ensure_ascii=False)
    if only.folder:
        parts.append(SQL("path >= %(first)s AND path < %(behind)s"))
        values["first"], values["behind"] = only.folder
    return SQL(" AND ").join(parts), values
