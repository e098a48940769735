"""FastH: pair weights, blocks and cuts against their definitions and brute force."""

from itertools import product

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.hashers import FastH
from ddh.hashers.fasth import cut_blocks, first_codes, pair_weights, similar_blocks


@pytest.fixture(scope="module")
def similar() -> np.ndarray:
    """Three labels, several a row."""
    labels = np.random.default_rng(0).random((24, 3)) < 0.4
    labels[~labels.any(axis=1), 0] = True
    return labels @ labels.T


@pytest.mark.parametrize("bits", [6, 7])
def test_hinge_weights_are_differences_of_the_loss(similar, bits):
    rng = np.random.default_rng(1)
    found = 4
    Z = rng.choice([-1, 1], (24, found))
    distances = (Z[:, None] != Z).sum(axis=2)
    A = pair_weights(similar, distances, found, bits, "hinge")

    def loss(i, j, d):
        return d**2 if similar[i, j] else max(0, bits / 2 - d) ** 2

    for i in range(24):
        for j in range(24):
            d = distances[i, j]
            expected = 0.5 * (loss(i, j, d) - loss(i, j, d + 1)) * (i != j)
            assert A[i, j] == 8 * expected


def test_ksh_weights_are_its_gradient(similar):
    rng = np.random.default_rng(1)
    Z = rng.choice([-1, 1], (24, 4))
    A = pair_weights(similar, (Z[:, None] != Z).sum(axis=2), 4, 9, "ksh")
    expected = -(5 * np.where(similar, 1, -1) - Z @ Z.T)
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(A, expected)


def test_blocks_hold_every_row_once_and_only_similar_rows(similar):
    blocks = similar_blocks(similar, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(24))
    assert max(map(len, blocks)) <= 5
    for block in blocks:
        assert similar[np.ix_(block, block)].all()


@pytest.mark.parametrize("loss", ["hinge", "ksh"])
def test_each_cut_is_the_best_for_its_block_and_energy_never_rises(similar, loss):
    rng = np.random.default_rng(2)
    Z = rng.choice([-1, 1], (24, 3))
    A = pair_weights(similar, (Z[:, None] != Z).sum(axis=2), 3, 8, loss).astype(int)
    z = rng.choice([-1, 1], 24).astype(np.int8)
    for block in similar_blocks(similar, 6, rng):
        values = []
        for signs in product([-1, 1], repeat=len(block)):
            trial = z.astype(int)
            trial[block] = signs
            values.append(trial @ A @ trial)
        before = z.astype(int) @ A @ z
        z = cut_blocks(A, z, [block], rounds=1)
        after = z.astype(int) @ A @ z
        assert after == min(values)
        assert after <= before


def test_first_codes_are_close_to_the_minimum(similar):
    A = pair_weights(similar[:12, :12], np.zeros((12, 12), np.int32), 0, 8, "ksh")
    z = first_codes(A, np.random.default_rng(0)).astype(int)
    best = min(np.array(s) @ A @ np.array(s) for s in product([-1, 1], repeat=12))
    assert best <= z @ A @ z <= best * 0.5


def test_first_codes_of_the_relaxed_problem(similar):
    A = pair_weights(similar, np.zeros((24, 24), np.int32), 0, 8, "hinge")
    vector = np.linalg.eigh(-A.astype(float))[1][:, -1]
    z = first_codes(A, np.random.default_rng(0))
    clear = np.abs(vector) > 1e-3
    agree = (z == np.where(vector >= 0, 1, -1))[clear].mean()
    assert agree in (0, 1)


def test_trees_learn_the_codes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 5))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    codes = FastH(bits=6, trees=20, block_rows=30).fit(X, y).transform(X).astype(int)
    products = codes @ codes.T / 6
    same = y[:, None] == y
    assert products[same].mean() > 0.6
    assert products[~same].mean() < -0.3


def test_loss_is_checked():
    with pytest.raises(InputError, match="hinge"):
        FastH(bits=2, loss="square").fit(np.eye(4), [0, 0, 1, 1])
