"""A PostgreSQL connection, the tables of an index, and codes as `bit(n)` values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from ddh.codes import code_bytes
from ddh.index.connection import Connection, Result
from ddh.index.header import IndexHeader
from ddh.index.rows import Codes

Database = psycopg.Connection[Any]

COLUMNS = SQL("key, code, path, mtime_ns, size, digest, metadata")


class PostgresConnection(Connection[Database]):
    """Work on it runs in transactions."""

    server, failure = "PostgreSQL", psycopg.OperationalError

    def _connect(self) -> Database:
        return psycopg.connect(self._address, autocommit=True, application_name="ddh")

    def run(self, work: Callable[[Database], Result]) -> Result:
        """`work` in one transaction, once more from its beginning if the connection breaks."""

        def attempt(db: Database) -> Result:
            with db.transaction():
                return work(db)

        return super().run(attempt)

    def query(self, statement: SQL | Composed, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that a statement gives, `bit(n)` values in binary form."""
        return self.run(lambda db: db.cursor(binary=True).execute(statement, values).fetchall())

    def run_alone(self, work: Callable[[Database], object]) -> None:
        """`work` outside of a transaction, for statements that require it."""
        super().run(work)

    def _is_dropped(self, error: Exception) -> bool:
        """A broken connection, or a transaction that the server gave up and asks to repeat."""
        if isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
            return True
        broken = self._handle.closed or self._handle.broken
        return broken and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)

    @contextmanager
    def another(self) -> Iterator[Database]:
        """A second connection in one read transaction, for a long walk through the rows."""
        self._check_open()
        with self._connect() as db, db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield db


class Tables:
    """The names of one index, to be filled into statements."""

    def __init__(self, name: str) -> None:
        self.facts_name = f"{name}_facts"
        self.rows_name, self.hnsw_name = f'"{name}_rows"', f'"{name}_rows_hnsw"'
        self.names: Mapping[str, Composable] = {
            "rows": Identifier(f"{name}_rows"),
            "facts": Identifier(self.facts_name),
            "settings": Identifier(f"{name}_settings"),
            "claims": Identifier(f"{name}_writes"),
            "staging": Identifier("ddh_staging"),
            "path_index": Identifier(f"{name}_rows_path"),
            "hnsw": Identifier(f"{name}_rows_hnsw"),
            "lock": SQL("hashtextextended({}, 0)").format(Literal(f"ddh {name}")),
            "columns": COLUMNS,
        }

    def sql(self, statement: str, **more: Any) -> Composed:
        """A statement with the names of this index's tables filled in."""
        return SQL(statement).format(**self.names, **more)

    def header(self, db: Database) -> IndexHeader | None:
        """What the index is; None where it is not there."""
        # A scan of the catalogue, not to_regclass: that may answer from what a session has cached.
        there = db.execute(
            "SELECT 1 FROM pg_class "
            "WHERE relname = %s AND relkind = 'r' AND pg_table_is_visible(oid)",
            (self.facts_name,),
        ).fetchone()
        if not there:
            return None
        return IndexHeader.from_text(dict(db.execute(self.sql("SELECT name, value FROM {facts}"))))

    def create(self, db: Database, header: IndexHeader) -> IndexHeader:
        """Make the tables, and say what is there then: another client may have been faster."""
        db.execute(self.sql("SELECT pg_advisory_xact_lock({lock})"))
        if there := self.header(db):
            return there
        text_pair = "(name text PRIMARY KEY, value text NOT NULL)"
        for statement in (
            f"CREATE TABLE {{facts}} {text_pair}",
            f"CREATE TABLE {{settings}} {text_pair}",
            "CREATE TABLE {claims} (token uuid PRIMARY KEY, result bigint, "
            "written timestamptz NOT NULL DEFAULT now())",
            "CREATE TABLE {rows} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
            'key text COLLATE "C" NOT NULL UNIQUE, code bit({bits}) NOT NULL, '
            'path text COLLATE "C", mtime_ns bigint, size bigint, digest text, '
            "metadata jsonb NOT NULL DEFAULT '{{}}')",
            "CREATE INDEX {path_index} ON {rows} (path) WHERE path IS NOT NULL",
        ):
            db.execute(self.sql(statement, bits=Literal(header.bits)))
        if header.features:
            db.execute(self.sql("ALTER TABLE {rows} ADD COLUMN features bytea"))
        insert = self.sql("INSERT INTO {facts} VALUES (%s, %s)")
        db.cursor().executemany(insert, list(header.as_text().items()))
        return header


def packed_bits(values: list[bytes], bits: int) -> Codes:
    """Packed codes from `bit(n)` values in binary form: a length of four bytes, then the bits."""
    whole = np.frombuffer(b"".join(values), np.uint8).reshape(-1, 4 + code_bytes(bits))
    return np.ascontiguousarray(whole[:, 4:])
