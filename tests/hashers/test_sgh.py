"""SGH against the n x n similarity that it never makes."""

import numpy as np
import pytest
import scipy.linalg

from ddh.hashers import SGH
from ddh.hashers.sgh import RIDGE, sequential_bits, transformed


def rows(n: int = 30, d: int = 5) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, (n, d))


def test_transformed_features_multiply_to_the_similarity():
    """The line through e^t at +-1 for e^t, everything else exact."""
    X = rows()
    rho = 2 * np.square(X).sum(axis=1).max()
    P, Q = transformed(X, rho)
    slope, height = np.sinh(1), np.cosh(1)
    for i in range(5):
        for j in range(5):
            decay = np.exp(-(X[i] @ X[i] + X[j] @ X[j]) / rho)
            expected = 2 * decay * (slope * 2 * (X[i] @ X[j]) / rho + height) - 1
            assert P[i] @ Q[j] == pytest.approx(expected, abs=1e-12)
    exact = 2 * np.exp(-np.square(X[:, None] - X[None]).sum(axis=2) / rho) - 1
    approximate = P @ Q.T
    assert np.corrcoef(exact.ravel(), approximate.ravel())[0, 1] > 0.95


def test_bits_are_the_greedy_solution_of_the_dense_problem():
    rng = np.random.default_rng(1)
    K = rng.normal(0, 1, (30, 6)).astype(np.float32)
    P, Q = transformed(rows(), 40.0)
    S, bits = P @ Q.T, 4
    k = K.astype(np.float64)
    found = sequential_bits(K, (k.T @ P) @ (k.T @ Q).T, bits)
    residual = bits * S
    gram = k.T @ k
    regular = gram + RIDGE * np.trace(gram) / 6 * np.eye(6)
    for t in range(bits):
        w = scipy.linalg.eigh(k.T @ residual @ k, regular)[1][:, -1]
        cosine = w @ found[:, t] / np.linalg.norm(w) / np.linalg.norm(found[:, t])
        assert abs(cosine) == pytest.approx(1, abs=1e-6)
        b = np.where(k @ found[:, t] >= 0, 1.0, -1.0)
        residual = residual - np.outer(b, b)


def test_each_bit_explains_more_of_the_similarity():
    X = rows(200)
    model = SGH(bits=8, anchors=50).fit(X)
    centred = X - model.mean_
    P, Q = transformed(centred, 2 * np.square(centred).sum(axis=1).max())
    # The kernels are centred, so the bits can explain what is left of S without its means.
    without_mean = np.eye(200) - 1 / 200
    residual = 8 * P @ Q.T
    norms = [np.square(without_mean @ residual @ without_mean).sum()]
    for b in model.transform(X).T.astype(float):
        residual = residual - np.outer(b, b)
        norms.append(np.square(without_mean @ residual @ without_mean).sum())
    assert norms[4] < norms[0]
