"""Iterative quantisation: a falling objective and the Procrustes step."""

import numpy as np

from ddh._core.linear_algebra import random_rotation
from ddh.hashers import ITQ
from ddh.hashers.itq import best_rotation


def test_objective_never_rises_and_is_what_it_says():
    X = np.random.default_rng(0).normal(2, 1, (500, 12)) * np.linspace(2, 0.5, 12)
    model = ITQ(bits=8, iterations=40).fit(X)
    assert len(model.losses_) == 40
    assert np.all(np.diff(model.losses_) <= 1e-4 * model.losses_[0])
    assert model.losses_[-1] < model.losses_[0]
    VR = (X - model.mean_) @ model.projection_
    # the last rotation belongs to the codes before it: signs of VR can only be closer
    assert np.square(np.where(VR >= 0, 1, -1) - VR).sum() <= model.losses_[-1] * (1 + 1e-5)


def test_projection_is_a_turned_pca():
    X = np.random.default_rng(0).normal(size=(300, 10))
    W = ITQ(bits=6).fit(X).projection_
    np.testing.assert_allclose(W.T @ W, np.eye(6), atol=1e-9)


def test_rotation_is_the_best_for_its_codes():
    rng = np.random.default_rng(0)
    V = rng.normal(size=(200, 5)).astype(np.float32)
    start = random_rotation(5, rng)
    R, losses = best_rotation(V, start, 1)
    B = np.where(V @ start.astype(np.float32) >= 0, 1, -1)
    assert np.isclose(np.square(B - V @ R).sum(), losses[0], rtol=1e-5)
    others = [np.square(B - V @ random_rotation(5, rng)).sum() for _ in range(200)]
    nearby = [np.square(B - V @ np.linalg.qr(R + 1e-3 * rng.normal(size=(5, 5)))[0]).sum()]
    assert losses[0] <= min(others + nearby) + 1e-3
