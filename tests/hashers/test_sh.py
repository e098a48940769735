"""Spectral hashing against its closed form, and against a real Laplacian, on a uniform box."""

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.hashers import SH
from ddh.hashers.sh import smoothest_modes

SIDES = (3.0, 2.0, 0.55)


def box(counts: tuple[int, ...]) -> np.ndarray:
    """An even grid over the box, so that its principal axes are the coordinate axes."""
    axes = [np.linspace(0, side, count) for side, count in zip(SIDES, counts, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(SIDES))


def test_modes_by_enumeration():
    sides = np.array(SIDES)
    every = [(m * np.pi / R, axis) for axis, R in enumerate(sides) for m in range(1, 50)]
    expected = sorted(every)[:9]
    axes, frequencies = smoothest_modes(sides, 9)
    np.testing.assert_allclose(frequencies, [f for f, _ in expected])
    np.testing.assert_array_equal(axes, [axis for _, axis in expected])


def test_bits_on_a_uniform_box():
    X = box((31, 21, 8))
    codes = SH(bits=6).fit(X).transform(X)
    axes, frequencies = smoothest_modes(np.array(SIDES), 6)
    for k in range(6):
        phase = frequencies[k] * X[:, axes[k]]
        clear = np.abs(np.cos(phase)) > 1e-9  # off the lines where the eigenfunction is zero
        expected = np.where(np.cos(phase) >= 0, 1, -1)
        # a principal axis may point either way: the eigenfunction then changes at most its sign
        agree = (codes[:, k] == expected)[clear].mean()
        assert agree in (0, 1)


def test_bits_follow_the_eigenvectors_of_a_laplacian():
    """Closed form against numbers: eigenvectors of the path Laplacian along each axis."""
    counts = (61, 41, 12)
    X = box(counts)
    codes = SH(bits=5).fit(X).transform(X)
    axes, _ = smoothest_modes(np.array(SIDES), 5)
    for k, axis in enumerate(axes):
        n = counts[axis]
        laplacian = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
        laplacian[0, 0] = laplacian[-1, -1] = 1
        mode = 1 + int(np.sum(axes[:k] == axis))
        vector = np.linalg.eigh(laplacian)[1][:, mode]
        place = np.round(X[:, axis] / SIDES[axis] * (n - 1)).astype(int)
        agree = (codes[:, k] == np.where(vector[place] >= 0, 1, -1)).mean()
        assert max(agree, 1 - agree) > 0.95


def test_percentile_cuts_outliers():
    X = np.concatenate([box((31, 21, 8)), [[1000.0, 0, 0]]])
    plain, cut = SH(bits=4).fit(X), SH(bits=4, percentile=5).fit(X)
    assert len(np.unique(plain.transform(X[:-1]), axis=0)) < 4
    assert len(np.unique(cut.transform(X[:-1]), axis=0)) > 4


def test_percentile_is_checked():
    with pytest.raises(InputError, match="percentile"):
        SH(bits=2, percentile=50).fit(box((4, 4, 4)))
