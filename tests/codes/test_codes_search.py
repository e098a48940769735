"""Every kernel against an oracle that compares unpacked bits one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddh import codes
from ddh._core.errors import InputError
from ddh.codes import kernels


def kernels_here():
    """All that this machine can run; NumPy always, the others where they are installed."""
    names = ["numpy"]
    for name in kernels.INSTRUCTION_SETS:
        try:
            kernels._choose(name)
        except InputError:
            continue
        names.append(name)
    return names


KERNELS = kernels_here()


def oracle_distances(queries, database):
    a, b = np.unpackbits(queries, axis=1), np.unpackbits(database, axis=1)
    return np.array([[(x != y).sum() for y in b] for x in a], dtype=np.int32).reshape(
        len(queries), len(database)
    )


def oracle_order(distances):
    return np.argsort(distances, axis=1, kind="stable")


@st.composite
def problems(draw):
    """Queries and rows with many ties and duplicates: both are drawn near a few centres."""
    bits = draw(st.one_of(st.sampled_from([16, 32, 64, 128, 256]), st.integers(1, 4096)))
    rows = draw(st.integers(0, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    centres = rng.integers(0, 2, (draw(st.integers(1, 5)), bits))
    flips = draw(st.sampled_from([0.0, 0.02, 0.1, 0.5]))

    def near(n):
        bits_of = centres[rng.integers(len(centres), size=n)]
        return np.packbits(bits_of ^ (rng.random((n, bits)) < flips), axis=1)

    return near(draw(st.integers(0, 6))), near(rows)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=40, deadline=None)
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
@pytest.mark.parametrize("width", [9, 16, 20, 24, 31, 32])
def test_long_codes_with_near_and_opposite_rows(name, width, monkeypatch):
    """Many queries, some with copies and some without: rows drop out between the slices of a
    table, and rows on the other side of the cube would run its sums over."""
    monkeypatch.setenv("DDH_KERNEL", name)
    rng = np.random.default_rng(width)
    queries = rng.integers(0, 256, (70, width), dtype=np.uint8)
    flips = np.packbits(rng.random((30, 40, 8 * width)) < 0.02, axis=2)
    near = (queries[:30, None] ^ flips).reshape(-1, width)
    database = np.concatenate([near, ~near, rng.integers(0, 256, (3000, width), dtype=np.uint8)])
    database = database[rng.permutation(len(database))]
    apart = np.unpackbits(queries[:, None] ^ database, axis=2)
    expected = apart.sum(axis=2, dtype=np.int32)
    for part in (slice(None), slice(30)):  # with queries far from everything, and without
        distances, indices = codes.search(queries[part], database, 20)
        order = oracle_order(expected[part])[:, :20]
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(distances, np.take_along_axis(expected[part], order, 1))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=40, deadline=None)
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
@settings(max_examples=20, deadline=None)
@given(data=problems())
def test_distances_are_the_oracle(name, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDH_KERNEL", name)
        np.testing.assert_array_equal(codes.hamming(*data), oracle_distances(*data))


def batch(bits, queries, rows, seed=0, flips=0.3):
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2, (20, bits))

    def near(n):
        bits_of = centres[rng.integers(len(centres), size=n)]
        return np.packbits(bits_of ^ (rng.random((n, bits)) < flips), axis=1)

    return near(queries), near(rows)


def matrix_distances(queries, database):
    a = np.unpackbits(queries, axis=1).astype(np.float32)
    b = np.unpackbits(database, axis=1).astype(np.float32)
    return (a @ (1 - b).T + (1 - a) @ b.T).astype(np.int32)


@pytest.mark.parametrize("bits", [7, 16, 24, 32, 48, 64, 96, 128, 200, 256, 600])
@pytest.mark.parametrize("name", KERNELS)
def test_a_batch_of_queries(name, bits, monkeypatch):
    """Enough queries and rows for tables, samples, buckets and a second thread."""
    monkeypatch.setenv("DDH_KERNEL", name)
    queries, database = batch(bits, 300, 6000)
    expected = matrix_distances(queries, database)
    order = oracle_order(expected)
    for k, threads in [(1, 2), (10, 1), (150, 2)]:
        distances, indices = codes.search(queries, database, k, threads)
        np.testing.assert_array_equal(indices, order[:, :k])
        np.testing.assert_array_equal(distances, np.take_along_axis(expected, order[:, :k], 1))
    radius = int(np.quantile(expected, 0.01))
    result = codes.search_radius(queries, database, radius)
    inside = np.take_along_axis(expected, order, 1) <= radius
    np.testing.assert_array_equal(result.indices, order[inside])


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "numpy"])
def test_rows_that_come_nearer_and_nearer(name, monkeypatch):
    """Each row enters the answer and a former one leaves it; the guess from a sample is useless."""
    monkeypatch.setenv("DDH_KERNEL", name)
    ones = np.sort(np.random.default_rng(0).integers(0, 65, 9000))[::-1]
    database = np.packbits(np.arange(64) < ones[:, None], axis=1)
    queries = np.zeros((70, 8), dtype=np.uint8)
    distances, indices = codes.search(queries, database, 40)
    order = np.argsort(ones, kind="stable")[:40]
    assert (indices == order).all()
    assert (distances == ones[order]).all()


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "numpy"])
def test_a_sample_that_misleads(name, monkeypatch):
    """All rows of the sample are near, hardly any other: the guess must be taken back."""
    monkeypatch.setenv("DDH_KERNEL", name)
    rng = np.random.default_rng(1)
    database = rng.integers(0, 256, (128 * 40, 8), dtype=np.uint8)
    database[::128] = 0
    queries = np.zeros((40, 8), dtype=np.uint8)
    distances, indices = codes.search(queries, database, 70)
    expected = matrix_distances(queries, database)
    order = oracle_order(expected)[:, :70]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(distances, np.take_along_axis(expected, order, 1))


@pytest.mark.parametrize("name", KERNELS)
def test_shards_of_rows_for_few_queries(name, monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", name)
    queries, database = batch(64, 3, 300_000, flips=0.1)
    one, three = (codes.search(queries, database, 50, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.indices, three.indices)
    np.testing.assert_array_equal(one.distances, three.distances)
    one, three = (codes.search_radius(queries, database, 4, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.limits, three.limits)
    np.testing.assert_array_equal(one.indices, three.indices)


class TestEmpty:
    none = np.empty((0, 8), dtype=np.uint8)
    rows = np.zeros((3, 8), dtype=np.uint8)

    def test_no_rows(self):
        distances, indices = codes.search(self.rows, self.none, 5)
        assert distances.shape == indices.shape == (3, 0)
        assert codes.search_radius(self.rows, self.none, 5).limits.tolist() == [0, 0, 0, 0]
        assert codes.hamming(self.rows, self.none).shape == (3, 0)

    def test_no_queries(self):
        assert codes.search(self.none, self.rows, 2).indices.shape == (0, 2)
        assert len(codes.search_radius(self.none, self.rows, 2)) == 0

    def test_result_of_a_query(self):
        result = codes.search_radius(self.rows, self.rows, 0)
        assert [indices.tolist() for _, indices in result] == [[0, 1, 2]] * 3
        assert result[-1].indices.tolist() == [0, 1, 2]
        with pytest.raises(IndexError):
            result[3]


class TestMisuse:
    rows = np.zeros((3, 8), dtype=np.uint8)

    def test_other_dtype(self):
        with pytest.raises(InputError, match="uint8, not int64"):
            codes.search(np.zeros((1, 8), dtype=np.int64), self.rows, 1)

    def test_one_dimension(self):
        with pytest.raises(InputError, match=r"shape \(8,\)"):
            codes.search(self.rows[0], self.rows, 1)

    def test_other_width(self):
        with pytest.raises(InputError, match="4 bytes per code and the database 8"):
            codes.search(self.rows[:, :4], self.rows, 1)

    def test_too_wide(self):
        with pytest.raises(InputError, match="1 to 512 bytes"):
            codes.hamming(np.zeros((1, 513), np.uint8), np.zeros((1, 513), np.uint8))

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


@pytest.mark.parametrize("name", KERNELS)
def test_strided_and_read_only_rows(name, monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", name)
    wide = np.random.default_rng(0).integers(0, 256, (50, 16), dtype=np.uint8)
    wide.setflags(write=False)
    assert codes.search(wide[::2, :8], wide[:, :8], 1).distances.sum() == 0


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 31, 32, 33, 64, 512])
@pytest.mark.parametrize("queries", [1, 40])
def test_every_row_is_the_complement_of_the_query(name, width, queries, monkeypatch):
    """The largest distance of all, which 256-bit codes do not fit into a byte."""
    monkeypatch.setenv("DDH_KERNEL", name)
    query = np.random.default_rng(width).integers(0, 256, (1, width), dtype=np.uint8)
    database = np.repeat(~query, 200, axis=0)
    many = np.repeat(query, queries, axis=0)
    for k in (1, 3, 200):
        found = codes.search(many, database, k, threads=1)
        np.testing.assert_array_equal(found.distances, np.full((queries, k), 8 * width))
        np.testing.assert_array_equal(found.indices, np.tile(np.arange(k), (queries, 1)))
    found = codes.search_radius(many, database, 8 * width)
    np.testing.assert_array_equal(found.indices, np.tile(np.arange(200), queries))
    assert not len(codes.search_radius(many, database, 8 * width - 1).indices)


SIZES = [8, 16, 31, 32, 33, 63, 64, 65, 96, 97, 127, 128, 129, 200, 512, 600]
INFINITE = float("inf")


class TestWays:
    """How many queries are answered how; costs are of rows, a table, and planes."""

    @pytest.fixture(autouse=True)
    def native(self):
        self.native = pytest.importorskip("ddh.codes.kernel_native")

    def ways(self, queries, table, *costs):
        found = self.native.cheapest_ways(queries, table, self.native.Costs(*costs))
        stops = [0, *(part.stop for part, _ in found)]
        assert [part.start for part, _ in found] == stops[:-1]
        assert stops[-1] == queries
        return [(part.stop - part.start, way.name.lower()) for part, way in found]

    def test_tables_and_rows(self):
        costs = 1.0, 40.0, 24.0, INFINITE, INFINITE
        assert self.ways(20, 64, *costs) == [(20, "rows")]
        assert self.ways(32, 64, *costs) == [(32, "tables")]
        assert self.ways(39, 64, *costs) == [(39, "rows")]
        assert self.ways(64, 64, *costs) == [(64, "tables")]
        assert self.ways(100, 64, *costs) == [(64, "tables"), (36, "rows")]
        assert self.ways(110, 64, *costs) == [(64, "tables"), (46, "tables")]
        assert self.ways(96, 64, *costs) == [(64, "tables"), (32, "tables")]
        assert self.ways(128, 64, 1.0, 80.0, 80.0, INFINITE, INFINITE) == [(128, "rows")]

    def test_planes_for_what_does_not_fill_a_table(self):
        costs = 1.0, 16.0, 15.0, 4.0, 0.3
        assert self.ways(5, 64, *costs) == [(5, "rows")]
        assert self.ways(30, 64, *costs) == [(30, "planes")]
        assert self.ways(96, 64, *costs) == [(64, "tables"), (32, "planes")]
        assert self.ways(66, 64, *costs) == [(64, "tables"), (2, "rows")]

    @pytest.mark.parametrize("table", [0, 64])
    def test_planes_alone_where_they_are_as_fast(self, table):
        costs = 1.0, *([18.0 if table else INFINITE] * 2), 1.0, 0.25
        for queries in SIZES:
            assert self.ways(queries, table, *costs) == [(queries, "planes")]
        assert self.ways(1, table, *costs) == [(1, "rows")]

    @pytest.mark.parametrize(
        "costs", [(1, 16, 10, 4, 0.3), (1, 90, 50, 2, 0.1), (1, 20, 12, 2, 0.31)]
    )
    def test_no_other_choice_is_cheaper(self, costs):
        each, table, half, block, more = costs
        price = {"rows": lambda n: n * each, "planes": lambda n: block + n * more}
        price["tables"] = lambda n: (
            n // 64 * table + (n % 64 > 32) * table + (0 < n % 64 <= 32) * half
        )
        for queries in SIZES:
            chosen = sum(price[way](n) for n, way in self.ways(queries, 64, *costs))
            assert chosen <= min(one(queries) for one in price.values()) + 1e-9

    def test_the_trial_measures_what_there_is(self):
        for variant in self.native.VARIANTS:
            for width in (8, 40):
                costs = self.native._costs(variant, width)
                assert 0 < costs.each < INFINITE
                assert (costs.table < INFINITE) == (self.native._table(variant, width) > 0)
                assert (costs.more < INFINITE) == (variant in self.native._PLANES)
                assert min(costs) >= 0


def answer_by(monkeypatch, way):
    kernel_native = pytest.importorskip("ddh.codes.kernel_native")
    ways = lambda self, queries, database: [(slice(0, queries), kernel_native.Way(way))]  # noqa: E731
    monkeypatch.setattr(kernel_native.NativeKernel, "_ways", ways)


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("bits", [32, 64, 128, 256, 320])
@pytest.mark.parametrize("name", KERNELS)
def test_any_number_of_queries(name, bits, measured, monkeypatch):
    """Full tables and what is left over, with and without a trial."""
    monkeypatch.setenv("DDH_KERNEL", name)
    if measured:
        kernel_native = pytest.importorskip("ddh.codes.kernel_native")
        costs = kernel_native.Costs(1.0, 16.0, 9.0, 4.0, 0.3)
        monkeypatch.setattr(kernel_native, "_costs", lambda variant, width: costs)
        monkeypatch.setattr(kernel_native, "_TRIAL_PAIRS", 1)
    queries, database = batch(bits, 600, 1300)
    expected = matrix_distances(queries, database)
    order = oracle_order(expected)[:, :15]
    for size in SIZES:
        found = codes.search(queries[:size], database, 15, threads=1)
        np.testing.assert_array_equal(found.indices, order[:size])
    within = codes.search_radius(queries[:97], database, bits // 4, threads=1)
    assert len(within.indices) == (expected[:97] <= bits // 4).sum()


@pytest.mark.parametrize("name", [name for name in KERNELS if name.startswith("avx")])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 8, 12, 16, 25, 32, 33, 64, 200, 512])
def test_planes_of_bits(name, width, monkeypatch):
    """Blocks of 256 or 512 rows and what is left of one; more queries than are held at once;
    queries with many copies, with none, and on the other side of the cube."""
    monkeypatch.setenv("DDH_KERNEL", name)
    answer_by(monkeypatch, 2)
    rng = np.random.default_rng(width)
    database = rng.integers(0, 256, (2200, width), dtype=np.uint8)
    database[rng.random(2200) < 0.3] = database[5]
    queries = rng.integers(0, 256, (560, width), dtype=np.uint8)
    queries[:200] = database[:200] ^ np.packbits(rng.random((200, 8 * width)) < 0.02, axis=1)
    queries[200:300] = ~database[:100]
    expected = matrix_distances(queries, database)
    order = oracle_order(expected)
    for rows in (2200, 512, 2048 + 127, 2048 + 128):
        kept = order[order < rows].reshape(len(queries), rows)
        found = codes.search(queries, database[:rows], 30, threads=1)
        np.testing.assert_array_equal(found.indices, kept[:, :30])
        true = np.take_along_axis(expected, kept[:, :30], 1)
        np.testing.assert_array_equal(found.distances, true)
    within = codes.search_radius(queries, database, 3 * width)
    assert len(within.indices) == (expected <= 3 * width).sum()
    for query in (0, 150, 250, 559):
        near = order[query][expected[query][order[query]] <= 3 * width]
        np.testing.assert_array_equal(within[query].indices, near)
