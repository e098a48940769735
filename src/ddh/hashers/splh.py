"""Wang, Kumar & Chang (2010), "Sequential projection learning for hashing with compact codes"."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ddh._core.linear_algebra import (
    BLOCK_ROWS,
    Reals,
    covariance,
    halving_thresholds,
    top_eigenvector,
    without_empty_columns,
)
from ddh._core.progress import track
from ddh._core.spans import spans
from ddh.hashers.base import Floats, LinearHasher
from ddh.hashers.label_pairs import labelled_pairs

MOST_BOUNDARY_ROWS = 2000
BOUNDARY_SHARE = 8
DECAY = 0.1


class SPLH(LinearHasher):
    """One projection after the other, each mending the pairs that those before it got wrong.

    With labels (Alg. 1): bit k is the top eigenvector of X_l^T S_k X_l / l^2 + `eta` C_k. Then the
    pairs whose product of projections contradicts S gain weight, by `step` times that product,
    and the direction is removed from the covariance C_k of the data; the pairs keep their whole
    rows, as in the authors' release. Rows of class -1 have no label and count in C_k only.

    Without labels (Sec. 3.4, USPLH): the pairs come from the bit before. Points close to its
    threshold belong together, on either side of it and within a side as in the authors' release;
    points close to it and far from it on one side do not. Thresholds are medians. More bits
    than dimensions are fine. Memory: d x d, labelled x labelled.

    Parameters
    ----------
    eta : float
        Weight of the covariance of all rows beside the labelled pairs.
    step : float
        How much a contradicted pair gains in weight.
    labelled : int
        Largest number of rows whose labels are used, drawn at random.
    """

    title = "Sequential projection learning"
    kind = "semi-supervised"
    labels = "optional"
    paper = "Wang, Kumar & Chang, Sequential projection learning for hashing, ICML"
    year = 2010

    eta: float = 0.3
    step: float = 1.0
    labelled: int = 2000

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        self.mean_, data_term = covariance(X)
        if y is None:
            W, self.thresholds_ = self._fit_unlabelled(X, data_term)
        else:
            rows, S = labelled_pairs(y, self.labelled, rng)
            pairs = S.dense().astype(np.float64)
            W = self._fit_labelled(X[rows] - self.mean_, pairs, data_term)
            self.thresholds_ = np.zeros(self.bits)
        self.projection_ = without_empty_columns(W, data_term)

    def _bits(self) -> Iterable[int]:
        return track(range(self.bits), "Sequential projections", unit="bit")

    def _fit_labelled(self, X_l: Reals, S: Reals, data_term: Reals) -> Reals:
        W = np.zeros((X_l.shape[1], self.bits))
        weights = S.copy()
        for k in self._bits():
            W[:, k] = top_direction(X_l, weights, self.eta * data_term)
            weights -= self.step * violations(X_l @ W[:, k], S)
            data_term = deflate(data_term, W[:, k])
        return W

    def _fit_unlabelled(self, X: Floats, data_term: Reals) -> tuple[Reals, Reals]:
        W = np.zeros((X.shape[1], self.bits))
        thresholds = np.zeros(self.bits)
        pairs = np.zeros_like(data_term)
        for k in self._bits():
            matrix = self.eta * data_term + pairs
            W[:, k] = top_eigenvector(matrix.__matmul__, len(matrix))
            parts = [(X[rows] - self.mean_) @ W[:, k] for rows in spans(len(X), BLOCK_ROWS)]
            projected = np.concatenate(parts)
            thresholds[k] = halving_thresholds(projected[:, None])[0]
            groups = boundary_groups(projected - thresholds[k])
            pairs = DECAY * pairs + pseudo_pairs([X[rows] - self.mean_ for rows in groups])
            data_term = deflate(data_term, W[:, k])
        return W, thresholds

    def _outputs(self, X: Floats) -> Floats:
        return super()._outputs(X) - self.thresholds_


def top_direction(X_l: Reals, weights: Reals, data_term: Reals) -> Reals:
    """Top eigenvector of X_l^T weights X_l / l^2 + data_term, which is never formed."""

    def product(V: Reals) -> Reals:
        return X_l.T @ (weights @ (X_l @ V)) / len(X_l) ** 2 + data_term @ V

    return top_eigenvector(product, X_l.shape[1])


def violations(projected: Reals, S: Reals) -> Reals:
    """T: products of projections, scaled to [-1, 1], where their sign contradicts S; else 0."""
    largest = np.abs(projected).max()
    scaled = projected / largest if largest > 0 else projected
    products = np.outer(scaled, scaled)
    return np.where(products * S < 0, products, 0.0)


def deflate(matrix: Reals, w: Reals) -> Reals:
    """The covariance of X - X w w^T: P matrix P with P = I - w w^T, w of length 1."""
    left = matrix - np.outer(w, w @ matrix)
    return left - np.outer(left @ w, w)


def boundary_groups(signed: Reals) -> list[NDArray[np.intp]]:
    """Rows [near below, near above, far below, far above] the threshold 0, of one size each."""
    order = np.argsort(signed, kind="stable")
    middle = int((signed < 0).sum())
    size = max(1, min(MOST_BOUNDARY_ROWS, len(signed) // BOUNDARY_SHARE))
    return [
        order[max(0, middle - size) : max(1, middle)],
        order[min(middle, len(signed) - 1) : middle + size],
        order[:size],
        order[-size:],
    ]


def pseudo_pairs(groups: list[Reals]) -> Reals:
    """X^T S X over the pairs of the groups [near below, near above, far below, far above], centred.

    Pairs of near rows must link, across the threshold and within either side, each with the weight
    1 / (near below x near above); near and far rows of one side cannot, and weigh 1 in all. No row
    is paired with itself.
    """
    below, above = groups[0], groups[1]
    means = [rows.mean(axis=0, dtype=np.float64) for rows in groups]
    across = np.outer(means[0], means[1])
    must = across + across.T
    for rows, mean in zip((below, above), means, strict=False):
        # sum over i != j of x_i x_j^T = n^2 mean mean^T - sum over i of x_i x_i^T
        within = len(rows) ** 2 * np.outer(mean, mean) - rows.T @ rows
        must += within / (len(below) * len(above))
    cannot = (np.outer(means[0], means[2]) + np.outer(means[1], means[3])) / 2
    return must - cannot - cannot.T
