"""The PostgreSQL engine: rows in tables of an ordinary database, distances taken by the server.

With the pgvector extension distances are `<~>` and an HNSW index may be kept; without it they
are `bit_count(code # query)`, exact only. Both use PostgreSQL's own `bit(n)`. Each write is one
transaction that also records a token, so that a write whose connection breaks, even while it is
being committed, is done once and only once.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.sql import SQL, Composable, Composed, Literal

from ddh._core.errors import DDHError
from ddh.index.base import Index
from ddh.index.features import Stored
from ddh.index.filters import Filter
from ddh.index.header import IndexHeader, OpenOptions
from ddh.index.location import split_name, without_password
from ddh.index.postgres_database import Database, PostgresConnection, Tables, packed_bits
from ddh.index.rows import Codes, Columns, Hit, Row, bit_strings, read_stamp, recoded

FETCHED_ROWS = 4096
MAX_EF_SEARCH = 1000  # what pgvector allows
HNSW = "CREATE INDEX IF NOT EXISTS {hnsw} ON {rows} USING hnsw (code bit_hamming_ops)"


class PostgresIndex(Index):
    """Rows in `NAME_rows`; other tables of that name keep what the index is."""

    engine = "postgresql"

    def __init__(self, location: str, options: OpenOptions) -> None:
        address, name = split_name(location)
        self.location = without_password(location)
        self._tables = Tables(name)
        self._connection = PostgresConnection(address)
        try:
            found = self._connection.run(self._tables.header)
            self.header = found or self._create(options)
            options.check(self.location, self.header)
            self._vector: bool = self._one(SQL("SELECT to_regoperator('<~>(bit,bit)') IS NOT NULL"))
            if options.approximate:
                self._keep_hnsw()
            self._hnsw: bool = self._one(
                SQL("SELECT to_regclass(%s) IS NOT NULL"), (self._tables.hnsw_name,)
            )
        except BaseException:
            self._connection.close()
            raise

    def _create(self, options: OpenOptions) -> IndexHeader:
        header = options.new_header(self.location)
        with suppress(  # the server may not have pgvector, or not for this user
            psycopg.errors.FeatureNotSupported,
            psycopg.errors.UndefinedFile,
            psycopg.errors.InsufficientPrivilege,
            psycopg.errors.UniqueViolation,
        ):
            extension = SQL("CREATE EXTENSION IF NOT EXISTS vector")
            self._connection.run_alone(lambda db: db.execute(extension))
        return self._connection.run(lambda db: self._tables.create(db, header))

    def _keep_hnsw(self) -> None:
        if not self._vector:
            raise DDHError(
                f"{self.location} has no pgvector extension, so it cannot search approximately: "
                "install pgvector 0.7 or newer on the server, or open without approximate"
            )
        self._connection.run(lambda db: db.execute(self._tables.sql(HNSW)))

    # -- writing -----------------------------------------------------------------------------

    def _write(self, work: Callable[[Database], int], *, alone: bool = False) -> int:
        """Do `work` once: a repeat after a broken connection first looks for its own token."""
        # The token goes in first, so that a repeat waits for a commit that is still under way.
        sql, token = self._tables.sql, uuid4()
        lock = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"

        def attempt(db: Database) -> int:
            claim = sql("INSERT INTO {claims} (token) VALUES (%s) ON CONFLICT DO NOTHING")
            if not db.execute(claim, (token,)).rowcount:
                claimed = sql("SELECT result FROM {claims} WHERE token = %s")
                (result,) = db.execute(claimed, (token,)).fetchone() or (0,)
                return int(result)
            db.execute(sql(f"SELECT {lock}({{lock}})"))
            self._refuse_other_codes(db)
            result = work(db)
            db.execute(sql("UPDATE {claims} SET result = %s WHERE token = %s"), (result, token))
            return result

        return self._connection.run(attempt)

    def _refuse_other_codes(self, db: Database) -> None:
        """Somebody may have given the rows codes of another model since the index was opened."""
        now = self._tables.header(db)
        if now is not None and (now.bits, now.model_id) != (self.header.bits, self.header.model_id):
            raise recoded(self.location, now.model_id)

    def _add(self, rows: Columns) -> None:
        try:
            self._write(lambda db: self._copy(db, "rows", rows))
        except psycopg.errors.UniqueViolation as error:
            raise self._refuse_existing([row.key for row in self._get(rows.keys)]) from error

    @property
    def _written(self) -> str:
        """The columns of a new row, as `Tables.sql` takes them."""
        return "{columns}, features" if self.header.features else "{columns}"

    def _upsert(self, rows: Columns) -> int:
        written = self._written
        make, replace, insert = map(
            self._tables.sql,
            (
                "CREATE TEMPORARY TABLE {staging} "
                "(LIKE {rows} INCLUDING IDENTITY INCLUDING DEFAULTS) ON COMMIT DROP",
                "DELETE FROM {rows} WHERE key IN (SELECT key FROM {staging})",
                f"INSERT INTO {{rows}} ({written}) SELECT {written} FROM {{staging}} ORDER BY id",
            ),
        )

        def work(db: Database) -> int:
            db.execute(make)
            self._copy(db, "staging", rows)
            replaced = db.execute(replace).rowcount
            db.execute(insert)
            return replaced

        return self._write(work, alone=True)

    def _delete(self, keys: list[str]) -> int:
        statement = self._tables.sql("DELETE FROM {rows} WHERE key = ANY(%s)")
        return self._write(lambda db: db.execute(statement, (keys,)).rowcount)

    def _copy(self, db: Database, table: str, rows: Columns) -> int:
        statement = self._tables.sql(f"COPY {{{table}}} ({self._written}) FROM STDIN")
        whole = rows.rows(bit_strings(rows.codes, self.bits))
        features = (
            repeat(()) if rows.features is None else ((row.tobytes(),) for row in rows.features)
        )
        with db.cursor() as cursor, cursor.copy(statement) as copy:
            for (key, code, path, stamp, metadata), more in zip(whole, features, strict=False):
                stamps = stamp or (None,) * 3
                copy.write_row((key, code, path, *stamps, metadata or "{}", *more))
        return len(rows)

    def _present_header(self) -> IndexHeader | None:
        return self._connection.run(self._tables.header)

    def _recode(
        self, header: IndexHeader, settings: dict[str, str], encode: Callable[[Stored], Codes]
    ) -> None:
        sql, of_code = self._tables.sql, {"bits": Literal(header.bits)}
        every = sql("SELECT id, features FROM {rows} ORDER BY id")

        def work(db: Database) -> int:
            db.execute(sql("LOCK TABLE {rows} IN ACCESS EXCLUSIVE MODE"))
            new = "CREATE TEMPORARY TABLE {staging} (id bigint, code bit({bits})) ON COMMIT DROP"
            db.execute(sql(new, **of_code))
            with db.cursor("recoded", binary=True) as cursor:
                cursor.execute(every)
                while page := cursor.fetchmany(FETCHED_ROWS):
                    stored = np.frombuffer(b"".join(value for _, value in page), np.int8)
                    codes = bit_strings(encode(stored.reshape(len(page), -1)), header.bits)
                    with (
                        db.cursor() as target,
                        target.copy(sql("COPY {staging} (id, code) FROM STDIN")) as copy,
                    ):
                        for (row_id, _), code in zip(page, codes, strict=True):
                            copy.write_row((row_id, code))
            for statement in (
                "ALTER TABLE {rows} DROP COLUMN code",  # and HNSW with it
                "ALTER TABLE {rows} ADD COLUMN code bit({bits})",
                "UPDATE {rows} SET code = {staging}.code FROM {staging} "
                "WHERE {rows}.id = {staging}.id",
                "ALTER TABLE {rows} ALTER COLUMN code SET NOT NULL",
                *([HNSW] if self._hnsw else []),
            ):
                db.execute(sql(statement, **of_code))
            for table, values in (("facts", header.as_text()), ("settings", settings)):
                db.cursor().executemany(self._set(table), list(values.items()))
            return 0

        self._write(work, alone=True)

    # -- searching ---------------------------------------------------------------------------

    def _search(
        self, queries: Codes, k: int, offset: int, only: Filter, approximate: bool
    ) -> list[list[Hit]]:
        by_index = approximate and self._hnsw
        order = SQL("code <~> query::bit({n})" if by_index else "distance, id")
        nearest = SQL("true ORDER BY {} LIMIT {} OFFSET {}").format(
            order.format(n=Literal(self.bits)), Literal(k), Literal(offset)
        )
        plan = _plan(offset + k if by_index else None)
        return self._ask(queries, only, nearest, SQL("true"), plan)

    def _search_radius(self, queries: Codes, radius: int, only: Filter) -> list[list[Hit]]:
        within = SQL("distance <= {}").format(Literal(radius))
        return self._ask(queries, only, SQL("true"), within, ())

    def _ask(
        self,
        queries: Codes,
        only: Filter,
        inner: Composable,
        outer: Composable,
        plan: Sequence[str],
    ) -> list[list[Hit]]:
        """Answers by distance: `inner` ends the search for one query, `outer` restricts it."""
        condition, values = _condition(only)
        by_vector, by_count = "code <~> query::bit({n})", "bit_count(code # query::bit({n}))"
        statement = self._tables.sql(
            "SELECT n, key, distance, path, metadata, code "
            "FROM unnest(%(queries)s::text[]) WITH ORDINALITY AS asked (query, n), "
            "LATERAL (SELECT id, key, path, metadata, code, ({distance})::int AS distance "
            "FROM {rows} WHERE {condition} AND {inner}) AS answer "
            "WHERE {outer} ORDER BY n, distance, id",
            distance=SQL(by_vector if self._vector else by_count).format(n=Literal(self.bits)),
            condition=condition,
            inner=inner,
            outer=outer,
        )
        values["queries"] = bit_strings(queries, self.bits)

        def work(db: Database) -> list[list[Hit]]:
            self._refuse_other_codes(db)
            for setting in plan:
                db.execute(setting)
            answers: list[list[Hit]] = [[] for _ in queries]
            found = db.cursor(binary=True).execute(statement, values)
            for n, key, distance, path, metadata, bits in found:
                code = packed_bits([bits], self.bits)[0]
                answers[n - 1].append(Hit(key, distance, path, metadata, code))
            return answers

        return self._connection.run(work)

    # -- reading rows ------------------------------------------------------------------------

    def _pick(self, only: Filter, choose: Callable[[Codes], NDArray[np.int64]]) -> list[Row]:
        condition, values = _condition(only)
        sql = self._tables.sql
        all_codes = sql("SELECT id, code FROM {rows} WHERE {only} ORDER BY id", only=condition)
        some_rows = sql("SELECT id, {columns} FROM {rows} WHERE id = ANY(%s)")

        def work(db: Database) -> list[Row]:
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
        statement = self._tables.sql("SELECT {columns} FROM {rows} WHERE key = ANY(%s)")
        return [self._row(columns) for columns in self._connection.query(statement, (keys,))]

    def _features(self, keys: list[str]) -> list[tuple[str, bytes]]:
        statement = self._tables.sql(
            "SELECT key, features FROM {rows} WHERE key = ANY(%s) AND features IS NOT NULL"
        )
        found = self._connection.query(statement, (keys,))
        return [(key, bytes(stored)) for key, stored in found]

    def _each_feature(self) -> Iterator[bytes]:
        statement = self._tables.sql("SELECT features FROM {rows} ORDER BY id")
        with self._connection.another() as db, db.cursor("features", binary=True) as cursor:
            cursor.itersize = FETCHED_ROWS
            yield from (bytes(stored) for (stored,) in cursor.execute(statement))

    def _row(self, columns: Any) -> Row:
        key, code, path, mtime_ns, size, digest, metadata = columns
        packed = packed_bits([code], self.bits)[0]
        return Row(key, packed, path, read_stamp(mtime_ns, size, digest), metadata)

    def _items(self, only: Filter, after: str | None) -> Iterator[Row]:
        condition, values = _condition(only)
        if after is not None:
            later = "{only} AND id > (SELECT id FROM {rows} WHERE key = %(after)s)"
            condition = self._tables.sql(later, only=condition)
            values["after"] = after
        statement = self._tables.sql(
            "SELECT {columns} FROM {rows} WHERE {only} ORDER BY id", only=condition
        )
        with self._connection.another() as db, db.cursor("items", binary=True) as cursor:
            cursor.itersize = FETCHED_ROWS
            for columns in cursor.execute(statement, values):
                yield self._row(columns)

    def __len__(self) -> int:
        return int(self._one(self._tables.sql("SELECT count(*) FROM {rows}")))

    def _one(self, statement: SQL | Composed, values: Sequence[Any] = ()) -> Any:
        return next((value for (value,) in self._connection.query(statement, values)), None)

    # -- the index itself --------------------------------------------------------------------

    def settings(self) -> dict[str, str]:
        statement = self._tables.sql("SELECT name, value FROM {settings}")
        return dict(self._connection.query(statement))

    def set_setting(self, **settings: str) -> None:
        statement, values = self._set("settings"), list(settings.items())
        self._connection.run(lambda db: db.cursor().executemany(statement, values))

    def _set(self, table: str) -> Composed:
        """The statement that sets a name's value in one of the tables of both."""
        return self._tables.sql(
            f"INSERT INTO {{{table}}} VALUES (%s, %s) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )

    def _storage(self) -> tuple[int, int | None, dict[str, str]]:
        rows = (self._tables.rows_name,)
        dead = SQL("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = to_regclass(%s)")
        size = SQL("SELECT pg_total_relation_size(to_regclass(%s))")
        details = {
            "server": f"PostgreSQL {self._one(SQL('SHOW server_version'))}",
            "distance": "pgvector <~>" if self._vector else "bit_count",
            "approximate": "HNSW" if self._hnsw else "no",
        }
        return self._one(dead, rows) or 0, self._one(size, rows), details

    def compact(self) -> None:
        """Make the room of deleted rows free again, refresh the planner's figures."""
        old = self._tables.sql("DELETE FROM {claims} WHERE written < now() - interval '1 day'")
        vacuum = self._tables.sql("VACUUM (ANALYZE) {rows}")
        self._connection.run(lambda db: db.execute(old))
        self._connection.run_alone(lambda db: db.execute(vacuum))

    def close(self) -> None:
        self._connection.close()


def _plan(nearest_by_index: int | None) -> Sequence[str]:
    """Keep the planner to the exact scan, or widen the HNSW search to what is asked for."""
    if nearest_by_index is None:
        return ("SET LOCAL enable_indexscan = off",)  # HNSW would answer approximately
    width = min(MAX_EF_SEARCH, max(100, 2 * nearest_by_index))
    return (
        "SET LOCAL enable_seqscan = off",  # small tables would be scanned all the same
        f"SELECT set_config('hnsw.ef_search', '{width}', true)",
        "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true) "
        "WHERE current_setting('hnsw.iterative_scan', true) IS NOT NULL",
    )


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
