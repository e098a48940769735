"""Asymmetric search of every kernel against an oracle that adds up signed values."""

import math
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_codes_search import KERNELS

from ddh import codes
from ddh._core.errors import InputError


def signs_of(packed, bits):
    return np.unpackbits(packed, axis=-1, count=bits) * 2.0 - 1.0


def oracle_scores(values, database):
    """The documented order of additions: halves of a byte from the left, then the bytes."""
    width = database.shape[1]
    signs = signs_of(database, 8 * width)
    padded = np.zeros((len(values), 8 * width))
    padded[:, : values.shape[1]] = values
    total = np.zeros((len(values), len(database)))
    for byte in range(0, 8 * width, 8):
        terms = [padded[:, None, j] * signs[None, :, j] for j in range(byte, byte + 8)]
        halves = [((a + b) + c) + d for a, b, c, d in (terms[:4], terms[4:])]
        total = total + (halves[0] + halves[1])
    return total


def ranked(scores):
    return np.argsort(-scores, axis=1, kind="stable")


def check(found, expected, k):
    order = ranked(expected)[:, :k]
    assert found.scores.dtype == np.float64
    assert found.indices.dtype == np.int64
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_array_equal(found.scores, np.take_along_axis(expected, order, 1))


def draw_values(rng, kind, shape):
    if kind == "real":
        return rng.standard_normal(shape)
    if kind == "single":
        return rng.standard_normal(shape).astype(np.float32)
    if kind == "few":  # ties all over, and zeros
        return rng.integers(-2, 3, shape)
    if kind == "equal":  # the order of Hamming search
        return np.where(rng.random(shape) < 0.5, -0.3, 0.3)
    return rng.standard_normal(shape) * 10.0 ** rng.integers(-250, 250, shape)  # "wild"


VALUES = ["real", "single", "few", "equal", "wild"]


@st.composite
def problems(draw):
    bits = draw(st.one_of(st.sampled_from([8, 16, 64, 128, 256, 512]), st.integers(1, 700)))
    rows, flips = draw(st.integers(0, 600)), draw(st.sampled_from([0.0, 0.05, 0.5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    centres = rng.integers(0, 2, (draw(st.integers(1, 5)), bits))
    near = centres[rng.integers(len(centres), size=rows)] ^ (rng.random((rows, bits)) < flips)
    values = draw_values(rng, draw(st.sampled_from(VALUES)), (draw(st.integers(0, 5)), bits))
    return values, np.packbits(near, axis=1)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=40, deadline=None)
@given(data=problems(), k=st.integers(1, 60), threads=st.sampled_from([None, 1, 2, 3]))
def test_search_is_the_oracle(name, data, k, threads):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDH_KERNEL", name)
        expected = oracle_scores(*data)
        check(codes.search_asymmetric(*data, k, threads), expected, k)
        np.testing.assert_array_equal(codes.asymmetric_scores(*data), expected)


@lru_cache
def many_rows(kind, bits):
    rng = np.random.default_rng(bits)
    database = np.packbits(rng.random((2603, bits)) < 0.5, axis=1)
    values = draw_values(rng, kind, (17, bits))
    return values, database, oracle_scores(values, database)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("bits", [8, 13, 24, 64, 72, 96, 128, 200, 256, 264, 512])
@pytest.mark.parametrize("name", KERNELS)
def test_many_rows(name, kind, bits, monkeypatch):
    """Several tiles, their last rows, scales that change, and samples for many queries."""
    monkeypatch.setenv("DDH_KERNEL", name)
    values, database, expected = many_rows(kind, bits)
    for k, threads in [(1, 1), (10, 2), (40, 1)]:
        check(codes.search_asymmetric(values, database, k, threads), expected, k)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("bits", [57, 64])
@pytest.mark.parametrize("name", KERNELS)
def test_one_query(name, kind, bits, monkeypatch):
    """Which one kernel answers by counting bits, first of all without a limit."""
    monkeypatch.setenv("DDH_KERNEL", name)
    values, database, expected = many_rows(kind, bits)
    for i, k in product(range(len(values)), (1, 10, 500)):
        one = slice(i, i + 1)
        check(codes.search_asymmetric(values[one], database, k), expected[one], k)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("bits", [64, 128])
def test_float32_values_are_added_up_exactly(name, bits, monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", name)
    rng = np.random.default_rng(0)
    database = rng.integers(0, 256, (3000, bits // 8), dtype=np.uint8)
    values = rng.standard_normal((2, bits)).astype(np.float32)
    found = codes.search_asymmetric(values, database, 20)
    for query, scores, indices in zip(values, *found, strict=True):
        signed = signs_of(database[indices], bits) * query
        assert scores.tolist() == [math.fsum(row) for row in signed]
    expected = signs_of(database, bits) @ values.T.astype(np.float64)
    np.testing.assert_array_equal(found.indices, ranked(expected.T)[:, :20])


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("bits", [64, 256])
def test_rows_that_become_better_and_better(name, bits, monkeypatch):
    """Each row enters; a sample from the beginning of the list misleads about the rest."""
    monkeypatch.setenv("DDH_KERNEL", name)
    rng = np.random.default_rng(1)
    values = rng.standard_normal((17, bits))
    database = np.packbits(rng.random((2600, bits)) < 0.5, axis=1)
    order = np.argsort(oracle_scores(values[:1], database)[0])
    rising = database[order]
    check(codes.search_asymmetric(values, rising, 50), oracle_scores(values, rising), 50)


@pytest.mark.parametrize("queries", [1, 2, 20])
@pytest.mark.parametrize("name", KERNELS)
def test_a_sample_that_misleads(name, queries, monkeypatch):
    """All rows of the sample agree with the queries, hardly any other: the guess is taken back."""
    monkeypatch.setenv("DDH_KERNEL", name)
    rng = np.random.default_rng(2)
    database = rng.integers(0, 256, (9600, 8), dtype=np.uint8)
    database[np.arange(9600) % 128 < 4] = 255
    values = rng.random((queries, 64)) + 0.1
    check(codes.search_asymmetric(values, database, 400), oracle_scores(values, database), 400)


# Kernels in which many queries share tables.
TABLES = [name for name in KERNELS if name.startswith("avx")] or KERNELS[:1]


def check_large(values, database, k, expected=None):
    """Against the scores of single codes, which the other tests hold against the oracle."""
    if expected is None:
        expected = codes.asymmetric_scores(values, database)
    check(codes.search_asymmetric(values, database, k, threads=1), expected, k)


@lru_cache(maxsize=1)
def large(kind, bits):
    rng = np.random.default_rng(bits)
    centres = rng.integers(0, 256, (30, -(-bits // 8)), dtype=np.uint8)
    near = np.packbits(rng.random((33_500, 8 * centres.shape[1])) < 0.3, axis=1)
    database = centres[rng.integers(len(centres), size=len(near))] ^ near
    values = draw_values(rng, kind, (150, bits))
    return values, database, codes.asymmetric_scores(values, database)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kind", ["real", "few", "wild"])
@pytest.mark.parametrize("bits", [20, 64, 70, 128, 250])
def test_tables_of_many_queries(name, bits, kind, monkeypatch):
    """One line or two, full or not, and queries that are left over."""
    monkeypatch.setenv("DDH_KERNEL", name)
    values, database, expected = large(kind, bits)
    for count, k in [(33, 3), (64, 40), (71, 1), (100, 10), (150, 100)]:
        check_large(values[:count], database, k, expected[:count])


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("name", TABLES)
def test_tables_of_rows_that_become_better_and_better(name, bits, monkeypatch):
    """Each row enters for every query: limits fall all the time, and tables are filled anew."""
    monkeypatch.setenv("DDH_KERNEL", name)
    rng = np.random.default_rng(9)
    database = rng.integers(0, 256, (33_500, bits // 8), dtype=np.uint8)
    values = rng.standard_normal((1, bits)) + 1e-3 * rng.standard_normal((130, bits))
    database = database[np.argsort(codes.asymmetric_scores(values[:1], database)[0])]
    check_large(values, database, 20)


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_queries_without_a_rival(name, monkeypatch):
    """Queries of zeros, queries whose best rows come first, and a sample that misleads."""
    monkeypatch.setenv("DDH_KERNEL", name)
    rng = np.random.default_rng(10)
    database = rng.integers(0, 256, (33_500, 8), dtype=np.uint8)
    database[:40] = database[np.arange(33_500) % 128 < 4] = 255
    values = rng.random((130, 64)) + 0.1
    values[::5] = 0
    values[3::5] *= rng.choice([-1, 1], (26, 64))
    for k in (10, 700):
        check_large(values, database, k)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.0, 5e-324, 1e-300, 1e300])
def test_equal_values(name, value, monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", name)
    database = np.random.default_rng(3).integers(0, 256, (2000, 4), dtype=np.uint8)
    values = np.full((2, 32), value)
    found = codes.search_asymmetric(values, database, 30)
    check(found, oracle_scores(values, database), 30)
    if value == 1:
        hamming = codes.search(np.full((1, 4), 255, np.uint8), database, 30)
        np.testing.assert_array_equal(found.indices[:1], hamming.indices)
    if value == 0:
        assert not np.signbit(found.scores).any()
        assert (found.indices == np.arange(30)).all()


@pytest.mark.parametrize("name", KERNELS)
def test_equal_rows(name, monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", name)
    values = np.random.default_rng(4).standard_normal((3, 64))
    for row in (np.packbits(values[0] > 0), np.packbits(values[0] < 0)):  # the best, the worst
        database = np.tile(row, (3000, 1))
        found = codes.search_asymmetric(values, database, 25)
        assert (found.indices == np.arange(25)).all()
        assert (found.scores == found.scores[:, :1]).all()


@pytest.mark.parametrize("name", KERNELS)
def test_shards_of_rows_for_few_queries(name, monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", name)
    rng = np.random.default_rng(5)
    database = rng.integers(0, 4, (300_000, 2), dtype=np.uint8)  # ties across the shards
    values = rng.standard_normal((2, 16))
    one, three = (codes.search_asymmetric(values, database, 50, n) for n in (1, 3))
    np.testing.assert_array_equal(one.indices, three.indices)
    np.testing.assert_array_equal(one.scores, three.scores)
    check(one, oracle_scores(values, database), 50)


@pytest.mark.parametrize("name", KERNELS)
def test_full_rankings(name, monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", name)
    rng = np.random.default_rng(6)
    values = rng.standard_normal((3, 24))
    database = rng.integers(0, 256, (500, 3), dtype=np.uint8)
    expected = oracle_scores(values, database)
    for k in (31, 32, 500, 900):
        check(codes.search_asymmetric(values, database, k), expected, k)


def test_a_memory_mapped_database(tmp_path):
    rng = np.random.default_rng(7)
    np.save(tmp_path / "codes.npy", rng.integers(0, 256, (4000, 9), dtype=np.uint8))
    database = np.load(tmp_path / "codes.npy", mmap_mode="r")
    values = rng.standard_normal((2, 70))
    spare = database.copy()
    spare[:, -1] &= 0xFC  # bits 70 and 71 are no part of the code
    check(codes.search_asymmetric(values, database, 5), oracle_scores(values, spare), 5)


@pytest.mark.parametrize("name", KERNELS)
def test_the_order_of_what_hamming_search_found(name, monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", name)
    rng = np.random.default_rng(8)
    database = rng.integers(0, 256, (900, 8), dtype=np.uint8)
    values = rng.standard_normal((4, 64))
    indices = codes.search(codes.pack(np.where(values < 0, -1, 1)), database, 12).indices
    scores = codes.asymmetric_scores(values, database[indices])
    expected = np.take_along_axis(oracle_scores(values, database), indices, 1)
    np.testing.assert_array_equal(scores, expected)


class TestEmpty:
    rows, values = np.zeros((3, 8), dtype=np.uint8), np.zeros((2, 64))

    def test_no_rows(self):
        found = codes.search_asymmetric(self.values, self.rows[:0], 5)
        assert found.scores.shape == found.indices.shape == (2, 0)
        assert codes.asymmetric_scores(self.values, self.rows[:0]).shape == (2, 0)
        assert codes.asymmetric_scores(self.values, self.rows[None].repeat(2, 0)[:, :0]).size == 0

    def test_no_queries(self):
        assert codes.search_asymmetric(self.values[:0], self.rows, 2).indices.shape == (0, 2)
        assert codes.asymmetric_scores(self.values[:0], self.rows).shape == (0, 3)


class TestMisuse:
    rows, values = np.zeros((3, 8), dtype=np.uint8), np.zeros((2, 64))

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308])
    def test_not_finite(self, bad):
        values = self.values.copy()
        values[1, 5:10] = bad
        for function in (
            lambda: codes.search_asymmetric(values, self.rows, 1),
            lambda: codes.asymmetric_scores(values, self.rows),
        ):
            with pytest.raises(InputError, match="the values of query 1"):
                function()

    @pytest.mark.parametrize("values", [np.zeros(64), np.zeros((1, 1, 64)), [["a"]], [[1j]]])
    def test_no_matrix_of_real_numbers(self, values):
        with pytest.raises(InputError, match=r"real numbers, an \(n, bits\) array"):
            codes.search_asymmetric(values, self.rows, 1)

    @pytest.mark.parametrize("bits", [8, 56, 65])
    def test_other_length(self, bits):
        with pytest.raises(InputError, match=f"{bits} bits and the database codes of 8 bytes"):
            codes.search_asymmetric(np.zeros((1, bits)), self.rows, 1)

    def test_other_codes(self):
        with pytest.raises(InputError, match="uint8, not float64"):
            codes.search_asymmetric(self.values, self.values, 1)
        with pytest.raises(InputError, match="2 queries have 3 lists"):
            codes.asymmetric_scores(self.values, self.rows[:, None])

    def test_numbers(self):
        with pytest.raises(InputError, match="number of neighbours"):
            codes.search_asymmetric(self.values, self.rows, 0)
        with pytest.raises(InputError, match="threads"):
            codes.search_asymmetric(self.values, self.rows, 1, threads=0)


class TestWrongCallsOfTheExtension:
    rows, values = bytes(80), bytes(64 * 8 * 2)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("none", values, rows, 8, 1, bytearray(16), bytearray(16)),
            ("plain", values, rows, 9, 1, bytearray(16), bytearray(16)),
            ("plain", values, rows, 0, 1, bytearray(16), bytearray(16)),
            ("plain", values[:-8], rows, 8, 1, bytearray(16), bytearray(16)),
            ("plain", values, rows, 8, 11, bytearray(176), bytearray(176)),
            ("plain", values, rows, 8, 1, bytearray(8), bytearray(16)),
        ],
    )
    def test_rank(self, arguments):
        extension = pytest.importorskip("ddh.codes._hamming")
        with pytest.raises(ValueError, match=r"."):
            extension.rank(*arguments)

    def test_scores(self):
        extension = pytest.importorskip("ddh.codes._hamming")
        for arguments in [
            (self.values, self.rows, 8, 0, bytearray(80)),
            (self.values, self.rows, 8, 1, bytearray(160)),
            (self.values, self.rows[:72], 8, 1, bytearray(80)),
            (b"", self.rows, 8, 0, bytearray(0)),
        ]:
            with pytest.raises(ValueError, match=r"."):
                extension.scores(*arguments)
