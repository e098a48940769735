"""Latent factor hashing: gradient, bound, and the regression that encodes."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from ddh._core.labels import indicators
from ddh.hashers import LFH
from ddh.hashers.lfh import bound_step, pair_gradient

BETA = 5.0


def log_likelihood(U, U_J, S_J, beta):
    """Each row's share of the objective against the columns J, taken as fixed.

    Counts every pair twice, as (i, j) and (j, i), which is what makes the gradient
    (S - A) U_J - U / beta.
    """
    theta = U @ U_J.T / 2
    pairs = S_J * theta - np.logaddexp(0, theta)
    return 2 * pairs.sum(axis=1) - np.square(U).sum(axis=1) / (2 * beta)


@pytest.fixture(scope="module")
def factors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(12, 4)), rng.normal(size=(7, 4)), rng.random((12, 7)) < 0.4


def test_likelihood_by_loops(factors):
    U, U_J, S = factors
    for i, row in enumerate(log_likelihood(U, U_J, S, BETA)):
        pairs = 0.0
        for j, u in enumerate(U_J):
            theta = U[i] @ u / 2
            pairs += S[i, j] * theta - np.log(1 + np.exp(theta))
        assert row == pytest.approx(2 * pairs - U[i] @ U[i] / (2 * BETA))


def test_gradient_by_differences(factors):
    U, U_J, S = factors
    gradient = pair_gradient(U, U_J, S, BETA)

    def total(flat):
        return log_likelihood(flat.reshape(U.shape), U_J, S, BETA).sum()

    np.testing.assert_allclose(gradient.ravel(), approx_fprime(U.ravel(), total, 1e-6), atol=1e-5)


def test_quadratic_bound_lies_below(factors):
    U, U_J, S = factors
    H = -(U_J.T @ U_J) / 8 - np.eye(4) / BETA
    gradient = pair_gradient(U, U_J, S, BETA)
    here = log_likelihood(U, U_J, S, BETA)
    rng = np.random.default_rng(1)
    for size in (0.01, 0.3, 3, 30):
        step = size * rng.normal(size=U.shape)
        bound = here + (gradient * step).sum(axis=1) + 0.5 * ((step @ H) * step).sum(axis=1)
        assert np.all(log_likelihood(U + step, U_J, S, BETA) >= bound - 1e-9)


def test_no_row_gets_worse_and_the_steps_end_at_the_top(factors):
    U, U_J, S = factors
    for _ in range(200):
        better = bound_step(U, U_J, S, BETA)
        gain = log_likelihood(better, U_J, S, BETA) - log_likelihood(U, U_J, S, BETA)
        assert np.all(gain >= -1e-12)
        U = better
    assert np.abs(pair_gradient(U, U_J, S, BETA)).max() < 1e-6


def test_codes_are_predicted_from_centred_features():
    rng = np.random.default_rng(0)
    X, y = rng.normal(2, 1, (60, 5)), rng.integers(0, 3, 60)
    model = LFH(bits=3, ridge=2.0, random_state=7)
    U = model._latent_factors(indicators(y), np.random.default_rng(7))
    centred = X - X.mean(axis=0)
    signs = np.where(U >= 0, 1, -1)
    expected = np.linalg.solve(centred.T @ centred + 2 * np.eye(5), centred.T @ signs)
    np.testing.assert_allclose(model.fit(X, y).projection_, expected, atol=1e-10)


def test_factors_explain_the_labels():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    X = np.eye(3)[y] * 4 + rng.normal(0, 0.3, (90, 3))
    codes = LFH(bits=16).fit(X, y).transform(X).astype(int)
    products = codes @ codes.T / 16
    same = y[:, None] == y
    assert products[same].mean() > 0.9
    assert products[~same].mean() < 0.1
