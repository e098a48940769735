"""Every kernel against an oracle that compares unpacked bits one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddh import codes
from ddh.errors import InputError

KERNELS = ["numpy", "faiss", "neon", "plain"]


def oracle_distances(queries, database):
    a, b = np.unpackbits(queries, axis=1), np.unpackbits(database, axis=1)
    return np.array([[(x != y).sum() for y in b] for x in a], dtype=np.int32).reshape(
        len(queries), len(database)
    )


def oracle_order(distances):
    return np.argsort(distances, axis=1, kind="stable")


@pytest.fixture(params=KERNELS)
def kernel(request, monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", request.param)
    return request.param


@st.composite
def problems(draw):
    """Queries and rows with many ties and duplicates: rows are drawn near a few centres."""
    bits = draw(st.one_of(st.sampled_from([16, 32, 64, 128, 256]), st.integers(1, 4096)))
    rows = draw(st.integers(0, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    centres = rng.integers(0, 2, (draw(st.integers(1, 5)), bits))
    flips = draw(st.sampled_from([0.0, 0.02, 0.1, 0.5]))

    def near(n):
        return np.packbits(
            centres[rng.integers(len(centres), size=n)] ^ (rng.random((n, bits)) < flips), axis=1
        )

    return near(draw(st.integers(0, 6))), near(rows)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=60, deadline=None)
@given(data=problems(), k=st.integers(1, 80), threads=st.sampled_from([None, 1, 2, 3]))
def test_search_is_the_oracle(name, data, k, threads):
    queries, database = data
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDH_KERNEL", name)
        distances, indices = codes.search(queries, database, k, threads)
    expected = oracle_distances(queries, database)
    order = oracle_order(expected)[:, :k]
    assert distances.dtype == np.int32
    assert indices.dtype == np.int64
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(distances, np.take_along_axis(expected, order, 1))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=60, deadline=None)
@given(data=problems(), share=st.sampled_from([0.0, 0.05, 0.3, 0.5, 1.0]))
def test_radius_is_the_oracle(name, data, share):
    queries, database = data
    radius = int(share * 8 * database.shape[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDH_KERNEL", name)
        result = codes.search_radius(queries, database, radius)
    expected = oracle_distances(queries, database)
    order = oracle_order(expected)
    assert len(result) == len(queries)
    assert result.limits[-1] == (expected <= radius).sum() == len(result.indices)
    for query, (distances, indices) in enumerate(result):
        inside = order[query][expected[query][order[query]] <= radius]
        np.testing.assert_array_equal(indices, inside)
        np.testing.assert_array_equal(distances, expected[query][inside])


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=30, deadline=None)
@given(data=problems())
def test_distances_are_the_oracle(name, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDH_KERNEL", name)
        np.testing.assert_array_equal(codes.hamming(*data), oracle_distances(*data))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=40, deadline=None)
@given(data=problems(), share=st.sampled_from([0.0, 0.05, 0.3, 1.0]))
def test_pairs_are_the_oracle(name, data, share):
    database = data[1]
    radius = int(share * 8 * database.shape[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDH_KERNEL", name)
        pairs = codes.pairs_within(database, radius)
    expected = oracle_distances(database, database)
    first, second = np.nonzero(np.triu(expected <= radius, 1))
    np.testing.assert_array_equal(pairs.first, first)
    np.testing.assert_array_equal(pairs.second, second)
    np.testing.assert_array_equal(pairs.distances, expected[first, second])


class TestMisuse:
    rows = np.zeros((3, 8), dtype=np.uint8)

    def test_other_dtype(self):
        with pytest.raises(InputError, match="uint8, not int64"):
            codes.search(np.zeros((1, 8), dtype=np.int64), self.rows, 1)

    def test_one_dimension(self):
        with pytest.raises(InputError, match=r"shape \(8,\)"):
            codes.search(self.rows[0], self.rows, 1)

    def test_other_width(self):
        with pytest.raises(InputError, match="4 bytes a code and the database 8"):
            codes.search(self.rows[:, :4], self.rows, 1)

    @pytest.mark.parametrize("k", [0, -1, 1.5, "ten"])
    def test_no_neighbours(self, k):
        with pytest.raises(InputError, match="number of neighbours"):
            codes.search(self.rows, self.rows, k)

    @pytest.mark.parametrize("radius", [-1, 0.5])
    def test_radius(self, radius):
        with pytest.raises(InputError, match="radius"):
            codes.search_radius(self.rows, self.rows, radius)
        with pytest.raises(InputError, match="radius"):
            codes.pairs_within(self.rows, radius)

    @pytest.mark.parametrize("threads", [0, -2, 1.0])
    def test_threads(self, threads):
        with pytest.raises(InputError, match="threads"):
            codes.search(self.rows, self.rows, 1, threads=threads)

    def test_unknown_kernel(self, monkeypatch):
        monkeypatch.setenv("DDH_KERNEL", "quantum")
        with pytest.raises(InputError, match="DDH_KERNEL=quantum"):
            codes.search(self.rows, self.rows, 1)


def test_strided_and_read_only_rows(kernel):
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 256, (50, 16), dtype=np.uint8)
    wide.setflags(write=False)
    assert codes.search(wide[::2, :8], wide[:, :8], 1).distances.sum() == 0
