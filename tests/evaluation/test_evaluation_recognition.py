"""Support vector machines on bits and histograms: C by validation, test images asked once."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from ddh._core.errors import InputError
from ddh.evaluation import recognise
from ddh.evaluation.recognition import ChiSquareMachine, LinearMachine, chi_square


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[:700]
    return [(X[rows], y[rows]) for rows in np.split(order, [300, 450])]


def test_bits_of_digits_are_recognised(digits):
    planes = np.random.default_rng(1).standard_normal((64, 128))
    mean = digits[0][0].mean(axis=0)
    parts = [(np.where((X - mean) @ planes >= 0, 1, -1).astype(np.int8), y) for X, y in digits]
    result = recognise(*parts, costs=(0.1, 1.0))
    assert result.accuracy > 0.85
    assert result.accuracy == np.mean(result.predicted == parts[2][1])
    assert result.fit_seconds > 0
    assert result.predict_seconds > 0
    assert "linear SVM, C = " in str(result)


def test_chi_square_kernel_on_histograms(digits):
    parts = [(X / X.sum(axis=1, keepdims=True), y) for X, y in digits]
    result = recognise(*parts, kernel="chi-square", costs=(1.0, 10.0))
    assert result.accuracy > 0.9


def test_c_is_the_best_on_validation_and_the_fit_uses_both_parts(digits):
    costs = (1e-3, 1.0, 100.0)
    (X, y), (Xv, yv), (Xt, yt) = digits
    result = recognise(*digits, costs=costs)
    found = []
    for C in costs:
        machine = LinearMachine(X)
        machine.fit(y, C)
        found.append(np.mean(machine.predict(machine.compare(Xv)) == yv))
    assert costs[int(np.argmax(found))] == result.C
    assert result.validation_accuracy == max(found)
    machine = LinearMachine(np.concatenate([X, Xv]))
    machine.fit(np.concatenate([y, yv]), result.C)
    assert result.accuracy == np.mean(machine.predict(machine.compare(Xt)) == yt)


def test_chi_square_equals_its_formula():
    rng = np.random.default_rng(2)
    A, B = rng.random((4, 6)), rng.random((3, 6))
    A[0, :2] = B[0, :2] = 0
    value = chi_square(A, B)
    for i in range(4):
        for j in range(3):
            terms = [(a - b) ** 2 / (a + b) for a, b in zip(A[i], B[j], strict=True) if a + b]
            assert value[i, j] == pytest.approx(sum(terms) / 2)
    machine = ChiSquareMachine(A)
    pairs = [value for i in range(4) for j, value in enumerate(chi_square(A, A)[i]) if i != j]
    assert machine.mean == pytest.approx(np.mean(pairs))
    np.testing.assert_allclose(machine.compare(B), np.exp(-value.T / machine.mean))


def test_bad_input_is_refused(digits):
    train, validation, test = digits
    with pytest.raises(InputError, match="n classes"):
        recognise((train[0], train[1][:-1]), validation, test)
    with pytest.raises(InputError, match="NaN"):
        recognise((train[0] * np.nan, train[1]), validation, test)
    with pytest.raises(InputError, match="no value below 0"):
        recognise((-train[0], train[1]), validation, test, kernel="chi-square")
    with pytest.raises(InputError, match="kernel is one of"):
        recognise(train, validation, test, kernel="rbf")
