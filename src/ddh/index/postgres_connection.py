"""A PostgreSQL connection, and codes as `bit(n)` values."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg

from ddh.codes import code_bytes
from ddh.index.connection import Connection, Result
from ddh.index.rows import Codes

Database = psycopg.Connection[Any]


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


def bit_strings(codes: Codes, bits: int) -> list[str]:
    """Packed codes as PostgreSQL writes `bit(n)`: one character a bit, the first bit first."""
    characters = np.unpackbits(codes, axis=1, count=bits) + np.uint8(ord("0"))
    return np.ascontiguousarray(characters).view(f"S{bits}").ravel().astype(str).tolist()


def packed_bits(values: list[bytes], bits: int) -> Codes:
    """Packed codes from `bit(n)` values in binary form: a length of four bytes, then the bits."""
    whole = np.frombuffer(b"".join(values), np.uint8).reshape(-1, 4 + code_bytes(bits))
    return np.ascontiguousarray(whole[:, 4:])
