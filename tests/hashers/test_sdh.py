"""Supervised discrete hashing: the column update against brute force, and its objective."""

from itertools import product

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.hashers import SDH
from ddh.hashers.sdh import best_column, discrete_codes, margin_directions


def objective(B, Q, W):
    return np.square(B @ W).sum() - 2 * np.sum(B * Q)


def problem(seed: int, n: int = 8, bits: int = 5, classes: int = 3):
    rng = np.random.default_rng(seed)
    B = rng.choice([-1.0, 1.0], (n, bits))
    return B, rng.normal(size=(n, bits)), rng.normal(size=(bits, classes))


@pytest.mark.parametrize("seed", range(5))
def test_column_update_is_the_best_of_all(seed):
    B, Q, W = problem(seed)
    for k in range(B.shape[1]):
        values = []
        for column in product([-1.0, 1.0], repeat=len(B)):
            trial = B.copy()
            trial[:, k] = column
            values.append(objective(trial, Q, W))
        B[:, k] = best_column(B, Q, W, k)
        assert objective(B, Q, W) == pytest.approx(min(values))


def test_descent_never_rises_and_ends_at_rest():
    B, Q, W = problem(0, n=200, bits=12, classes=4)
    values = [objective(B, Q, W)]
    for _ in range(10):
        B = discrete_codes(B, Q, W, sweeps=1)
        values.append(objective(B, Q, W))
    assert np.all(np.diff(values) <= 1e-9)
    assert values[-1] < values[0]
    rest = discrete_codes(B, Q, W, sweeps=100)
    np.testing.assert_array_equal(discrete_codes(rest, Q, W, sweeps=1), rest)


def test_objective_of_the_codes_is_the_papers():
    """||Y - BW||^2 + nu ||B - F||^2 and the form that the descent uses differ by a constant."""
    rng = np.random.default_rng(3)
    B, _, W = problem(3)
    Y, F, nu = rng.normal(size=(8, 3)), rng.normal(size=(8, 5)), 0.3
    Q = nu * F + Y @ W.T
    other = -B

    def paper(codes):
        return np.square(Y - codes @ W).sum() + nu * np.square(codes - F).sum()

    assert paper(B) - paper(other) == pytest.approx(objective(B, Q, W) - objective(other, Q, W))


def test_learns_classes_that_no_line_parts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    codes = SDH(bits=8, anchors=100).fit(X, y).transform(X).astype(int)
    products = codes @ codes.T
    same = y[:, None] == y
    assert products[same].mean() > 4
    assert products[~same].mean() < -4 or products[~same].mean() < products[same].mean() - 6


def test_width_is_checked():
    with pytest.raises(InputError, match="width"):
        SDH(bits=2, width=0.0).fit(np.eye(4), [0, 0, 1, 1])
    assert SDH(bits=2, width=0.4).fit(np.eye(4), [0, 0, 1, 1]).width_ == 0.4


def test_margin_directions_are_the_sum_over_classes():
    rng = np.random.default_rng(0)
    W, Y = rng.normal(size=(5, 4)), np.eye(4)[[0, 2, 3]]
    Y[2, 1] = 1
    for row, own in zip(margin_directions(Y, W), Y, strict=True):
        expected = sum(W[:, c] - W[:, k] for c in range(4) if own[c] for k in range(4))
        np.testing.assert_allclose(row, expected)


def test_hinge_codes_are_the_papers_closed_form():
    """Of all codes, sgn(F + sum_k (w_c - w_k) / 2 nu) has the least nu |b - F|^2 - its margins."""
    rng = np.random.default_rng(1)
    W, F, nu = rng.normal(size=(6, 3)), rng.normal(size=6), 0.4
    direction = margin_directions(np.eye(3)[[1]], W)[0]
    codes = [np.array(b) for b in product((-1.0, 1.0), repeat=6)]
    cost = [nu * np.square(b - F).sum() - b @ direction for b in codes]
    np.testing.assert_array_equal(np.sign(F + direction / (2 * nu)), codes[int(np.argmin(cost))])


@pytest.mark.parametrize("several", [False, True])
def test_hinge_learns_classes(several):
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    X = rng.normal(0, 4, (3, 5))[y] + rng.normal(size=(150, 5))
    labels = np.eye(3, dtype=int)[y] if several else y
    if several:
        labels[::10, 0] = 1
    codes = SDH(bits=8, anchors=50, loss="hinge").fit(X, labels).transform(X).astype(int)
    products, same = codes @ codes.T, y[:, None] == y
    assert products[same].mean() > products[~same].mean() + 4


def test_the_loss_is_checked():
    with pytest.raises(InputError, match="loss"):
        SDH(bits=2, loss="l1").fit(np.eye(4), [0, 0, 1, 1])
