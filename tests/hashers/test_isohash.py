"""Isotropic hashing: equal variances, by both solvers."""

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh._core.linear_algebra import random_rotation
from ddh.hashers import IsoHash
from ddh.hashers.isohash import equalise_by_givens, lift_and_project


@pytest.mark.parametrize("solver", ["lp", "givens"])
def test_variances_are_equal(solver):
    X = np.random.default_rng(0).normal(3, 1, (400, 14)) * np.geomspace(10, 0.1, 14)
    model = IsoHash(bits=11, solver=solver).fit(X)
    outputs = (X - model.mean_) @ model.projection_
    variances = outputs.var(axis=0)
    np.testing.assert_allclose(variances, variances.mean(), rtol=1e-6)
    np.testing.assert_allclose(model.variances_, variances, rtol=1e-6)
    np.testing.assert_allclose(model.projection_.T @ model.projection_, np.eye(11), atol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 17])
def test_givens_turns_are_exact(size):
    rng = np.random.default_rng(size)
    variances = np.sort(rng.gamma(0.5, size=size))[::-1]
    Q = equalise_by_givens(variances, random_rotation(size, rng))
    np.testing.assert_allclose(Q @ Q.T, np.eye(size), atol=1e-12)
    np.testing.assert_allclose(np.diag(Q * variances @ Q.T), variances.mean(), rtol=1e-9)


def test_lift_and_projection_converge_alone():
    rng = np.random.default_rng(0)
    variances = np.sort(rng.gamma(1, size=12))[::-1]
    start = random_rotation(12, rng)

    def spread(Q):
        return np.abs(np.diag(Q * variances @ Q.T) - variances.mean()).max()

    spreads = [spread(lift_and_project(variances, start, n)) for n in (0, 5, 500)]
    assert spreads[0] > spreads[1] > spreads[2]
    assert spreads[2] < 1e-6 * variances.mean()


def test_solver_is_checked():
    with pytest.raises(InputError, match="givens"):
        IsoHash(bits=2, solver="newton").fit(np.eye(4))
