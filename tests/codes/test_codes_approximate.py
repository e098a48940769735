"""The approximate index: recall, order, and where it refuses to approximate."""

import numpy as np
import pytest

from ddh import codes
from ddh._core.errors import InputError


def lsh_codes(rows, bits, seed, centres=300, noise=0.4):
    """Signs of random projections of points around some centres."""
    fixed, rng = np.random.default_rng(5), np.random.default_rng(seed)
    around, planes = fixed.standard_normal((centres, 32)), fixed.standard_normal((32, bits))
    points = around[rng.integers(centres, size=rows)] + noise * rng.standard_normal((rows, 32))
    return np.packbits(points @ planes > 0, axis=1)


def recall(found, true):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found, true, strict=True)])


@pytest.fixture(scope="module")
def database():
    return lsh_codes(60_000, 64, seed=1)


@pytest.fixture(scope="module")
def index(database):
    return codes.ApproximateIndex(database, 64)


def test_recall(database, index):
    queries = lsh_codes(500, 64, seed=2)
    true = codes.search(queries, database, 10)
    found = index.search(queries, 10)
    assert 0 < index.probes < 60
    assert index.measured_recall >= 0.99
    assert recall(found.indices, true.indices) >= 0.985
    assert (found.distances[:, 0] == true.distances[:, 0]).mean() > 0.99


def test_answers_are_true_and_in_order(database, index):
    queries = lsh_codes(50, 64, seed=3)
    distances, indices = index.search(queries, 20)
    assert distances.dtype == np.int32
    assert indices.dtype == np.int64
    for query in range(50):
        measured = codes.hamming(queries[query : query + 1], database[indices[query]])[0]
        np.testing.assert_array_equal(distances[query], measured)
        keys = distances[query] * len(database) + indices[query]
        assert (np.diff(keys) > 0).all()


def test_all_lists_give_the_exact_answer(database, index):
    queries = lsh_codes(40, 64, seed=4)
    found = index.search(queries, 30, probes=len(index.centres))
    np.testing.assert_array_equal(found.indices, codes.search(queries, database, 30).indices)


def test_few_codes_are_all_compared_whatever_probes_says(database):
    few = codes.ApproximateIndex(database[:500], 64)
    assert few.probes == 0
    queries = lsh_codes(10, 64, seed=5)
    found, true = few.search(queries, 7, probes=3), codes.search(queries, database[:500], 7)
    np.testing.assert_array_equal(found.indices, true.indices)


def test_threads_and_kernels_agree(index, monkeypatch):
    queries = lsh_codes(30, 64, seed=5)
    one, two = index.search(queries, 10, threads=1), index.search(queries, 10, threads=2)
    np.testing.assert_array_equal(one.indices, two.indices)
    monkeypatch.setenv("DDH_KERNEL", "numpy")
    np.testing.assert_array_equal(index.search(queries, 10).indices, one.indices)


def test_more_lists_where_k_needs_them(database, index):
    found = index.search(lsh_codes(5, 64, seed=6), 5000, probes=1)
    assert found.indices.shape == (5, 5000)
    assert (found.indices >= 0).all()


def test_same_seed_same_index(database, index):
    again = codes.ApproximateIndex(database, 64)
    np.testing.assert_array_equal(again.centres, index.centres)
    assert again.probes == index.probes


def test_codes_without_structure_are_scanned():
    rng = np.random.default_rng(0)
    database = rng.integers(0, 256, (12_000, 8), dtype=np.uint8)
    index = codes.ApproximateIndex(database, 64)
    assert index.probes == 0
    assert "exact" in repr(index)
    queries = rng.integers(0, 256, (20, 8), dtype=np.uint8)
    np.testing.assert_array_equal(
        index.search(queries, 5).indices, codes.search(queries, database, 5).indices
    )


def test_odd_lengths():
    database = lsh_codes(12_000, 100, seed=1)
    index = codes.ApproximateIndex(database, 100)
    true = codes.search(database[:200], database, 10)
    assert recall(index.search(database[:200], 10).indices, true.indices) > 0.97


def test_few_rows_and_none():
    rows = lsh_codes(100, 64, seed=1)
    assert codes.ApproximateIndex(rows, 64).search(rows, 1).distances.sum() == 0
    none = codes.ApproximateIndex(rows[:0], 64)
    assert none.search(rows, 3).indices.shape == (100, 0)
    assert repr(none) == "ApproximateIndex(0 rows of 64 bits, exact)"


def test_misuse(index):
    with pytest.raises(InputError, match="recall"):
        codes.ApproximateIndex(np.zeros((3, 8), np.uint8), 64, recall=1.5)
    with pytest.raises(InputError, match="packed codes of 64 bits, uint8 rows of 8 bytes"):
        codes.ApproximateIndex(np.zeros((3, 4), np.uint8), 64)
    with pytest.raises(InputError, match="neighbours"):
        index.search(np.zeros((1, 8), np.uint8), 0)
