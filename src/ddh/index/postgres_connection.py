"""A PostgreSQL connection that comes back after it was dropped, and codes as `bit(n)` values."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import psycopg

from ddh._core.errors import DDHError
from ddh.codes import code_bytes
from ddh.index.location import without_password
from ddh.index.retries import with_retries
from ddh.index.rows import Codes

Result = TypeVar("Result")


class Connection:
    """One connection; work on it runs in transactions that are repeated if it breaks."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.RLock()
        self._closed = False
        try:
            self._db = self._connect()
        except psycopg.OperationalError as error:
            raise DDHError(
                f"cannot connect to {without_password(address)}: {str(error).strip()}"
            ) from error

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._address, autocommit=True, application_name="ddh")

    def _reconnect(self) -> None:
        self._db.close()
        self._db = self._connect()

    def _check_open(self) -> None:
        if self._closed:
            raise DDHError(f"the index {without_password(self._address)} is closed: open it again")

    def run(self, work: Callable[[psycopg.Connection[Any]], Result]) -> Result:
        """`work` in one transaction, once more from its beginning if the connection breaks."""

        def attempt() -> Result:
            with self._db.transaction():
                return work(self._db)

        with self._lock:
            self._check_open()
            try:
                return with_retries(attempt, self._is_dropped, self._reconnect)
            except psycopg.OperationalError as error:
                raise DDHError(f"PostgreSQL refuses or is gone: {str(error).strip()}") from error

    def run_alone(self, work: Callable[[psycopg.Connection[Any]], object]) -> None:
        """`work` outside of a transaction, for statements that want it so."""
        with self._lock:
            self._check_open()
            with_retries(lambda: work(self._db), self._is_dropped, self._reconnect)

    def _is_dropped(self, error: Exception) -> bool:
        """A broken connection, or a transaction that the server gave up and asks to repeat."""
        if isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
            return True
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
            self._db.closed or self._db.broken
        )

    @contextmanager
    def another(self) -> Iterator[psycopg.Connection[Any]]:
        """A second connection in one read transaction, for a long walk through the rows."""
        self._check_open()
        with self._connect() as db, db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield db

    def close(self) -> None:
        """Close for good."""
        with self._lock:
            self._closed = True
            self._db.close()


def bit_strings(codes: Codes, bits: int) -> list[str]:
    """Packed codes as PostgreSQL writes `bit(n)`: one character a bit, the first bit first."""
    characters = np.unpackbits(codes, axis=1, count=bits) + np.uint8(ord("0"))
    return np.ascontiguousarray(characters).view(f"S{bits}").ravel().astype(str).tolist()


def packed_bits(values: list[bytes], bits: int) -> Codes:
    """Packed codes from `bit(n)` values in binary form: a length of four bytes, then the bits."""
    whole = np.frombuffer(b"".join(values), np.uint8).reshape(-1, 4 + code_bytes(bits))
    return np.ascontiguousarray(whole[:, 4:])
