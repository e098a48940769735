"""Rankings by real-valued vectors against a plain sort."""

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.evaluation import mean_average_precision_of_vectors
from ddh.evaluation.ranking import seeded_order


def oracle(similarity, labels, query_labels, k, order):
    values = []
    for q, row in enumerate(similarity):
        ranked = order[np.argsort(-row[order], kind="stable")][:k]
        good = labels[ranked] == query_labels[q]
        precision = np.cumsum(good) / np.arange(1, len(good) + 1)
        values.append((precision * good).sum() / max(good.sum(), 1))
    return np.array(values)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("k", [1, 7, 40, 99])
def test_cosine_ranking(k, device):
    rng = np.random.default_rng(k)
    queries, database = rng.standard_normal((9, 5)), rng.standard_normal((40, 5))
    database[3] = 0
    labels = rng.integers(0, 3, 49)
    score = mean_average_precision_of_vectors(
        queries, database, labels[:9], labels[9:], k=k, device=device
    )
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    length = np.linalg.norm(database, axis=1, keepdims=True)
    similarity = unit @ (database / np.where(length == 0, 1, length)).T
    expected = oracle(similarity, labels[9:], labels[:9], k, seeded_order(40, 0))
    np.testing.assert_allclose(score.per_query, expected)
    assert score.protocol.distance == "cosine of real vectors"


@pytest.mark.parametrize("device", [None, "cpu"])
def test_asymmetric_ranking_puts_equal_codes_in_seeded_order(device):
    rng = np.random.default_rng(1)
    queries = rng.integers(-2, 3, (20, 4)).astype(float)
    database = rng.choice([-1, 1], (60, 4))
    labels = rng.integers(0, 3, 80)
    score = mean_average_precision_of_vectors(
        queries,
        database,
        labels[:20],
        labels[20:],
        k=10,
        distance="asymmetric",
        seed=5,
        device=device,
    )
    expected = oracle(queries @ database.T, labels[20:], labels[:20], 10, seeded_order(60, 5))
    np.testing.assert_allclose(score.per_query, expected)
    assert "asymmetric" in str(score)


def test_bad_input_is_refused():
    data, labels = np.eye(3), [0, 1, 2]
    with pytest.raises(InputError, match="rows of one length"):
        mean_average_precision_of_vectors(data[:, :2], data, labels, labels)
    with pytest.raises(InputError, match="NaN"):
        mean_average_precision_of_vectors(data * np.nan, data, labels, labels)
    with pytest.raises(InputError, match="with \\+-1 codes"):
        mean_average_precision_of_vectors(data, data, labels, labels, distance="asymmetric")
    with pytest.raises(InputError, match="k is 1 or more"):
        mean_average_precision_of_vectors(data, data, labels, labels, k=0)
    with pytest.raises(InputError, match="distance is one of"):
        mean_average_precision_of_vectors(data, data, labels, labels, distance="l2")
