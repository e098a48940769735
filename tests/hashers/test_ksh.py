"""Supervised hashing with kernels: the greedy objective and its two maximisers."""

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import approx_fprime

from ddh._core.arrays import sgn
from ddh._core.labels import indicators
from ddh.hashers import KSH
from ddh.hashers.ksh import (
    Residual,
    best_coefficients,
    refine,
    smooth_loss,
    spectral_coefficients,
)
from ddh.hashers.label_pairs import PairSimilarity

BITS = 6


@pytest.fixture
def problem() -> tuple[np.ndarray, np.ndarray, Residual]:
    """(G, S, R after two bits)."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 40)
    residual = Residual(PairSimilarity(indicators(y)), BITS)
    for _ in range(2):
        residual.explain(sgn(rng.normal(size=40)))
    G = rng.normal(size=(40, 5)) + np.eye(3, 5)[y]
    return G, np.where(y[:, None] == y, 1.0, -1.0), residual


def test_residual_and_objective_are_the_dense_ones(problem):
    _, S, R = problem
    dense = BITS * S - R.found @ R.found.T
    V = np.random.default_rng(1).normal(size=(40, 3))
    np.testing.assert_allclose(R @ V, dense @ V, atol=1e-9)
    assert R.gain(V[:, 0]) == pytest.approx(V[:, 0] @ dense @ V[:, 0])
    assert R.objective[0] == pytest.approx(np.square(BITS * S).sum())
    assert R.objective[-1] == pytest.approx(np.square(dense).sum())


def test_spectral_answer_maximises_the_quotient(problem):
    G, S, R = problem
    a = spectral_coefficients(G, R)
    A = G.T @ (BITS * S - R.found @ R.found.T) @ G
    B = G.T @ G
    quotient = (a @ A @ a) / (a @ B @ a)
    assert quotient == pytest.approx(scipy.linalg.eigh(A, B)[0][-1], rel=1e-4)
    assert a @ B @ a == pytest.approx(40)


def test_gradient_of_the_smooth_objective(problem):
    G, S, R = problem
    a = np.random.default_rng(2).normal(size=5)
    value, gradient = smooth_loss(G, R, a)
    phi = 2 / (1 + np.exp(-G @ a)) - 1
    dense = BITS * S - R.found @ R.found.T
    assert value == pytest.approx(-phi @ dense @ phi / 40**2)
    numeric = approx_fprime(a, lambda x: smooth_loss(G, R, x)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, atol=1e-5)


def test_refinement_lowers_the_smooth_loss_and_the_better_is_kept(problem):
    G, _, R = problem
    spectral = spectral_coefficients(G, R)
    refined = refine(G, R, spectral, 500)
    assert smooth_loss(G, R, refined)[0] < smooth_loss(G, R, spectral)[0]
    gains = [R.gain(sgn(G @ a).astype(float)) for a in (spectral, refined)]
    chosen = best_coefficients(G, R, 500)
    assert R.gain(sgn(G @ chosen).astype(float)) == max(gains)


def test_greedy_objective_falls_with_every_bit():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 120)
    X = rng.normal(size=(120, 6)) + 3 * rng.normal(size=(4, 6))[y]
    model = KSH(bits=8, anchors=30).fit(X, y)
    assert len(model.objective_) == 9
    assert np.all(np.diff(model.objective_) < 0)
    codes = model.transform(X).astype(float)
    S = np.where(y[:, None] == y, 1.0, -1.0)
    assert model.objective_[-1] == pytest.approx(np.square(codes @ codes.T - 8 * S).sum())


def test_rows_are_sampled():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 4)), rng.integers(0, 2, 100)
    model = KSH(bits=3, anchors=20, labelled=30).fit(X, y)
    assert model.objective_[0] == 9 * 30**2
    assert model.anchors_.shape == (20, 4)
