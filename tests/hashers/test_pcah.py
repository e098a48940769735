"""PCA hashing against the singular value decomposition."""

import numpy as np

from ddh.hashers import PCAH


def test_bits_are_signs_of_principal_components():
    X = np.random.default_rng(0).normal(2, 1, (300, 8)) * np.arange(1, 9)
    model = PCAH(bits=5).fit(X)
    U, singular, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    codes = model.transform(X)
    agree = (codes == np.where(U[:, :5] >= 0, 1, -1)).mean(axis=0)
    np.testing.assert_array_equal(np.maximum(agree, 1 - agree), 1)  # up to the sign of a vector
    np.testing.assert_allclose(model.variances_, singular[:5] ** 2 / 300)


def test_single_precision_gives_the_same_bits():
    X = np.random.default_rng(0).normal(2, 1, (300, 8)).astype(np.float32) * np.arange(1, 9)
    single, double = PCAH(bits=5).fit(X.astype(np.float32)), PCAH(bits=5).fit(X)
    assert (single.transform(X) == double.transform(X)).mean() > 0.999
