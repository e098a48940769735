"""Approximate lists: out of core, in shards, with a report that is true."""

import numpy as np
import pytest

from ddh._core.errors import DDHWarning, InputError
from ddh.neighbours import (
    CosineSpace,
    IVFIndex,
    approximate,
    approximate_labels,
    cosine,
    cosine_space,
    expand,
    knn,
    pairwise_labels,
    shard_lists,
    statistics,
    tune,
)
from ddh.neighbours.approximate import ApproximateLists, approximate_lists


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20, 24))
    rows = centres[rng.integers(0, 20, 4000)] + rng.standard_normal((4000, 24))
    return rows.astype(np.float16)


def test_exact_rows_are_the_exact_lists(X, monkeypatch):
    monkeypatch.setattr(cosine, "PIECE", 24 * 300)
    rows = np.array([0, 7, 299, 300, 1999, 3999], np.int32)
    np.testing.assert_array_equal(
        approximate.exact_rows(cosine_space(X), rows, 12), knn(X, 12)[rows]
    )
    few = np.arange(5, dtype=np.int32)
    np.testing.assert_array_equal(
        approximate.exact_rows(cosine_space(X[:5]), few, 4), knn(X[:5], 4)
    )


def test_mapped_features_give_what_memory_gives(X, tmp_path, monkeypatch):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    inside = approximate_lists(cosine_space(X, centre=True), 10)
    monkeypatch.setattr(approximate, "LARGE_LISTS", 1000)
    found = approximate_lists(cosine_space(mapped, centre=True), 10, folder=tmp_path)
    assert isinstance(found.lists, np.memmap)
    np.testing.assert_array_equal(found.lists, inside.lists)
    assert found.recall == inside.recall >= 0.95


@pytest.mark.parametrize("dimensions", [32, 33])
def test_rows_as_short_codes_reach_the_recall_too(dimensions, monkeypatch):
    monkeypatch.setattr(approximate, "CODED_ROWS", 1000)
    X = np.random.default_rng(2).standard_normal((3000, dimensions)).astype(np.float32)
    index = IVFIndex.build(cosine_space(X))
    assert index.coded
    assert index.index.code_size == 8 + dimensions % 2  # bytes: 4 bits for two dimensions
    found = approximate_lists(cosine_space(X), 5)
    assert found.recall >= 0.95
    true = knn(X, 5)
    share = np.mean([np.isin(a, b).mean() for a, b in zip(true, found.lists, strict=True)])
    assert share == pytest.approx(found.recall, abs=0.03)


def test_shards_of_a_saved_index_are_rows_of_the_whole(X, tmp_path):
    space = cosine_space(X, centre=True)
    index = IVFIndex.build(space)
    nprobe = tune(space, index, 10).value
    index.save(tmp_path / "index")
    np.save(tmp_path / "X.npy", X)
    # what another machine does, from files and from the little that it is told
    there = CosineSpace(np.load(tmp_path / "X.npy", mmap_mode="r"), space.mean, space.squares)
    opened = IVFIndex.open(tmp_path / "index")
    shards = [shard_lists(there, opened, a, b, 10, nprobe) for a, b in [(0, 1300), (1300, 4000)]]
    np.testing.assert_array_equal(np.concatenate(shards), approximate_lists(space, 10).lists)
    with pytest.raises(InputError, match="no index"):
        IVFIndex.open(tmp_path)


def test_refined_lists_are_the_best_of_the_neighbours_lists(X):
    space, k = cosine_space(X, centre=True), 6
    rng = np.random.default_rng(3)
    lists = np.array([rng.choice(len(X) - 1, k, replace=False) for _ in X], np.int32)
    lists += lists >= np.arange(len(X))[:, None]  # nobody is his own neighbour
    rows = np.array([0, 5, 3999], np.int32)
    better = approximate.refined(space, rows, lists[rows], lists[lists[rows]])
    for row, found in zip(rows, better, strict=True):
        known = np.unique([*lists[row], *lists[lists[row]].ravel()])
        known = known[known != row]
        keys = space.order_keys(np.full(len(known), row), known)
        np.testing.assert_array_equal(found, known[np.lexsort((known, -keys))[:k]])


def test_refined_lists_reach_the_recall_with_fewer_probes(monkeypatch):
    X = np.random.default_rng(4).standard_normal((4000, 16)).astype(np.float32)
    space = cosine_space(X)
    plain = approximate_lists(space, 10, recall=0.98)
    monkeypatch.setattr(approximate, "REFINED_ROWS", 1000)
    found = approximate_lists(space, 10, recall=0.98)
    assert found.index.endswith(", refined")
    assert int(found.index.split()[2].strip(",")) < int(plain.index.split()[2])
    share = np.mean([np.isin(a, b).mean() for a, b in zip(knn(X, 10), found.lists, strict=True)])
    assert share == pytest.approx(found.recall, abs=0.02)
    assert found.recall >= 0.98


def test_of_equal_pictures_any_is_a_neighbour():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 8)).astype(np.float32)[rng.integers(0, 30, 1200)]
    X[:40] = 0  # their cosine with everything is 0
    found = approximate_lists(cosine_space(X), 5)
    assert found.recall >= 0.95
    members = np.arange(40, 1200)
    assert (X[found.lists[members]] == X[members, None]).all(axis=2).mean() > 0.95


def test_nprobe_is_no_larger_than_needed(X):
    space = cosine_space(X)
    index = IVFIndex.build(space)
    chosen = tune(space, index, 10, 0.9)
    more = tune(space, index, 10, 0.99)
    assert chosen.recall >= 0.9
    assert more.recall >= 0.99
    assert chosen.value < more.value
    with pytest.warns(DDHWarning, match=r"1\.01 was asked for"):
        assert tune(space, index, 10, 1.01).recall < 1.01


def test_the_report_tells_how_far_labels_are_the_exact_ones(X):
    S, report = approximate_labels(X, 10, 4, recall=0.9)
    assert (pairwise_labels(X, 10, 4, approximate=True, recall=0.9) != S).nnz == 0
    exact = pairwise_labels(X, 10, 4)
    common = S.multiply(exact).nnz
    # the report counts on 24 rows, before S is made symmetric
    assert report.label_recall == pytest.approx(common / exact.nnz, abs=0.1)
    assert report.label_precision == pytest.approx(common / S.nnz, abs=0.1)
    assert report.recall < 1
    assert "exact labels" in str(statistics(S, approximation=report))
    assert statistics(S, approximation=report).to_dict()["approximation"]["index"] == report.index


def test_the_report_on_exact_lists_is_perfect(X, monkeypatch):
    space, lists = cosine_space(X), knn(X, 10)
    found = ApproximateLists(lists, 1.0, 512, "exact", {"search": 1.0})
    monkeypatch.setattr(approximate, "BLOCK", 700)
    report = approximate.judge(space, found, 4, 0.95)
    assert report.label_recall == report.label_precision == 1
    # and the labels it makes are those of the expansion, before or after `or`
    images = np.arange(len(X), dtype=np.int32)
    S = expand(lists, 4, X).toarray()
    made = approximate.labels_of_first(space, images, lists, 4, 20).toarray()
    assert made.any(axis=1).all()
    assert (made <= S[:20]).all()
