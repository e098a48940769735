"""Sequential projection learning, redone with dense matrices and loops."""

import numpy as np
import pytest

from ddh._core.linear_algebra import fix_signs
from ddh.hashers import PCAH, SPLH
from ddh.hashers.splh import boundary_groups, deflate, pseudo_pairs, violations


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(-1, 3, 90)
    return rng.normal(size=(90, 6)) + rng.normal(0, 2, (4, 6))[y], y


def test_directions_by_the_algorithm_on_dense_matrices(data):
    X, y = data
    eta, step, bits = 0.4, 0.7, 5
    centred = X - X.mean(axis=0)
    residual, X_l, y_l = centred.copy(), centred[y >= 0], y[y >= 0]
    S = np.where(y_l[:, None] == y_l, 1.0, -1.0)
    S_k = S.copy()
    expected = np.empty((6, bits))
    for k in range(bits):
        M = X_l.T @ S_k @ X_l / len(X_l) ** 2 + eta * residual.T @ residual / len(X)
        w = np.linalg.eigh(M)[1][:, -1]
        expected[:, k] = w
        p = X_l @ w
        for i in range(len(p)):
            for j in range(len(p)):
                product = p[i] * p[j] / np.max(p**2)
                if product * S[i, j] < 0:
                    S_k[i, j] -= step * product
        residual -= np.outer(residual @ w, w)
    model = SPLH(bits=bits, eta=eta, step=step).fit(X, y)
    np.testing.assert_allclose(model.projection_, fix_signs(expected), atol=1e-5)
    np.testing.assert_array_equal(model.thresholds_, 0)


def test_pairs_that_are_wrong_gain_weight():
    S = np.array([[1, 1, -1], [1, 1, -1], [-1, -1, 1]], float)
    T = violations(np.array([2.0, -1.0, 0.5]), S)
    # rows 0 and 1 belong together and are apart; rows 0 and 2 do not and are together
    np.testing.assert_allclose(T, [[0, -0.5, 0.25], [-0.5, 0, 0], [0.25, 0, 0]])


def test_removed_directions_have_no_variance(data):
    X, _ = data
    centred = X - X.mean(axis=0)
    w = np.ones(6) / np.sqrt(6)
    rest = centred - np.outer(centred @ w, w)
    C = deflate(centred.T @ centred / 90, w)
    np.testing.assert_allclose(C, rest.T @ rest / 90, atol=1e-12)


def test_without_labels_the_first_bit_is_the_first_component(data):
    X, _ = data
    model = SPLH(bits=4).fit(X)
    np.testing.assert_allclose(model.projection_[:, :1], PCAH(bits=1).fit(X).projection_, atol=1e-9)
    assert np.abs(model.transform(X).mean(axis=0)).max() <= 1 / 90


def test_without_labels_the_second_bit_by_loops(data):
    X, _ = data
    eta = 0.3
    centred = X - X.mean(axis=0)
    w = PCAH(bits=1).fit(X).projection_[:, 0]
    order = np.argsort(centred @ w)
    size = 90 // 8
    near_below, near_above = order[45 - size : 45], order[45 : 45 + size]
    far_below, far_above = order[:size], order[-size:]
    M = eta * deflate(centred.T @ centred / 90, w)
    for group, other, weight in (
        (near_below, near_above, 1.0),
        (near_below, far_below, -0.5),
        (near_above, far_above, -0.5),
    ):
        for i in group:
            for j in other:
                pair = np.outer(centred[i], centred[j])
                M += weight / size**2 * (pair + pair.T)
    for group in (near_below, near_above):
        for i in group:
            for j in group:
                if i != j:
                    M += np.outer(centred[i], centred[j]) / size**2
    expected = fix_signs(np.linalg.eigh(M)[1][:, -1:])
    model = SPLH(bits=2, eta=eta).fit(X)
    np.testing.assert_allclose(model.projection_[:, 1:], expected, atol=1e-9)


def test_groups_at_the_boundary():
    signed = np.array([-5.0, -1, -2, -4, 1, 4, 2, 5])
    groups = [set(group) for group in boundary_groups(np.repeat(signed, 2))]
    assert groups == [{2, 3}, {8, 9}, {0, 1}, {14, 15}]
    for extreme in (np.full(4, 1.0), np.full(4, -1.0)):
        assert all(len(group) for group in boundary_groups(extreme))


def test_pseudo_pairs_are_the_sum_over_the_release_s_pairs():
    """S as the release has it: near rows with each other, near with far rows of one side."""
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(4, 3)) for _ in range(4)]
    X, side = np.concatenate(groups), np.repeat(np.arange(4), 4)
    S = np.zeros((16, 16))
    for i in range(16):
        for j in range(16):
            kinds = {side[i], side[j]}
            if i != j and kinds <= {0, 1}:
                S[i, j] = 1 / 16
            if kinds in ({0, 2}, {1, 3}):
                S[i, j] = -1 / 32
    np.testing.assert_allclose(pseudo_pairs(groups), X.T @ S @ X)
