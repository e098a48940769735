"""Multi-index hashing against the scan: exact for any radius and any k."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddh import codes
from ddh._core.errors import InputError
from ddh.codes import multi_index
from ddh.codes.multi_index import radius_cost, tables_for_neighbours, tables_for_radius


@pytest.fixture
def never_give_up(monkeypatch):
    """Buckets cost nothing: no query is left to the scan."""
    monkeypatch.setattr(multi_index, "BUCKET", 0.0)
    monkeypatch.setattr(multi_index, "row_cost", lambda width: 0.0)
    monkeypatch.setattr(multi_index, "radius_cost", lambda *arguments: 0.0)

    def no_scan(*arguments, **settings):
        raise AssertionError("left to the scan")

    return lambda: monkeypatch.setattr(multi_index.scan, "search", no_scan)


@st.composite
def problems(draw):
    bits = draw(st.one_of(st.sampled_from([16, 32, 64, 128]), st.integers(1, 300)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    centres = rng.integers(0, 2, (draw(st.integers(1, 5)), bits))
    flips = draw(st.sampled_from([0.0, 0.03, 0.1, 0.5]))

    def near(n):
        bits_of = centres[rng.integers(len(centres), size=n)]
        return np.packbits(bits_of ^ (rng.random((n, bits)) < flips), axis=1)

    database, queries = near(draw(st.integers(1, 400))), near(draw(st.integers(1, 5)))
    fewest = -(-bits // 24)
    tables = draw(st.one_of(st.none(), st.integers(fewest, min(bits, fewest + 8))))
    return queries, database, bits, tables


@pytest.mark.parametrize("patient", [False, True])
@settings(max_examples=80, deadline=None)
@given(data=problems(), k=st.integers(1, 60), share=st.sampled_from([0.0, 0.04, 0.15, 0.4]))
def test_the_same_answer_as_the_scan(patient, data, k, share):
    queries, database, bits, tables = data
    with pytest.MonkeyPatch.context() as patch:
        if patient and bits <= 64:  # with no end of patience, long codes have too many buckets
            patch.setattr(multi_index, "BUCKET", 0.0)
            patch.setattr(multi_index, "row_cost", lambda width: 0.0)
            patch.setattr(multi_index, "radius_cost", lambda *arguments: 0.0)
            k, share = min(k, 3), min(share, 0.04)
        index = codes.MultiIndex(database, bits, tables)
        found, near = index.search(queries, k), index.search_radius(queries, int(share * bits))
    expected = codes.scan.search(queries, database, k)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.distances, expected.distances)
    expected_near = codes.search_radius(queries, database, int(share * bits))
    np.testing.assert_array_equal(near.limits, expected_near.limits)
    np.testing.assert_array_equal(near.indices, expected_near.indices)
    np.testing.assert_array_equal(near.distances, expected_near.distances)


def clustered(bits, rows, seed=0, flips=0.08, centres=300):
    rng = np.random.default_rng(seed)
    around = rng.integers(0, 2, (centres, bits))
    bits_of = around[rng.integers(centres, size=rows)]
    return np.packbits(bits_of ^ (rng.random((rows, bits)) < flips), axis=1)


@pytest.mark.parametrize("bits", [12, 16, 24, 32, 48, 64, 96, 128])
def test_the_tables_do_the_work(bits, never_give_up):
    """Clustered codes: all queries are answered by buckets, and rightly."""
    database = clustered(bits, 20_000)
    queries = database[:100] ^ np.packbits(np.arange(bits) == bits // 2)
    expected = codes.search(queries, database, 10)
    near = codes.search_radius(queries, database, 3)
    never_give_up()
    found = codes.MultiIndex(database, bits).search(queries, 10)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.distances, expected.distances)
    found_near = codes.MultiIndex(database, bits).search_radius(queries, 3)
    np.testing.assert_array_equal(found_near.limits, near.limits)
    np.testing.assert_array_equal(found_near.indices, near.indices)


def test_many_equal_codes(never_give_up):
    """More ties at the last distance than an answer has room for."""
    database = np.repeat(clustered(64, 3), 5000, axis=0)
    never_give_up()
    found = codes.MultiIndex(database, 64).search(database[:1], 100)
    assert found.indices.tolist() == [list(range(100))]


@pytest.mark.parametrize("threads", [1, 3])
def test_some_queries_are_left_to_the_scan(threads):
    """Rows near to half of the queries only: both ways mix in one answer."""
    rng = np.random.default_rng(0)
    database = rng.integers(0, 256, (60_000, 8), dtype=np.uint8)
    queries = np.concatenate([database[:300], rng.integers(0, 256, (300, 8), dtype=np.uint8)])
    queries = queries[rng.permutation(600)]
    index = codes.MultiIndex(database, 64)
    expected = codes.search(queries, database, 1)
    found = index.search(queries, 1, threads)
    np.testing.assert_array_equal(found.indices, expected.indices)
    near, expected_near = (
        index.search_radius(queries, 9, threads),
        codes.search_radius(queries, database, 9),
    )
    np.testing.assert_array_equal(near.limits, expected_near.limits)
    np.testing.assert_array_equal(near.indices, expected_near.indices)


def test_without_the_native_kernel_it_is_a_scan(monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", "numpy")
    database = clustered(32, 500)
    index = codes.MultiIndex(database, 32)
    assert repr(index) == "MultiIndex(500 rows of 32 bits, 0 tables)"
    expected = codes.search(database[:4], database, 3)
    np.testing.assert_array_equal(index.search(database[:4], 3).indices, expected.indices)
    assert index.search_radius(database[:4], 0).limits[-1] >= 4


def test_empty():
    none = np.empty((0, 8), dtype=np.uint8)
    assert codes.MultiIndex(none, 64).search(np.zeros((2, 8), np.uint8), 3).indices.shape == (2, 0)
    assert codes.MultiIndex(np.zeros((2, 8), np.uint8), 64).search(none, 3).indices.shape == (0, 2)
    assert len(codes.MultiIndex(none, 64).search_radius(np.zeros((2, 8), np.uint8), 3)) == 2


def test_misuse():
    rows = np.zeros((5, 8), dtype=np.uint8)
    with pytest.raises(InputError, match="packed codes of 72 bits, uint8 rows of 9 bytes"):
        codes.MultiIndex(rows, 72)
    with pytest.raises(InputError, match="3 to 64 substrings, not 2"):
        codes.MultiIndex(rows, 64, tables=2)
    with pytest.raises(InputError, match="4 bytes per code"):
        codes.MultiIndex(rows, 64).search(rows[:, :4], 1)
    with pytest.raises(InputError, match="radius"):
        codes.MultiIndex(rows, 64).search_radius(rows, -1)


def test_costs_choose_sensibly():
    assert tables_for_neighbours(1_000_000, 16) == 1
    assert 4 <= tables_for_neighbours(1_000_000, 64) <= 6
    assert tables_for_radius(1_000_000, 64, 0) <= 4
    assert tables_for_radius(1_000_000, 64, 8) > tables_for_radius(1_000_000, 64, 0)
    assert radius_cost(1_000_000, 64, 4, 3) < radius_cost(1_000_000, 64, 4, 11)
    assert tables_for_neighbours(1_000_000, 4096) >= 4096 // 24


@pytest.mark.parametrize("width", [1, 8, 64, 512])
def test_an_index_of_nothing_finds_nothing(width):
    index = codes.MultiIndex(np.empty((0, width), np.uint8), 8 * width)
    query = np.zeros((1, width), np.uint8)
    assert index.search(query, 3).indices.shape == (1, 0)
    for radius in (3, 8 * width):
        assert index.search_radius(query, radius).limits.tolist() == [0, 0]
