"""Semi-supervised hashing against dense pair matrices."""

import numpy as np
import pytest

from ddh.hashers import PCAH, SSH
from ddh.hashers.ssh import projections


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(-1, 3, 120)
    return rng.normal(size=(120, 7)) + rng.normal(0, 2, (4, 7))[y], y


def dense_matrix(X, y, eta):
    """M pair by pair."""
    centred = X - X.mean(axis=0)
    rows = np.flatnonzero(y >= 0)
    pairs = sum(
        (1 if y[i] == y[j] else -1) * np.outer(centred[i], centred[j]) for i in rows for j in rows
    )
    return pairs / len(rows) ** 2 + eta * centred.T @ centred / len(X)


def test_directions_are_eigenvectors_of_the_dense_matrix(data):
    X, y = data
    W = SSH(bits=4, eta=0.5, orthogonal=True).fit(X, y).projection_
    M = dense_matrix(X, y, 0.5)
    values = np.linalg.eigvalsh(M)[::-1]
    np.testing.assert_allclose(M @ W, W * values[:4], atol=1e-9)
    np.testing.assert_allclose(W.T @ W, np.eye(4), atol=1e-9)


def test_without_orthogonality_directions_are_stretched_eigenvectors(data):
    X, y = data
    W = SSH(bits=4, eta=0.5).fit(X, y).projection_
    M = dense_matrix(X, y, 0.5)
    values, vectors = np.linalg.eigh(M)
    rho = max(-1.1 * values[0], values[-1] / 1000)
    L = np.linalg.cholesky(np.eye(7) + M / rho)
    expected = L @ vectors[:, ::-1][:, :4]
    sign = np.sign(np.sum(W * expected, axis=0))
    np.testing.assert_allclose(W, sign * expected, atol=1e-9)


@pytest.mark.parametrize("diagonal", [[1.0, -3.0, 0.5], [-1.0, -3.0, -2.0], [0.0, 0.0, 0.0]])
def test_cannot_links_may_make_eigenvalues_negative(diagonal):
    W = projections(np.diag(diagonal), 2, orthogonal=False)
    assert np.all(np.isfinite(W))
    assert np.linalg.matrix_rank(W) == 2


def test_much_weight_on_the_data_is_pca(data):
    X, y = data
    ssh = SSH(bits=4, eta=1e9, orthogonal=True).fit(X, y)
    np.testing.assert_allclose(ssh.projection_, PCAH(bits=4).fit(X).projection_, atol=1e-6)


def test_shared_labels_of_many(data):
    """A label matrix with one label a row is the same as classes."""
    X, y = data
    matrix = (y[:, None] == np.arange(3)).astype(int)
    np.testing.assert_allclose(
        SSH(bits=3).fit(X, matrix).projection_, SSH(bits=3).fit(X, y).projection_
    )
