"""Precision, recall, curves, NDCG, diagnostics and means over seeds against plain loops."""

import json
import pickle
from itertools import permutations

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.evaluation import Protocol, Retrieval, Score, diagnose, over_seeds


def codes(rng, rows, bits):
    return rng.choice(np.array([-1, 1], np.int8), (rows, bits))


@pytest.fixture
def small():
    """Twelve queries against six items of three bits: every order of the ties can be walked."""
    rng = np.random.default_rng(11)
    queries, database = codes(rng, 12, 3), codes(rng, 6, 3)
    return queries, database, rng.integers(0, 3, 12), rng.integers(0, 2, 6)


def orders(query, database):
    distance = (query != database).sum(axis=1)
    return [
        np.array(order)
        for order in permutations(range(len(database)))
        if (np.diff(distance[list(order)]) >= 0).all()
    ]


@pytest.mark.parametrize("k", [1, 2, 4, 6, 10])
def test_precision_and_recall_at_k(small, k):
    queries, database, query_labels, labels = small
    data = Retrieval(*small)
    precision, recall = data.precision_at(k), data.recall_at(k)
    for q in range(len(queries)):
        relevant = labels == query_labels[q]
        hits = np.mean([relevant[order[:k]].sum() for order in orders(queries[q], database)])
        assert precision.per_query[q] == pytest.approx(hits / min(k, 6))
        assert recall.per_query[q] == pytest.approx(hits / max(relevant.sum(), 1))
    assert precision.protocol.title == f"precision@{k}"


def test_curve_by_rank_is_the_mean_over_all_orders(small):
    queries, database, query_labels, labels = small
    curve = Retrieval(*small).curve_by_rank()
    precision, recall, answerable = np.zeros(6), np.zeros(6), 0
    for q in range(len(queries)):
        relevant = labels == query_labels[q]
        hits = np.mean(
            [np.cumsum(relevant[order]) for order in orders(queries[q], database)], axis=0
        )
        precision += hits / np.arange(1, 7) / len(queries)
        recall += hits / max(relevant.sum(), 1)
        answerable += bool(relevant.any())
    assert 0 < answerable < len(queries)
    np.testing.assert_allclose(curve.precision, precision, atol=1e-12)
    np.testing.assert_allclose(curve.recall, recall / answerable, atol=1e-12)
    assert curve.at.tolist() == [1, 2, 3, 4, 5, 6]


def test_curve_by_radius_pools_the_pairs():
    rng = np.random.default_rng(12)
    queries, database = codes(rng, 20, 9), codes(rng, 60, 9)
    labels = rng.integers(0, 3, 80)
    curve = Retrieval(queries, database, labels[:20], labels[20:]).curve_by_radius()
    distance = (queries[:, None] != database[None]).sum(axis=2)
    relevant = labels[:20, None] == labels[None, 20:]
    for radius, precision, recall in zip(curve.at, curve.precision, curve.recall, strict=True):
        found = distance <= radius
        assert precision == pytest.approx(relevant[found].mean())
        assert recall == pytest.approx((relevant & found).sum() / relevant.sum())
    assert curve.at[0] == distance.min()
    assert curve.at[-1] == 9


def test_a_thinned_curve_keeps_its_ends():
    rng = np.random.default_rng(13)
    labels = rng.integers(0, 3, 2000)
    data = codes(rng, 2000, 16)
    curve = Retrieval(data[:5], data[5:], labels[:5], labels[5:]).curve_by_rank()
    thin = curve.thinned(50)
    assert len(thin.at) <= 50
    assert (thin.at[0], thin.at[-1]) == (1, 1995)
    assert thin.precision[-1] == curve.precision[-1]
    assert thin.thinned(100) is thin


def test_precision_within_radius_counts_an_empty_ball_as_zero():
    database = np.array([[1, 1, 1, 1], [1, 1, 1, -1], [1, -1, -1, -1]], np.int8)
    queries = np.array([[1, 1, 1, 1], [-1, -1, -1, -1]], np.int8)
    data = Retrieval(queries, database, [0, 0], [0, 1, 0])
    assert data.precision_within(0).per_query.tolist() == [1.0, 0.0]
    assert data.precision_within(1).per_query.tolist() == [0.5, 1.0]
    assert float(data.precision_within(2)) == pytest.approx((0.5 + 1.0) / 2)
    assert "precision within radius 2" in str(data.precision_within())
    with pytest.raises(InputError, match="radius is 0 or more"):
        data.precision_within(-1)


def loop_ndcg(shared, order, k):
    def dcg(grades):
        return sum((2**g - 1) / np.log2(rank + 1) for rank, g in enumerate(grades[:k], start=1))

    best = dcg(sorted(shared, reverse=True))
    return dcg([shared[i] for i in order]) / best if best else 0.0


@pytest.mark.parametrize("k", [1, 3, 6, None])
@pytest.mark.parametrize("concepts", [0, 4])
def test_ndcg_is_the_mean_over_all_orders(k, concepts):
    rng = np.random.default_rng(14)
    queries, database = codes(rng, 8, 3), codes(rng, 6, 3)
    if concepts:
        query_labels = rng.integers(0, 2, (8, concepts))
        labels = rng.integers(0, 2, (6, concepts))
        shared = query_labels @ labels.T
    else:
        query_labels, labels = rng.integers(0, 3, 8), rng.integers(0, 2, 6)
        shared = (query_labels[:, None] == labels).astype(int)
    score = Retrieval(queries, database, query_labels, labels).ndcg(k)
    for q in range(8):
        values = [
            loop_ndcg(shared[q].tolist(), order, k or 6) for order in orders(queries[q], database)
        ]
        assert score.per_query[q] == pytest.approx(np.mean(values), abs=1e-12)


def test_diagnostics_equal_plain_statistics():
    rng = np.random.default_rng(15)
    data = codes(rng, 500, 6)
    data[:, 5] = data[:, 0]
    data[:, 4] = 1
    found = diagnose(data)
    rows = [tuple(row) for row in data.tolist()]
    counts = np.array([rows.count(row) for row in set(rows)])
    assert found.unique_codes == len(counts)
    assert found.unique_ratio == len(counts) / 500
    assert found.largest_bucket == counts.max()
    same = sum(a == b for i, a in enumerate(rows) for b in rows[:i])
    assert found.collision_probability == pytest.approx(same / (500 * 499 / 2))
    share = counts / 500
    assert found.code_entropy == pytest.approx(-(share * np.log2(share)).sum())
    np.testing.assert_allclose(found.balance, data.mean(axis=0))
    correlation = np.corrcoef(data[:, [0, 1, 2, 3, 5]].T)
    np.testing.assert_allclose(
        found.correlation[np.ix_([0, 1, 2, 3, 5], [0, 1, 2, 3, 5])], correlation, atol=1e-12
    )
    assert (found.correlation[4] == 0).all()
    assert found.bit_entropy[4] == 0
    assert found.worst_balance == 1
    assert 0 < found.mean_correlation < 1
    assert "500 codes of 6 bits" in str(found)
    json.dumps(found.as_dict())


def test_diagnostics_of_packed_codes_over_several_blocks():
    rng = np.random.default_rng(16)
    data = codes(rng, 9000, 12)
    plain, packed = diagnose(data), diagnose(np.packbits(data > 0, axis=1), bits=12)
    np.testing.assert_array_equal(plain.correlation, packed.correlation)
    assert plain.unique_codes == packed.unique_codes


def test_one_code_alone_has_no_collision():
    found = diagnose(np.ones((1, 1), np.int8))
    assert (found.collision_probability, found.code_entropy, found.mean_correlation) == (0, 0, 0)


def test_mean_over_seeds_and_its_deviation():
    protocol = Protocol(data="digits", split="a", bits=8)
    scores = [Score(v, protocol.replace(seeds=(s,))) for s, v in enumerate((0.5, 0.6, 0.7))]
    mean = over_seeds(scores)
    assert float(mean) == pytest.approx(0.6)
    assert mean.deviation == pytest.approx(0.1)
    assert mean.protocol.seeds == (0, 1, 2)
    assert "0.6000 +- 0.1000" in str(mean)
    assert over_seeds(scores[:1]).deviation is None
    other = Score(0.5, protocol.replace(bits=16))
    with pytest.raises(InputError, match="one protocol"):
        over_seeds([scores[0], other])
    with pytest.raises(InputError, match="one protocol"):
        over_seeds([])


def test_a_score_is_a_float_that_survives_json_and_pickle():
    score = Score(0.25, Protocol(k=5), [0.0, 0.5], deviation=0.1, empty=2)
    assert score + 1 == 1.25
    assert f"{score:.2f}" == "0.25"
    assert json.loads(score.to_json())["protocol"]["k"] == 5
    again = pickle.loads(pickle.dumps(score))
    assert (float(again), again.deviation, again.empty) == (0.25, 0.1, 2)
    assert again.protocol == score.protocol


def test_importing_the_measures_brings_neither_torch_nor_sklearn():
    import subprocess
    import sys

    check = "import sys, ddh.evaluation; print({'torch', 'sklearn'} & set(sys.modules) or 'light')"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "light"
