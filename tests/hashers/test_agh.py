"""AGH's eigenfunctions and thresholds against the n x n graph that it never makes."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from ddh._core.errors import InputError
from ddh.hashers import AGH
from ddh.hashers.agh import eigenfunctions, second_thresholds


def anchor_matrix(n: int = 40, m: int = 9, nearest: int = 3) -> scipy.sparse.csr_array:
    rng = np.random.default_rng(0)
    Z = np.zeros((n, m))
    for row in Z:
        row[rng.choice(m, nearest, replace=False)] = rng.dirichlet(np.ones(nearest))
    return scipy.sparse.csr_array(Z)


def graph(Z: scipy.sparse.csr_array) -> np.ndarray:
    dense = Z.toarray()
    return dense / dense.sum(axis=0) @ dense.T


def test_eigenfunctions_are_eigenvectors_of_the_whole_graph():
    Z = anchor_matrix()
    Y = Z @ eigenfunctions(Z, 5)
    values, vectors = np.linalg.eigh(graph(Z))
    values, vectors = values[::-1], vectors[:, ::-1]
    assert values[0] == pytest.approx(1)
    for k in range(5):
        expected = vectors[:, k + 1] * np.sqrt(len(Y))
        np.testing.assert_allclose(Y[:, k] * np.sign(Y[0, k] * expected[0]), expected, atol=1e-8)
    np.testing.assert_allclose(Y.sum(axis=0), 0, atol=1e-9)


def test_functions_beyond_the_rank_are_zero():
    W = eigenfunctions(anchor_matrix(m=4), 6)
    assert (W[:, 3:] == 0).all()
    assert (W[:, :3] != 0).any(axis=0).all()


def test_a_graph_in_two_parts_has_their_indicator_first():
    Z = scipy.sparse.block_diag([anchor_matrix(20, 4), anchor_matrix(20, 5)], format="csr")
    Y = Z @ eigenfunctions(scipy.sparse.csr_array(Z), 1)
    assert len(np.unique(np.sign(Y[:20].round(9)))) == 1
    assert np.sign(Y[0, 0]) != np.sign(Y[-1, 0])


def test_second_layer_cuts_where_the_graph_is_smoothest():
    """Minimise f^T (I - A) f over the cuts whose vector f sums to 0, by search."""
    Z = anchor_matrix()
    Y = Z @ eigenfunctions(Z, 4)
    above, below = second_thresholds(Z, Y)
    laplacian = np.eye(len(Y)) - graph(Z)
    for k in range(4):
        y, positive = Y[:, k], Y[:, k] > 0
        n1, n2 = positive.sum(), (~positive).sum()

        def roughness(cut: float, y=y, positive=positive, n1=n1, n2=n2) -> float:
            f = np.where(positive, y - cut, (n1 * cut - np.abs(y).sum()) / n2 - y)
            return f @ laplacian @ f

        found = scipy.optimize.minimize_scalar(roughness)
        assert above[k] == pytest.approx(found.x, abs=1e-5)
        f = np.where(positive, y - above[k], below[k] - y)
        assert f.sum() == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("bits", [7, 8])
def test_second_bits_cut_each_side_of_the_first(bits: int):
    X = np.random.default_rng(0).normal(0, 1, (300, 6))
    codes = AGH(bits=bits, anchors=30).fit(X).transform(X)
    first, second = codes[:, 0], codes[:, (bits + 1) // 2]
    for side in (-1, 1):
        assert 0.1 < (second[first == side] > 0).mean() < 0.9


def test_layers_are_one_or_two():
    with pytest.raises(InputError, match="layers"):
        AGH(bits=4, layers=3).fit(np.random.default_rng(0).normal(0, 1, (50, 4)))
