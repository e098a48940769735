"""Ranked lists and the share of true neighbours, against plain loops over all orders of ties."""

from itertools import permutations

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.codes import hamming, pack
from ddh.evaluation import (
    Protocol,
    RankedLists,
    Retrieval,
    mean_average_precision_of_vectors,
    nearest_by_cosine,
)
from ddh.evaluation.ranking import seeded_order


@pytest.fixture(params=["classes", "concepts"])
def labels(request):
    rng = np.random.default_rng(3)
    if request.param == "classes":
        return rng.integers(0, 3, 12), rng.integers(0, 3, 90)
    return tuple((rng.random((rows, 4)) < 0.3).astype(np.uint8) for rows in (12, 90))


@pytest.mark.parametrize("k", [1, 20, 90, 200])
def test_map_of_lists_is_that_of_the_vectors_they_rank(labels, k):
    rng = np.random.default_rng(0)
    queries, database = rng.standard_normal((12, 6)), rng.standard_normal((90, 6))
    order = seeded_order(90, 0)
    lists = order[nearest_by_cosine(queries, database[order], 90)]
    found = RankedLists(lists, *labels).mean_average_precision(k)
    expected = mean_average_precision_of_vectors(queries, database, *labels, k=k)
    np.testing.assert_allclose(found.per_query, expected.per_query)
    assert (found.empty, found.protocol.split) == (expected.empty, expected.protocol.split)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_nearest_by_cosine_is_the_stable_sort(device):
    rng = np.random.default_rng(1)
    queries, database = rng.standard_normal((7, 3)), rng.standard_normal((50, 3))
    database[10] = database[40]  # a tie
    unit = database / np.linalg.norm(database, axis=1, keepdims=True)
    expected = np.argsort(-(queries @ unit.T).round(12), axis=1, kind="stable")[:, :9]
    assert np.array_equal(nearest_by_cosine(queries, database, 9, device=device), expected)


def test_neighbour_recall_of_lists():
    lists = [[4, 2, 0, 1], [3, 1, 4, 2]]
    ranked = RankedLists(lists, [0, 1], [0, 0, 1, 1, 1], protocol=Protocol(data="own"))
    score = ranked.neighbour_recall([[2, 4], [0, 3]], k=2)
    assert score.per_query.tolist() == [1.0, 0.5]
    assert (score.protocol.title, score.protocol.data) == ("recall of the 2 nearest@2", "own")
    assert ranked.neighbour_recall([[2, 4], [0, 3]], k=1).per_query.tolist() == [0.5, 0.5]
    with pytest.raises(InputError, match="the lists hold 4 rows, 5 are asked for"):
        ranked.neighbour_recall([[2, 4], [0, 3]], k=100)
    with pytest.raises(InputError, match="outside of the 5"):
        ranked.neighbour_recall([[2, 5], [0, 3]], k=2)
    with pytest.raises(InputError, match="row numbers"):
        ranked.neighbour_recall([[2, 4]], k=2)
    with pytest.raises(InputError, match="outside of the 5"):
        RankedLists([[0, -1], [0, 1]], [0, 1], [0, 0, 1, 1, 1])


def test_neighbour_recall_by_code_is_the_mean_over_all_orders_of_ties():
    rng = np.random.default_rng(2)
    queries, database = rng.choice([-1, 1], (5, 3)), rng.choice([-1, 1], (6, 3))
    true = np.array([rng.permutation(6)[:2] for _ in range(5)])
    retrieval = Retrieval(queries, database, np.zeros(5, int), np.zeros(6, int))
    distances = hamming(pack(queries), pack(database))
    for k in (1, 3, 5, 6, 9):
        shares = []
        for order in permutations(range(6)):
            order = np.array(order)
            ranked = order[np.argsort(distances[:, order], axis=1, kind="stable")][:, :k]
            shares.append((true[:, :, None] == ranked[:, None, :]).any(axis=2).mean(axis=1))
        score = retrieval.neighbour_recall(true, k)
        np.testing.assert_allclose(score.per_query, np.mean(shares, axis=0))
        assert (score.protocol.ties, score.protocol.bits) == ("expected", 3)
    with pytest.raises(InputError, match="outside of the 6"):
        retrieval.neighbour_recall(true + 6)
