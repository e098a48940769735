import json

import numpy as np
import pytest
from scipy import sparse

from ddh._core.errors import InputError
from ddh.neighbours import expand, knn, pairwise_labels, precision_over_k, statistics


def graph(pairs, images):
    S = np.zeros((images, images), np.int8)
    for i, j in pairs:
        S[i, j] = S[j, i] = 1
    return sparse.csr_array(S)


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.data[:600], found.target[:600]


def test_a_graph_known_by_hand():
    found = statistics(graph([(0, 1), (1, 2), (3, 4)], 6), [7, 7, 8, -1, 7, 9])
    assert (found.images, found.edges, found.isolated) == (6, 3, 1)
    assert (found.degree_min, found.degree_max, found.degree_mean) == (0, 2, 1.0)
    assert (found.components, found.largest_share) == (3, 0.5)
    # 0-1 right, 1-2 wrong, 3-4 not judged: image 3 has no label
    assert found.precision == 0.5
    assert found.first_precision is None
    assert found.hubs is None


def test_hubs():
    lists = np.array([[1], [0], [0], [0], [0]])
    found = statistics(graph([(0, 1)], 5), lists=lists).hubs
    assert found.largest == 4
    assert found.top[0] == (0, 4)
    named = np.array([4, 1, 0, 0, 0])
    assert found.skewness == pytest.approx(((named - 1) ** 3).mean() / named.std() ** 3)


@pytest.mark.parametrize("several", [False, True])
def test_precision_of_both_stages(digits, several):
    X, y = digits
    matrix = np.eye(10, dtype=int)[y]
    labels = matrix if several else y
    lists = knn(X, 10)
    S = expand(lists, 4, X)
    found = statistics(S, labels, lists=lists)
    assert found.first_precision == pytest.approx((y[lists] == y[:, None]).mean())
    assert found.precision == pytest.approx((y[:, None] == y)[S.toarray().astype(bool)].mean())


def test_several_labels_agree_when_they_share_one():
    labels = [[1, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 0]]
    found = statistics(graph([(0, 1), (0, 2), (1, 2), (2, 3)], 4), labels)
    assert found.precision == pytest.approx(2 / 3)


def test_no_labels_at_all_give_no_precision():
    assert statistics(graph([(0, 1)], 2), [-1, -1]).precision is None


def test_figure_2_falls_with_k(digits):
    X, y = digits
    points = precision_over_k(X, y, (5, 15, 60), k2=6)
    assert [point.k1 for point in points] == [5, 15, 60]
    assert points[0].first > points[1].first > points[2].first
    S = pairwise_labels(X, 15, 6)
    assert points[1].second == pytest.approx(statistics(S, y).precision)
    assert points[1].mean_degree == pytest.approx(S.nnz / len(X))


def test_text_and_json(digits):
    X, y = digits
    lists = knn(X, 5)
    found = statistics(expand(lists, 3, X), y, lists=lists)
    assert json.loads(json.dumps(found.to_dict()))["images"] == 600
    for word in ("600 images", "degree", "isolated", "components", "hubs", "precision"):
        assert word in str(found)


def test_bad_input():
    S = graph([(0, 1)], 3)
    with pytest.raises(InputError, match="3 rows"):
        statistics(S, [1, 2])
    with pytest.raises(InputError, match="2 lists do not fit a graph of 3"):
        statistics(S, lists=[[1], [0]])
    with pytest.raises(InputError, match="square"):
        statistics(sparse.csr_array(np.ones((2, 3))))
    with pytest.raises(InputError, match="at least one"):
        precision_over_k(np.eye(3), [0, 1, 1], ())
