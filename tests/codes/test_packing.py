"""Packed codes: bit order, round trip, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddh import codes
from ddh._core.errors import InputError


def test_bit_order():
    assert codes.pack([1, -1, -1, -1, -1, -1, -1, -1, 1]).tolist() == [0x80, 0x80]
    assert codes.pack([[-1, 1, 1]]).tolist() == [[0b01100000]]


@settings(max_examples=60, deadline=None)
@given(bits=st.integers(1, 4096), rows=st.integers(0, 5), seed=st.integers(0, 2**32))
def test_round_trip(bits, rows, seed):
    signs = np.random.default_rng(seed).choice(np.array([-1, 1], dtype=np.int8), (rows, bits))
    packed = codes.pack(signs)
    assert packed.shape == (rows, codes.code_bytes(bits))
    np.testing.assert_array_equal(codes.unpack(packed, bits), signs)
    products = signs.astype(np.int64) @ signs.T.astype(np.int64)
    np.testing.assert_array_equal(codes.hamming(packed, packed), (bits - products) // 2)


def test_misuse():
    with pytest.raises(InputError, match="-1 and \\+1 only"):
        codes.pack([[0, 1]])
    with pytest.raises(InputError, match="1 to 4096 bits"):
        codes.code_bytes(0)
    with pytest.raises(InputError, match="rows of 2 bytes"):
        codes.unpack(np.zeros((1, 3), np.uint8), 16)
