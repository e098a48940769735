"""IMH's Laplacian embedding against the generalised eigenproblem, and its inductive formula."""

import numpy as np
import pytest
import scipy.linalg

from ddh._core.errors import InputError
from ddh.hashers import IMH
from ddh.hashers.imh import affinities, laplacian_embedding


def rows(n: int = 80, d: int = 5) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, (n, d))


def test_affinities_are_kernels_without_a_diagonal():
    anchors = rows(6)
    W = affinities(anchors, 3.0)
    for i in range(6):
        for j in range(6):
            squared = np.square(anchors[i] - anchors[j]).sum()
            assert W[i, j] == pytest.approx(0 if i == j else np.exp(-squared / 3))


def test_embedding_solves_the_generalised_eigenproblem():
    W = affinities(rows(12), 3.0)
    D = np.diag(W.sum(axis=1))
    values, vectors = scipy.linalg.eigh(D - W, D)
    assert values[0] == pytest.approx(0, abs=1e-10)
    found = laplacian_embedding(W, 4)
    for k in range(4):
        expected = vectors[:, k + 1]
        np.testing.assert_allclose(found[:, k] * np.sign(found[0, k] * expected[0]), expected)


def test_more_bits_than_anchors_are_constant():
    found = laplacian_embedding(affinities(rows(4), 3.0), 6)
    assert (found[:, 3:] == 0).all()


@pytest.mark.parametrize("embedding", ["t-sne", "laplacian"])
def test_outputs_are_weighted_means_of_the_nearest_anchors(embedding: str):
    X = rows()
    model = IMH(bits=6, anchors=20, nearest=3, embedding=embedding, iterations=250).fit(X)
    np.testing.assert_allclose(model.values_.mean(axis=0), 0, atol=1e-6)
    for row, found in zip(X[:5], model.outputs(X[:5]), strict=True):
        squared = np.square(row - model.mean_ - model.anchors_).sum(axis=1)
        near = np.argsort(squared)[:3]
        kernel = np.exp(-squared[near] / model.width_)
        expected = kernel / kernel.sum() @ model.values_[near]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_t_sne_keeps_neighbours_together():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(0, 5, (4, 8)), 25, axis=0) + rng.normal(0, 0.3, (100, 8))
    codes = (
        IMH(bits=8, anchors=40, embedding="t-sne", iterations=500).fit(X).transform(X).astype(int)
    )
    distances = (8 - codes @ codes.T) / 2
    same = np.repeat(np.arange(4), 25)[:, None] == np.repeat(np.arange(4), 25)
    assert distances[same].mean() < 0.7 * distances[~same].mean()


def test_unknown_embedding():
    with pytest.raises(InputError, match="embedding"):
        IMH(bits=4, embedding="pca").fit(rows())
