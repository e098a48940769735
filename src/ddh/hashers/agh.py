"""Liu, Wang, Kumar & Chang (2011), "Hashing with graphs": anchor graph hashing."""

from dataclasses import field
from typing import Literal

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.linear_algebra import BLOCK_ROWS, Reals, fix_signs
from ddh._core.spans import spans
from ddh.hashers.anchor_graph import AnchorHasher, without_noise
from ddh.hashers.base import Floats


class AGH(AnchorHasher):
    """Signs of the smoothest eigenfunctions of a graph that connects rows through anchors.

    The graph is A = Z Lambda^-1 Z^T, Z (n, anchors) being the weights of a row's `nearest` anchors
    (centres of k-means) and Lambda its column sums; its eigenvectors come from an anchors x anchors
    matrix, and are extended to new rows by Nystrom's formula. With two `layers`
    each of the bits / 2 smoothest ones gives a second bit, which cuts either side of the first once
    more. Bits beyond the number of eigenvectors are +1. More bits than dimensions are
    fine. Memory: anchors x anchors, and n x nearest.

    Parameters
    ----------
    anchors, nearest : int
        Number of anchors, and how many of them a row is connected with.
    layers : {1, 2}
        Bits per eigenfunction.
    """

    title = "Anchor graph hashing"
    kind = "unsupervised"
    paper = "Liu, Wang, Kumar & Chang, Hashing with graphs, ICML"
    year = 2011

    nearest: int = 10
    layers: Literal[1, 2] = 2

    thresholds_: Reals = field(init=False)

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        if self.layers not in (1, 2):
            raise InputError(f"layers is 1 or 2, not {self.layers!r}")
        self._find_anchors(X, rng)
        Z = self._anchor_matrix(X)
        functions = -(-self.bits // self.layers)
        self.values_ = eigenfunctions(Z, functions)
        self.thresholds_ = np.zeros((2, functions))
        if self.layers == 2:
            self.thresholds_ = second_thresholds(Z, Z @ self.values_)

    def _anchor_matrix(self, X: Floats) -> scipy.sparse.csr_array:
        parts = [self._weights(X[rows]) for rows in spans(len(X), BLOCK_ROWS)]
        columns, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        starts = np.arange(len(X) + 1) * columns.shape[1]
        shape = (len(X), len(self.anchors_))
        return scipy.sparse.csr_array((weights.ravel(), columns.ravel(), starts), shape=shape)

    def _outputs(self, X: Floats) -> Floats:
        first = self._anchor_means(X)
        if self.layers == 1:
            return first
        above, below = self.thresholds_
        second = np.where(first > 0, first - above, below - first)
        return np.concatenate([first, second], axis=1)[:, : self.bits]


def eigenfunctions(Z: scipy.sparse.csr_array, count: int) -> Reals:
    """W (anchors, count) with Z W = sqrt(n) times the eigenvectors of A = Z Lambda^-1 Z^T that
    follow the constant one: W = sqrt(n) Lambda^-1/2 V Sigma^-1/2, V and Sigma from
    M = Lambda^-1/2 Z^T Z Lambda^-1/2. Columns beyond the rank of A are 0."""
    degrees = np.maximum(Z.sum(axis=0), np.finfo(np.float64).tiny)
    root = np.sqrt(degrees)
    M = (Z.T @ Z).toarray() / np.outer(root, root)
    # The constant eigenvector of A, of eigenvalue 1, is V = Lambda^1/2 1: it is taken out, since
    # a graph in several parts has more than one eigenvector of that eigenvalue.
    constant = root / np.linalg.norm(root)
    values, vectors = scipy.linalg.eigh(M - np.outer(constant, constant))
    order = np.argsort(values, kind="stable")[::-1][:count]
    kept = order[values[order] > 1e-9]
    W = np.zeros((len(M), count))
    scale = np.sqrt(Z.shape[0] / values[kept])
    W[:, : len(kept)] = fix_signs(vectors[:, kept]) * scale / root[:, None]
    return without_noise(W)


def second_thresholds(Z: scipy.sparse.csr_array, Y: Reals) -> Reals:
    """(2, functions): where the second layer cuts the rows with y > 0 and the others.

    Of all cuts b+ and b- with (y - b+) on one side and (b- - y) on the other summing to 0, those
    whose vector is the smoothest on the graph: it minimises f^T (I - A) f.
    """
    n = len(Y)
    degrees = np.maximum(Z.sum(axis=0), np.finfo(np.float64).tiny)
    above = Y > 0
    count = above.sum(axis=0)
    folded = np.where(above, Y, -Y)
    towards = Z.T @ above.astype(np.float64)  # (anchors, functions)
    smoothed = (towards * (Z.T @ folded) / degrees[:, None]).sum(axis=0)
    own = count - (np.square(towards) / degrees[:, None]).sum(axis=0)
    total = np.where(above, Y, 0.0).sum(axis=0)
    # `own` is 0 where no edge joins the two sides, and any cut is as smooth as another
    slope = np.where(own > 1e-9 * n, (total - smoothed) / np.where(own > 0, own, 1.0), 0.0)
    return np.stack([(2 * total + (n - count) * slope) / n, (count * slope - 2 * total) / n])
