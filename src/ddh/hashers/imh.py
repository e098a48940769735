"""Shen et al. (2013), "Inductive hashing on manifolds"."""

from dataclasses import field
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.linear_algebra import Reals, fix_signs
from ddh.hashers.anchor_graph import AnchorHasher, without_noise
from ddh.hashers.base import Floats

PERPLEXITY = 30.0
LEAST_ITERATIONS = 250  # of scikit-learn's t-SNE


class IMH(AnchorHasher):
    """A manifold embedding of the anchors; a row is the weighted mean of its nearest anchors.

    The anchors (centres of k-means) are embedded in as many dimensions as there are bits, by t-SNE
    or by the eigenvectors of their graph's Laplacian; y(x) = sum_j w_j y_j over the
    `nearest` anchors is cut at the mean of the anchors' values, which is 0. Bits beyond the
    number of eigenvectors are +1. More bits than dimensions are fine. Memory: anchors x anchors.

    Parameters
    ----------
    anchors, nearest : int
        Number of anchors, and how many of them make up a row.
    embedding : {"t-sne", "laplacian"}
        The paper's IMH-tSNE, which it recommends, or IMH-LE, which was better on CNN features.
    iterations : int
        Steps of t-SNE, 250 at least.
    """

    title = "Inductive manifold hashing"
    kind = "unsupervised"
    paper = "Shen, Shen, Shi, van den Hengel & Tang, Inductive hashing on manifolds, CVPR"
    year = 2013

    anchors: int = 400
    embedding: Literal["t-sne", "laplacian"] = "laplacian"
    iterations: int = 1000

    values_: Reals = field(init=False)

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        if self.embedding not in ("t-sne", "laplacian"):
            raise InputError(f"embedding is 't-sne' or 'laplacian', not {self.embedding!r}")
        self._find_anchors(X, rng)
        if self.embedding == "laplacian" or len(self.anchors_) < 4:  # too few for t-SNE
            values = laplacian_embedding(affinities(self.anchors_, self.width_), self.bits)
        else:
            values = self._t_sne(rng)
        self.values_ = without_noise(values - values.mean(axis=0))

    def _t_sne(self, rng: np.random.Generator) -> Reals:
        from sklearn.manifold import TSNE

        count = len(self.anchors_)
        model = TSNE(
            self.bits,
            perplexity=min(PERPLEXITY, (count - 1) / 3),
            init=1e-4 * rng.standard_normal((count, self.bits)),
            learning_rate="auto",
            max_iter=max(self.iterations, LEAST_ITERATIONS),
            method="exact",
            random_state=int(rng.integers(2**31)),
        )
        return np.asarray(model.fit_transform(self.anchors_), np.float64)

    def _outputs(self, X: Floats) -> Floats:
        return self._anchor_means(X)


def affinities(anchors: Reals, width: float) -> Reals:
    """Gaussian kernels between the anchors, 0 on the diagonal."""
    norms = np.square(anchors).sum(axis=1)
    squared = np.maximum(norms[:, None] - 2 * anchors @ anchors.T + norms, 0)
    W = np.exp(-squared / width)
    np.fill_diagonal(W, 0.0)
    return W


def laplacian_embedding(W: Reals, count: int) -> Reals:
    """The `count` smoothest solutions of (D - W) y = lambda D y after the constant one, as columns;
    columns beyond their number are 0."""
    degrees = np.maximum(W.sum(axis=1), 1e-12)
    root = np.sqrt(degrees)
    constant = root / np.linalg.norm(root)
    normalised = W / np.outer(root, root) - np.outer(constant, constant)
    values, vectors = scipy.linalg.eigh(normalised)
    order = np.argsort(values, kind="stable")[::-1][: min(count, len(W) - 1)]
    out = np.zeros((len(W), count))
    out[:, : len(order)] = fix_signs(vectors[:, order]) / root[:, None]
    return out
