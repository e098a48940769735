"""Hamming distance as a function of SQL: `ddh_hamming(code, code)` in SQLite and DuckDB."""

import sqlite3
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError, optional

FUNCTION = "ddh_hamming"


def _distance(a: bytes | None, b: bytes | None) -> int | None:
    if a is None or b is None:
        return None
    if not isinstance(a, bytes) or not isinstance(b, bytes) or len(a) != len(b):
        raise InputError(f"{FUNCTION} compares two blobs of one length")
    return (int.from_bytes(a) ^ int.from_bytes(b)).bit_count()


def register_sqlite(connection: sqlite3.Connection) -> None:
    """Give a connection the function `ddh_hamming(code, code)`.

    Codes are blobs of packed bits, see `ddh.codes.pack`; NULL gives NULL. For other languages and
    the `sqlite3` shell, `examples/sqlite_hamming.c` is the same function as a loadable extension.

    Examples
    --------
    >>> import sqlite3
    >>> from ddh import codes
    >>> db = sqlite3.connect(":memory:")
    >>> codes.register_sqlite(db)
    >>> db.execute("SELECT ddh_hamming(x'ff', x'0f')").fetchone()
    (4,)
    """
    connection.create_function(FUNCTION, 2, _distance, deterministic=True)


def register_duckdb(connection: Any) -> None:
    """Give a connection of DuckDB the vectorized function `ddh_hamming(code, code)`.

    Codes are values of the type BLOB, all of one length; NULL gives NULL. Needs pyarrow.
    """
    duckdb, arrow = (
        optional(name, f"a function of DuckDB needs {name}: pip install duckdb pyarrow")
        for name in ("duckdb", "pyarrow")
    )

    def distances(a: Any, b: Any) -> Any:
        missing = np.asarray(a.is_null()) | np.asarray(b.is_null())
        found = np.zeros(len(a), np.int32)
        if not missing.all():
            there = arrow.array(~missing)
            one, other = _matrix(a.filter(there)), _matrix(b.filter(there))
            if one.shape != other.shape:
                raise InputError(f"{FUNCTION} compares two blobs of one length")
            found[~missing] = np.bitwise_count(one ^ other).sum(axis=1, dtype=np.int32)
        return arrow.array(found, mask=missing)

    def _matrix(column: Any) -> NDArray[np.uint8]:
        values = column.to_pylist()
        if len({len(value) for value in values}) > 1:
            raise InputError(f"{FUNCTION} compares blobs of one length")
        return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), -1)

    blob, integer = duckdb.sqltype("BLOB"), duckdb.sqltype("INTEGER")
    connection.create_function(
        FUNCTION, distances, [blob, blob], integer, type="arrow", null_handling="special"
    )
