"""Confident neighbours: which they are, and how often one is drawn."""

import numpy as np
from scipy import sparse

from ddh.neighbours import knn
from ddh.pretrain.neighbour_positives import NeighbourPositives, find_neighbour_positives


def test_they_are_mutual_neighbours_with_lists_in_common():
    rng = np.random.default_rng(0)
    X = (rng.integers(0, 6, 120)[:, None] + 0.3 * rng.standard_normal((120, 5))).astype("f4")
    k, least = 8, 0.4
    lists = [set(row) for row in knn(X, k, centre=True).tolist()]
    expected = {
        (i, j)
        for i in range(120)
        for j in range(120)
        if j in lists[i] and i in lists[j] and len(lists[i] & lists[j]) >= least * k
    }
    found = find_neighbour_positives(X, k, least).graph.tocoo()
    assert set(zip(*(c.tolist() for c in found.coords), strict=True)) == expected
    assert 50 < len(expected) < 120 * k


def test_partners_share_the_chance_and_the_picture_has_the_rest():
    graph = sparse.csr_array(np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]], np.int8))
    rows = np.repeat(np.arange(3), 6000)
    drawn = NeighbourPositives(graph).draw(rows, 0.6, np.random.default_rng(0)).reshape(3, -1)
    for row, chances in enumerate([[0.4, 0.3, 0.3], [0.6, 0.4, 0], [0, 0, 1]]):
        shares = np.bincount(drawn[row], minlength=3) / 6000
        np.testing.assert_allclose(shares, chances, atol=0.03)
