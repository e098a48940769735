"""Checks of what callers hand to the searches."""

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh._core.threads import cpu_count
from ddh.codes.packing import MAX_BITS, code_bytes

Codes = NDArray[np.uint8]


def packed_rows(codes: ArrayLike, what: str) -> Codes:
    """Packed codes as a C-contiguous uint8 matrix, without a copy where they already are one."""
    array = np.asarray(codes)
    if array.dtype != np.uint8:
        raise InputError(f"{what} are packed codes, uint8, not {array.dtype}: use ddh.codes.pack")
    if array.ndim != 2:
        raise InputError(f"{what} are an (n, bytes) array, not one of shape {array.shape}")
    if not 1 <= array.shape[1] <= MAX_BITS // 8:
        raise InputError(f"{what} have 1 to {MAX_BITS // 8} bytes a row, not {array.shape[1]}")
    return np.ascontiguousarray(array)


def packed_codes(codes: ArrayLike, bits: int, what: str) -> Codes:
    """Packed rows, checked to be codes of `bits` bits."""
    rows = packed_rows(codes, what)
    if rows.shape[1] != code_bytes(bits):
        raise InputError(
            f"codes of {bits} bits have {code_bytes(bits)} bytes, {what} have {rows.shape[1]}"
        )
    return rows


def rows_and_queries(queries: ArrayLike, database: ArrayLike) -> tuple[Codes, Codes]:
    """Queries and database, checked to be codes of one width."""
    checked = packed_rows(queries, "the queries"), packed_rows(database, "the database's rows")
    if checked[0].shape[1] != checked[1].shape[1]:
        raise InputError(
            f"the queries have {checked[0].shape[1]} bytes a code and the database "
            f"{checked[1].shape[1]}: they must come from the same model"
        )
    return checked


def _whole_number(value: int, what: str, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{what} is a whole number, not {value!r}") from None
    if number < least:
        raise InputError(f"{what} is at least {least}, not {number}")
    return number


def neighbour_count(k: int) -> int:
    """`k`, checked."""
    return _whole_number(k, "k, the number of neighbours,", 1)


def search_radius_bits(radius: int) -> int:
    """`radius`, checked: a Hamming distance, itself included in the ball."""
    return _whole_number(radius, "the radius", 0)


def thread_count(threads: int | None) -> int:
    """`threads`, checked; None means every processor this process may use."""
    if threads is None:
        return cpu_count()
    return _whole_number(threads, "the number of threads", 1)
