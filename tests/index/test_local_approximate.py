"""Approximate search in a local index: inverted lists, and the rows that were written since."""

import numpy as np
import pytest

import ddh.index
from ddh.bench.search_data import clustered
from ddh.index import scan

ROWS = 30_000


@pytest.fixture(scope="module")
def codes():
    return clustered(ROWS + 2000, 64, 0, 0)


@pytest.fixture
def index(tmp_path, codes):
    with ddh.index.open(tmp_path / "index", bits=64) as index:
        index.add([str(row) for row in range(ROWS)], codes[:ROWS])
        yield index


@pytest.fixture
def built(monkeypatch):
    made = []
    lists = scan.Lists
    monkeypatch.setattr(scan, "Lists", lambda *a: made.append(1) or lists(*a))
    return made


def recall(index, queries, k=10, **options):
    found = index.search(queries, k, approximate=True, **options)
    true = index.search(queries, k, **options)
    same = [
        len({hit.key for hit in one} & {hit.key for hit in other})
        for one, other in zip(found, true, strict=True)
    ]
    return sum(same) / sum(map(len, true))


def test_lists_answer_when_asked_and_their_recall_is_reported(index, built, codes):
    queries = clustered(100, 64, 0, 1)
    index.search(queries, 10)
    assert not built
    assert recall(index, queries) > 0.95
    assert built == [1]
    assert index._lists.index.probes > 0, "lists should pay for these codes"
    assert "recall 0.9" in index.info().details["approximate"]


def test_rows_that_come_and_go(index, built, codes):
    queries = codes[ROWS : ROWS + 20]
    index.search(queries, 1, approximate=True)
    index.add([f"new {row}" for row in range(2000)], codes[ROWS:])
    found = index.search(queries, 1, approximate=True)
    assert all(hits[0].distance == 0 for hits in found)
    index.delete([f"new {row}" for row in range(20)])
    keys = {hit.key for hits in index.search(queries, 30, approximate=True) for hit in hits}
    assert not keys & {f"new {row}" for row in range(20)}
    assert built == [1]
    index.compact()
    assert recall(index, queries) > 0.95
    assert built == [1, 1]


def test_filters_and_scores(index):
    index.upsert(["a"], clustered(1, 64, 0, 2), metadata=[{"kind": "x"}])
    hits = index.search(clustered(1, 64, 0, 1), 5, where={"kind": "x"}, approximate=True)[0]
    assert [hit.key for hit in hits] == ["a"]
    values = np.random.default_rng(0).standard_normal((1, 64))
    queries = np.packbits(values > 0, axis=1)
    assert recall(index, queries, values=values) >= 0.8


def test_few_rows_are_compared_exactly(tmp_path, codes):
    with ddh.index.open(tmp_path / "small", bits=64) as index:
        assert index.search(codes[:2], 3, approximate=True) == [[], []]
        index.add(["a", "b"], codes[:2])
        assert [hit.key for hit in index.search(codes[:1], 3, approximate=True)[0]] == ["a", "b"]
