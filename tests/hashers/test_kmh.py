"""K-means hashing: objective, assignment and codes against direct computation."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from ddh._core.errors import InputError
from ddh.hashers import KMH
from ddh.hashers.kmh import (
    assign,
    balanced_shares,
    best_scale,
    corner_signs,
    learn_codewords,
    move_codewords,
    objective,
)


@pytest.fixture(scope="module")
def Z() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(400, 5)) * [3, 2, 1.5, 1, 0.5] + rng.choice([-2, 2], (400, 1))


def naive_objective(Z, C, targets, affinity):
    """E_quan + affinity E_aff from the definition, row by row and pair by pair."""
    nearest = np.array([np.argmin(((z - C) ** 2).sum(axis=1)) for z in Z])
    quantisation = np.mean(((Z - C[nearest]) ** 2).sum(axis=1))
    share = np.bincount(nearest, minlength=len(C)) / len(Z)
    misfit = sum(
        share[i] * share[j] * (np.linalg.norm(C[i] - C[j]) - targets[i, j]) ** 2
        for i in range(len(C))
        for j in range(len(C))
    )
    return quantisation + affinity * misfit


def start(Z, bits=3):
    signs = corner_signs(bits)
    C = np.zeros((len(signs), Z.shape[1]))
    C[:, :bits] = signs * Z[:, :bits].std(axis=0)
    roots = np.sqrt((signs[:, None] != signs).sum(axis=2))
    shares, means = assign(Z, C)
    return C, shares, means, best_scale(C, shares, roots) * roots, roots


def test_objective_by_its_definition(Z):
    C, shares, means, targets, _ = start(Z)
    energy = np.mean((Z**2).sum(axis=1))
    value = objective(C, shares, means, targets, 10, energy)
    assert value == pytest.approx(naive_objective(Z, C, targets, 10))


def test_scale_is_the_best_one(Z):
    C, shares, _, targets, roots = start(Z)
    best = targets[0, -1] / roots[0, -1]

    def misfit(s):
        return objective(C, shares, np.zeros_like(C), s * roots, 1, 0)

    assert misfit(best) <= min(misfit(best * 0.99), misfit(best * 1.01))


def test_each_half_step_lowers_its_objective(Z):
    """Moves never raise E for fixed rows; assignments never raise E_quan for fixed codewords."""
    C, shares, means, targets, _ = start(Z)
    energy = np.mean((Z**2).sum(axis=1))
    for _ in range(15):
        before = objective(C, shares, means, targets, 10, energy)
        quantisation = objective(C, shares, means, targets, 0, energy)
        C = move_codewords(C, shares, means, targets, 10)
        assert objective(C, shares, means, targets, 10, energy) <= before + 1e-12
        quantisation = objective(C, shares, means, targets, 0, energy)
        shares, means = assign(Z, C)
        assert objective(C, shares, means, targets, 0, energy) <= quantisation + 1e-12


def test_moves_end_where_the_gradient_is_zero(Z):
    C, shares, means, targets, _ = start(Z)
    for _ in range(300):
        C = move_codewords(C, shares, means, targets, 10)

    def value(flat):
        return objective(flat.reshape(C.shape), shares, means, targets, 10, 0)

    assert np.abs(approx_fprime(C.ravel(), value, 1e-6)).max() < 1e-4


def test_codewords_without_rows_stay():
    Z = np.full((20, 3), 5.0)
    C, _, means, targets, _ = start(Z, bits=2)
    C += np.arange(4)[:, None]
    moved = move_codewords(C, np.array([1.0, 0, 0, 0]), means, targets, 10)
    np.testing.assert_array_equal(moved[1:], C[1:])


def test_learning_lowers_the_objective(Z):
    _, losses = learn_codewords(Z, 3, affinity=10, iterations=30)
    assert losses[-1] < losses[0]


def test_codes_are_the_numbers_of_the_nearest_codewords():
    X = np.random.default_rng(0).normal(size=(200, 9)) * np.arange(1, 10)
    model = KMH(bits=7, subspace_bits=4, iterations=5).fit(X)
    codes = model.transform(X) > 0
    scores = model.offsets_ - 2 * (X - model.mean_) @ model.directions_
    for first, last, bit in ((0, 16, 0), (16, 24, 4)):
        number = scores[:, first:last].argmin(axis=1)
        width = int(np.log2(last - first))
        for k in range(width):
            np.testing.assert_array_equal(codes[:, bit + k], number >> (width - 1 - k) & 1)


def test_axes_are_dealt_fairly():
    variances = np.sort(np.random.default_rng(0).gamma(1, size=24))[::-1]
    shares = balanced_shares(variances, [4, 4, 4])
    np.testing.assert_array_equal(np.sort(np.concatenate(shares)), np.arange(24))
    assert [len(axes) for axes in shares] == [8, 8, 8]
    products = [np.log(variances[axes]).sum() for axes in shares]
    in_order = [np.log(part).sum() for part in np.split(variances, 3)]
    assert np.ptp(products) < np.ptp(in_order) / 5
    assert [len(axes) for axes in balanced_shares(variances[:10], [4, 4, 1])] == [4, 4, 2]


def test_samples_and_settings():
    X = np.random.default_rng(0).normal(size=(300, 6))
    assert KMH(bits=4, samples=50, iterations=3).fit(X).transform(X).shape == (300, 4)
    with pytest.raises(InputError, match="subspace_bits"):
        KMH(bits=4, subspace_bits=9).fit(X)
