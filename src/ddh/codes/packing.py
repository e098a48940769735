"""Codes as bytes.

Bit order: bit j of a code is stored in byte j // 8 under the mask 0x80 >> (j % 8), most
significant bit first, as NumPy's `packbits` and PostgreSQL's `bit(n)` have it: the binary
digits of the bytes read from left to right are the code. +1 is stored as 1 and -1 as 0. A
length that is no multiple of 8 leaves zero bits at the end of the last byte.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError

MAX_BITS = 4096


def code_bytes(bits: int) -> int:
    """Bytes of one packed code of `bits` bits."""
    if isinstance(bits, bool) or not isinstance(bits, int | np.integer):
        raise InputError(f"bits is a whole number from 1 to {MAX_BITS}, not {bits!r}")
    if not 1 <= bits <= MAX_BITS:
        raise InputError(f"a code has 1 to {MAX_BITS} bits, not {bits}")
    return int(bits + 7) // 8


def pack(plus_minus_one: ArrayLike) -> NDArray[np.uint8]:
    """(n, bits) of -1 and +1 -> (n, ceil(bits / 8)) packed bytes; a single code may be 1-D."""
    codes = np.asarray(plus_minus_one)
    if codes.ndim not in (1, 2):
        raise InputError(f"codes are an (n, bits) array, not one of shape {codes.shape}")
    code_bytes(codes.shape[-1])
    positive = codes > 0
    if not np.array_equal(np.where(positive, 1, -1), codes):
        raise InputError("codes hold -1 and +1 only; take the sign (sgn(0) = +1) before packing")
    return np.packbits(positive, axis=-1)


def unpack(packed: ArrayLike, bits: int) -> NDArray[np.int8]:
    """(n, ceil(bits / 8)) packed bytes -> (n, bits) int8 of -1 and +1."""
    array = np.asarray(packed)
    width = code_bytes(bits)
    if array.dtype != np.uint8 or array.ndim not in (1, 2) or array.shape[-1] != width:
        raise InputError(
            f"packed codes of {bits} bits are uint8 rows of {width} bytes, "
            f"not {array.dtype} of shape {array.shape}"
        )
    ones = np.unpackbits(array, axis=-1, count=bits)
    return ones.astype(np.int8) * np.int8(2) - np.int8(1)
