"""Clusters of a collection: its kinds of images, where neighbourhoods alone say little.

How many kinds there are is not known. The images are therefore clustered by k-means into several
numbers of clusters, and each clustering counts by its stability: how well clusters found in one
half of a sample agree with those found in the other (adjusted Rand index). Before, the features of
each image are averaged with those of its neighbourhood, which moves images between two kinds
towards one of them.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from ddh._core.arrays import l2_normalize
from ddh._core.linear_algebra import Reals
from ddh._core.spans import spans

Floats = NDArray[np.float32]

NUMBERS = (4, 8, 16, 32, 64, 128)  # of clusters
MEMBERS = 30  # images per cluster at least, on average
SAMPLE = 4000  # images, in two halves
STARTS = 3  # of k-means
FIRST = 1000  # images of which a search counts those of the query's cluster, at most
BLOCK = 8192


@dataclass(frozen=True)
class Clusters:
    """Clusterings of N images: their stabilities, numbers of clusters, and labels (., N)."""

    stabilities: Reals
    numbers: NDArray[np.int64]
    labels: NDArray[np.uint8]

    def memberships(self, rows: Floats) -> Reals:
        """F^T (sum_k c_k H_k H_k^T) F for rows F.

        H_k: memberships in k clusters, divided by the root of a cluster's size. c_k: the fourth
        power of the stability, divided by k.
        """
        N, d = rows.shape
        total = np.zeros((d, d))
        for stability, k, own in zip(self.stabilities, self.numbers, self.labels, strict=True):
            indicator = sparse.csr_array((np.ones(N, np.float32), (own, np.arange(N))), (k, N))
            sizes = np.maximum(np.bincount(own, minlength=k), 1)
            sums = (indicator @ rows) / np.sqrt(sizes)[:, None]
            total += stability**4 / k * (sums.T @ sums)
        return total

    @property
    def first(self) -> int:
        """How many results `found` looks at, at most."""
        return min(FIRST, self.labels.shape[1] // int(self.numbers.min()))

    def found(self, queries: NDArray[np.int64], results: NDArray[np.int64]) -> float:
        """Share of images of the query's cluster among as many results as a cluster has images.

        It is the mean over the clusterings, weighted by the square of their stability.
        """
        shares = []
        for k, own in zip(self.numbers, self.labels, strict=True):
            first = results[:, : min(FIRST, len(own) // k)]
            shares.append((own[first] == own[queries][:, None]).mean())
        return float(np.average(shares, weights=self.stabilities**2))


def find_clusters(
    features: Floats, graph: sparse.csr_array, rng: np.random.Generator
) -> Clusters | None:
    """Cluster images by centred features (N, d), averaged over the neighbourhoods of a graph.

    None: there are too few images, or no two clusterings agree. Memory: 6 bytes x N.
    """
    from sklearn.metrics import adjusted_rand_score

    numbers = [k for k in NUMBERS if k * MEMBERS <= len(features)]

    def averaged(part: slice | NDArray[np.int64]) -> Floats:
        return l2_normalize(graph[part].astype(np.float32) @ features + features[part])

    order = rng.permutation(len(features))[:SAMPLE]
    sample = averaged(order[: len(order) // 2 * 2])
    pairs = [[_centres(half, k, rng) for half in np.split(sample, 2)] for k in numbers]
    stabilities = np.array(
        [max(adjusted_rand_score(*(_nearest(sample, own) for own in pair)), 0.0) for pair in pairs]
    )
    if not stabilities.any():
        return None
    labels = np.empty((len(numbers), len(features)), np.uint8)
    for part in spans(len(features), BLOCK):
        block = averaged(part)
        for own, (centres, _) in zip(labels, pairs, strict=True):
            own[part] = _nearest(block, centres)
    return Clusters(stabilities, np.array(numbers), labels)


def _centres(features: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Centres of k clusters on the unit sphere."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    means = KMeans(k, n_init=STARTS, random_state=int(rng.integers(2**31)))
    # several threads sum in any order, and no run would repeat
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal images: some clusters are empty
        return l2_normalize(means.fit(features).cluster_centers_)


def _nearest(features: Floats, centres: Floats) -> NDArray[np.int64]:
    """The cluster of each image."""
    return np.argmax(features @ centres.T, axis=1)
