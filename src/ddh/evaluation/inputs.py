"""What evaluation accepts: binary codes in 64-bit words, and labels that say what is relevant."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh.codes import code_bytes, pack
from ddh.neighbours.labels import check_labels, is_labelled, shares_label


def check_codes(codes: ArrayLike, bits: int | None, what: str) -> tuple[NDArray[np.uint8], int]:
    """(packed codes, bits) of +-1 codes (n, bits), or of packed uint8 rows when `bits` is given."""
    array = np.asarray(codes)
    if array.ndim != 2 or not len(array):
        raise InputError(f"{what} codes are an (n, bits) array with n > 0, not {array.shape}")
    if array.dtype == np.uint8 and bits is not None:
        width = code_bytes(bits)
        if array.shape[1] != width:
            raise InputError(
                f"{what} codes of {bits} bits take {width} bytes a row, not {array.shape[1]}"
            )
        spare = 8 * width - bits
        if spare and (array[:, -1] & ((1 << spare) - 1)).any():
            raise InputError(f"{what} codes have bits set beyond bit {bits}; is `bits` right?")
        return array, bits
    if array.dtype == np.uint8 and array.max() > 1:
        raise InputError(f"{what} codes look packed: give their length, bits=")
    if not (array.dtype.kind in "if" and (np.abs(array) == 1).all()):
        raise InputError(
            f"{what} codes must be binary, -1 and +1 only; take the sign (sgn(0) = +1) first, "
            "or give packed uint8 rows and bits="
        )
    if bits is not None and bits != array.shape[1]:
        raise InputError(f"{what} codes have {array.shape[1]} bits, not {bits}")
    return pack(array), array.shape[1]


def check_pair(
    query_codes: ArrayLike, database_codes: ArrayLike, bits: int | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], int]:
    """Packed query codes, packed database codes and their common length."""
    queries, query_bits = check_codes(query_codes, bits, "query")
    database, database_bits = check_codes(database_codes, bits, "database")
    if query_bits != database_bits:
        raise InputError(
            f"query codes have {query_bits} bits and database codes {database_bits}; "
            "encode both with one model"
        )
    return queries, database, query_bits


def words(packed: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Packed rows as 64-bit words (n, ceil(bytes / 8)), filled up with zero bits."""
    rows, width = packed.shape
    padded = np.zeros((rows, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = packed
    return padded.view(np.uint64)


@dataclass(frozen=True)
class Relevance:
    """Who answers whom: the same class, or at least one shared concept of a 0/1 matrix.

    `query` and `database` are int32 class numbers, or float32 0/1 matrices; nothing of the size
    queries x database is ever held, `block` makes the part that is asked for.
    """

    query: NDArray[Any]
    database: NDArray[Any]

    @classmethod
    def of(
        cls, query_labels: ArrayLike, database_labels: ArrayLike, queries: int, items: int
    ) -> "Relevance":
        """Check both label sets against the number of codes and against each other."""
        query, database = np.asarray(query_labels), np.asarray(database_labels)
        for labels, rows, what in ((query, queries, "query"), (database, items, "database")):
            checked = check_labels(labels, rows, f"{what} labels")
            if checked.ndim == 1 and not is_labelled(checked).all():
                raise InputError(
                    f"{what} labels hold negative classes (unlabelled?): leave those rows out"
                )
        if query.ndim != database.ndim or query.shape[1:] != database.shape[1:]:
            raise InputError(
                f"query labels {query.shape} and database labels {database.shape} do not match: "
                "both are class vectors, or both are 0/1 matrices with the same concepts"
            )
        both = np.concatenate([query, database])
        if both.ndim == 2:
            labels = both.astype(np.float32)
        else:
            labels = np.unique(both, return_inverse=True)[1].astype(np.int32)
        return cls(labels[:queries], labels[queries:])

    @property
    def concepts(self) -> int:
        """Largest number of labels that two images can share."""
        return self.query.shape[1] if self.query.ndim == 2 else 1

    def block(self, rows: slice, columns: slice = slice(None)) -> NDArray[np.bool_]:
        """Relevance of database[columns] to query[rows]."""
        shared: NDArray[np.bool_] = shares_label(self.query[rows], self.database[columns])
        return shared

    def shared(self, rows: slice, columns: slice = slice(None)) -> NDArray[np.intp]:
        """Number of labels that query[rows] and database[columns] share (graded relevance)."""
        if self.query.ndim == 1:
            return self.block(rows, columns).astype(np.intp)
        return np.rint(self.query[rows] @ self.database[columns].T).astype(np.intp)

    def total(self) -> int:
        """Number of relevant pairs (query, item)."""
        if self.query.ndim == 1:
            size = int(max(self.query.max(), self.database.max())) + 1
            sizes = np.bincount(self.query, minlength=size) * np.bincount(
                self.database, minlength=size
            )
            return int(sizes.sum())
        step = max(1, (1 << 24) // len(self.database))
        starts = range(0, len(self.query), step)
        return sum(int(self.block(slice(start, start + step)).sum()) for start in starts)
