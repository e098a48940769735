"""Checks of codes and of the numbers that searches take: the only home of such checks."""

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh._core.threads import cpu_count
from ddh.codes.packing import MAX_BITS, code_bytes, pack

Codes = NDArray[np.uint8]
Values = NDArray[np.float64]


def packed_rows(codes: ArrayLike, what: str) -> Codes:
    """Packed codes as a C-contiguous uint8 matrix, without a copy where they already are one."""
    array = np.asarray(codes)
    if array.dtype != np.uint8:
        raise InputError(f"{what} are packed codes, uint8, not {array.dtype}: use ddh.codes.pack")
    if array.ndim != 2:
        raise InputError(f"{what} are an (n, bytes) array, not one of shape {array.shape}")
    if not 1 <= array.shape[1] <= MAX_BITS // 8:
        raise InputError(f"{what} have 1 to {MAX_BITS // 8} bytes per row, not {array.shape[1]}")
    return np.ascontiguousarray(array)


def check_codes(codes: ArrayLike, bits: int, what: str) -> Codes:
    """Packed codes of `bits` bits as (n, bytes), their spare bits zero; one code may be 1-D."""
    array = np.atleast_2d(np.asarray(codes))
    width = code_bytes(bits)
    if array.size == 0 and array.dtype != np.uint8:
        array = np.empty((0, width), np.uint8)
    if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != width:
        raise InputError(
            f"{what} must be packed codes of {bits} bits, uint8 rows of {width} bytes, "
            f"not {array.dtype} of shape {array.shape}: were they made by this model?"
        )
    spare = 8 * width - bits
    if spare and (array[:, -1] & ((1 << spare) - 1)).any():
        raise InputError(
            f"{what} have ones among the {spare} spare bits after bit {bits}: they are longer "
            "codes or of another bit order; pack them with ddh.codes.pack"
        )
    return np.ascontiguousarray(array)


def binary_codes(codes: ArrayLike, bits: int | None, what: str) -> tuple[Codes, int]:
    """(packed codes, bits) of +-1 codes (n, bits), or of packed uint8 rows if `bits` is given."""
    array = np.asarray(codes)
    if array.ndim != 2 or not len(array):
        raise InputError(f"{what} codes are an (n, bits) array with n > 0, not {array.shape}")
    if array.dtype == np.uint8 and bits is not None:
        return check_codes(array, bits, f"{what} codes"), bits
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


def binary_pair(
    query_codes: ArrayLike, database_codes: ArrayLike, bits: int | None
) -> tuple[Codes, Codes, int]:
    """Packed query codes, packed database codes and their common length."""
    queries, query_bits = binary_codes(query_codes, bits, "query")
    database, database_bits = binary_codes(database_codes, bits, "database")
    if query_bits != database_bits:
        raise InputError(
            f"query codes have {query_bits} bits and database codes {database_bits}; "
            "encode both with one model"
        )
    return queries, database, query_bits


def rows_and_queries(queries: ArrayLike, database: ArrayLike) -> tuple[Codes, Codes]:
    """Queries and database, checked to be codes of one width."""
    checked = packed_rows(queries, "the queries"), packed_rows(database, "the database's rows")
    if checked[0].shape[1] != checked[1].shape[1]:
        raise InputError(
            f"the queries have {checked[0].shape[1]} bytes per code and the database "
            f"{checked[1].shape[1]}: they must come from the same model"
        )
    return checked


def query_values(values: ArrayLike, width: int) -> Values:
    """Real-valued outputs (n, bits) for codes of `width` bytes, zeros for the spare bits."""
    array = np.asarray(values)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(
            "the values are real numbers, an (n, bits) array, "
            f"not {array.dtype} of shape {array.shape}"
        )
    if code_bytes(array.shape[1]) != width:
        raise InputError(
            f"the values have {array.shape[1]} bits and the database codes of {width} bytes: "
            "they must come from the same model"
        )
    padded = np.zeros((len(array), 8 * width))
    padded[:, : array.shape[1]] = array
    with np.errstate(over="ignore"):
        finite = np.isfinite(4 * np.abs(padded).sum(axis=1))
    if not finite.all():
        raise InputError(f"the values of query {finite.argmin()} hold NaN or are not finite")
    return padded


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
