"""CNNH's stage 1: the objective falls, and what is kept up to date equals what is recomputed."""

import numpy as np
import pytest

from ddh._core.labels import indicators
from ddh.hashers.cnnh import BLOCKS, Factorisation, target_codes
from ddh.hashers.label_pairs import similarity


def random_similarity(rows: int, seed: int = 0, *, multi: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, (rows, 4)) if multi else rng.integers(0, 4, rows)
    if multi:
        y[:, 0] |= ~y.any(axis=1)
    concepts = indicators(y)
    return similarity(concepts, concepts)


def full_objective(factors: Factorisation) -> float:
    return float(np.linalg.norm(factors.H @ factors.H.T - factors.bits * factors.S) ** 2)


@pytest.mark.parametrize("rows", [30, 150])  # one row a block, and several
@pytest.mark.parametrize("multi", [False, True])
def test_a_sweep_keeps_its_products_and_lowers_the_objective(rows: int, multi: bool) -> None:
    factors = Factorisation(random_similarity(rows, multi=multi), 6, np.random.default_rng(1))
    before = full_objective(factors)
    for _ in range(3):
        factors.sweep()
        assert np.allclose(factors.G, factors.H.T @ factors.H, atol=1e-9)
        assert factors.objective() == pytest.approx(full_objective(factors), rel=1e-5)
        after = full_objective(factors)
        assert after <= before
        before = after
    assert np.abs(factors.H).max() <= 1.0


def test_the_change_of_a_move_is_exact() -> None:
    """`change` equals ||L'||^2 - ||L||^2 recomputed, for steps of one row and of several."""
    rng = np.random.default_rng(2)
    for rows in (np.array([3]), np.array([1, 4, 7, 8])):
        factors = Factorisation(random_similarity(12), 5, rng)
        H, j, step = factors.H, 2, rng.uniform(-0.5, 0.5, len(rows))
        L = H @ H.T - 5 * factors.S
        S_block = factors.S[np.ix_(rows, rows)].astype(float)
        predicted = factors.change(
            step, H[rows, j], step @ H[rows], factors.G[j, j], L[rows] @ H[:, j], S_block
        )
        before = full_objective(factors)
        factors.H[rows, j] += step
        assert full_objective(factors) - before == pytest.approx(predicted, rel=1e-9)


def test_a_single_entry_moves_by_newton_s_step() -> None:
    """d = -g' / g'' with g' = 4 L_i . h_j and g'' = 4 (h_j . h_j + H_ij^2 + L_ii)."""
    H = Factorisation(random_similarity(40), 4, np.random.default_rng(3)).H
    inside = 0
    for i in range(40):
        factors = Factorisation(random_similarity(40), 4, np.random.default_rng(3))
        j = i % 4
        L = H @ H.T - 4 * factors.S
        newton = -(L[i] @ H[:, j]) / (H[:, j] @ H[:, j] + H[i, j] ** 2 + L[i, i])
        row, S_row = H[i : i + 1].copy(), factors.S[i : i + 1].astype(float)
        factors.move(row, j, (S_row @ H)[:, j], S_row[:, i : i + 1])
        assert row[0, j] == pytest.approx(np.clip(H[i, j] + newton, -1, 1))
        inside += abs(H[i, j] + newton) < 1
    assert inside > 10  # the box does not decide everything


def test_codes_of_separable_classes_are_alike_within_and_apart_between() -> None:
    y = np.repeat(np.arange(4), 40)
    concepts = indicators(y)
    codes, values = target_codes(similarity(concepts, concepts), 16, 10, np.random.default_rng(0))
    assert len(y) > BLOCKS
    assert (np.diff(values) <= 0).all()
    products = codes @ codes.T / 16
    same = y[:, None] == y[None, :]
    assert products[same].min() > 0.9
    assert products[~same].max() < 0.3


def test_stage_1_works_where_curvature_is_negative() -> None:
    """With more bits than rows the curvature of an entry can be negative; still nothing rises."""
    factors = Factorisation(random_similarity(4), 32, np.random.default_rng(0))
    factors.H *= 0.01
    factors.G = factors.H.T @ factors.H
    before = full_objective(factors)
    factors.sweep()
    assert full_objective(factors) < before
    assert np.isfinite(factors.H).all()
