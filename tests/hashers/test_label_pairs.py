"""Labels and pairs against loops over all pairs."""

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh._core.labels import indicators
from ddh.hashers.label_pairs import PairSimilarity, labelled_rows, similarity


def several_labels() -> np.ndarray:
    labels = np.random.default_rng(0).random((30, 6)) < 0.25
    labels[labels.sum(axis=1) == 0, 0] = True
    return labels.astype(np.int64)


def by_loops(y: np.ndarray) -> np.ndarray:
    rows = [set(np.flatnonzero(row)) for row in indicators(y)]
    return np.array([[1 if a & b else -1 for b in rows] for a in rows])


@pytest.mark.parametrize("y", [np.array([3, 1, 3, 0, 1]), several_labels()])
def test_similarity_and_its_products(y):
    S = by_loops(y)
    matrix = indicators(y)
    np.testing.assert_array_equal(similarity(matrix, matrix), S)
    pairs = PairSimilarity(matrix)
    V = np.random.default_rng(1).normal(size=(len(y), 4))
    np.testing.assert_allclose(pairs @ V, S @ V, atol=1e-9)
    np.testing.assert_allclose(pairs @ V[:, 0], S @ V[:, 0], atol=1e-9)
    np.testing.assert_allclose(pairs.quadratic(V), V.T @ S @ V, atol=1e-9)
    np.testing.assert_array_equal(pairs.dense(), S)


def test_rows_without_a_label_have_no_indicator():
    np.testing.assert_array_equal(indicators(np.array([5, -1, 2])), [[0, 1], [0, 0], [1, 0]])


def test_labelled_rows_are_drawn_from_those_with_a_label():
    y = np.where(np.arange(50) % 2, -1, 4)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(labelled_rows(y, None, rng), np.arange(0, 50, 2))
    some = labelled_rows(y, 10, rng)
    assert len(np.unique(some)) == 10
    assert np.all(y[some] == 4)
    assert np.all(np.diff(some) > 0)
    matrix = np.zeros((5, 2), int)
    matrix[[1, 3], [0, 1]] = 1
    np.testing.assert_array_equal(labelled_rows(matrix, None, rng), [1, 3])


def test_one_label_is_not_enough():
    with pytest.raises(InputError, match=r"1 row\(s\) carry a label"):
        labelled_rows(np.array([-1, 0, -1]), None, np.random.default_rng(0))
