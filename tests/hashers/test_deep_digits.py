"""What the deep methods find among the handwritten digits, against LSH, after a short training."""

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from ddh.evaluation import mean_average_precision
from ddh.hashers import create
from ddh.images import digits

BITS = 32
Split = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]


@cache
def split() -> Split:
    """700 digits to learn from and to search, 200 others as queries."""
    data = digits()
    order = np.random.default_rng(4).permutation(len(data.labels))
    X = data.images.pixels.reshape(len(order), -1).astype(np.float32)
    train, test = order[:700], order[700:900]
    return X[train], data.labels[train], X[test], data.labels[test]


@cache
def found(name: str, epochs: int | None = None) -> float:
    X, y, queries, wanted = split()
    settings = {} if epochs is None else {"epochs": epochs, "device": "cpu"}
    model = create(name, bits=BITS, **settings).fit(X, y)
    return float(
        mean_average_precision(model.transform(queries), model.transform(X), wanted, y, k=None)
    )


@pytest.mark.parametrize("name", ["CNNH", "DSRH", "DSCH", "DRSCH", "DPSH", "HashNet"])
def test_labels_are_learned(name: str) -> None:
    assert found(name, 25) > 0.85  # by chance 0.1; LSH has 0.50, ITQ 0.65


@pytest.mark.parametrize(("name", "epochs"), [("SemanticHashing", 20), ("DH", 60), ("DeepBit", 20)])
def test_without_labels_better_than_random_planes(name: str, epochs: int) -> None:
    assert found(name, epochs) > found("LSH") + 0.03
