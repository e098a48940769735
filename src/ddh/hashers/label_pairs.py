"""Labels as the supervised methods use them: which rows carry one, and which pairs share one."""

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.labels import indicators, is_labelled, shares_label
from ddh._core.linear_algebra import Reals


def labelled_rows(
    y: NDArray[np.int64], count: int | None, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Rows that carry a label, in order; `count` of them drawn at random where there are more."""
    rows = np.flatnonzero(is_labelled(y))
    if len(rows) < 2:
        raise InputError(
            f"{len(rows)} row(s) carry a label, two or more are needed "
            "(class -1, or a matrix row of zeros, means: no label)"
        )
    if count is not None and len(rows) > count:
        rows = np.sort(rng.choice(rows, count, replace=False))
    return rows


def labelled_pairs(
    y: NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], "PairSimilarity"]:
    """Rows as `labelled_rows` draws them, and which pairs of them share a label."""
    rows = labelled_rows(y, count, rng)
    return rows, PairSimilarity(indicators(y)[rows])


def similarity(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """+1 where two rows of indicators share a label, -1 elsewhere: (left rows, right rows)."""
    return np.where(shares_label(left, right), np.float32(1), np.float32(-1))


class PairSimilarity:
    """The l x l matrix S of `similarity` within one set of rows, never written out.

    Rows with the same labels have the same row of S, so S = E S_q E^T with S_q over the q
    different label sets: q x q numbers, and a product with V in O(l k + q^2 k).
    """

    def __init__(self, labels: NDArray[np.float32]) -> None:
        sets, self.inverse = np.unique(labels, axis=0, return_inverse=True)
        self.between_sets = similarity(sets, sets).astype(np.float64)
        rows = len(labels)
        self.membership = scipy.sparse.csr_array(
            (np.ones(rows), (self.inverse, np.arange(rows))), shape=(len(sets), rows)
        )

    def __matmul__(self, V: NDArray[Any]) -> Reals:
        return (self.between_sets @ (self.membership @ V))[self.inverse]

    def quadratic(self, V: NDArray[Any]) -> Reals:
        """V^T S V."""
        sums = self.membership @ V
        return sums.T @ self.between_sets @ sums

    def dense(self) -> NDArray[np.float32]:
        """S itself, for methods that change single pairs: l x l float32."""
        rows = self.between_sets.astype(np.float32)[self.inverse]
        return rows[:, self.inverse]
