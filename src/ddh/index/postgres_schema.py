"""The tables of an index in PostgreSQL."""

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from ddh.index.base import IndexHeader

COLUMNS = SQL("key, code, path, mtime_ns, size, digest, metadata")


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


def read_header(db: psycopg.Connection[Any], tables: Tables) -> IndexHeader | None:
    """What the index is; None where it is not there."""
    # A scan of the catalogue, not to_regclass: that may answer from what a session has cached.
    there = db.execute(
        "SELECT 1 FROM pg_class WHERE relname = %s AND relkind = 'r' AND pg_table_is_visible(oid)",
        (tables.facts_name,),
    ).fetchone()
    if not there:
        return None
    return IndexHeader.from_text(dict(db.execute(tables.sql("SELECT name, value FROM {facts}"))))


def create_schema(db: psycopg.Connection[Any], tables: Tables, header: IndexHeader) -> IndexHeader:
    """Make the tables, and say what is there then: another client may have been faster."""
    db.execute(tables.sql("SELECT pg_advisory_xact_lock({lock})"))
    there = read_header(db, tables)
    if there is not None:
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
        db.execute(tables.sql(statement, bits=Literal(header.bits)))
    with db.cursor() as cursor:
        insert = tables.sql("INSERT INTO {facts} VALUES (%s, %s)")
        cursor.executemany(insert, list(header.as_text().items()))
    return header
