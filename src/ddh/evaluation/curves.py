"""Precision and recall, at a rank, within a radius, and as curves, from counts per distance.

At a rank inside a group of n items at equal distance, r of them relevant, the expected number
of relevant items among its first t is t r / n: the values at a rank are means over all orders
of the ties, as for average precision.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddh.evaluation.counts import DistanceCounts


@dataclass(frozen=True)
class Curve:
    """Precision and recall, one entry for each place in `at` (radii, or ranks from 1)."""

    at: NDArray[np.int64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]

    def thinned(self, points: int) -> "Curve":
        """At most `points` entries, evenly spaced on a logarithmic scale, both ends kept."""
        if len(self.at) <= points:
            return self
        spaced = np.geomspace(1, len(self.at), points).round().astype(int) - 1
        keep = np.unique(spaced)
        return Curve(self.at[keep], self.precision[keep], self.recall[keep])


def expected_hits(counts: DistanceCounts, k: int) -> NDArray[np.float64]:
    """Expected number of relevant items among the k nearest of each query."""
    before = np.cumsum(counts.items, axis=1, dtype=np.int64) - counts.items
    taken = np.clip(k - before, 0, counts.items)
    return np.asarray((taken * (counts.relevant / np.maximum(counts.items, 1))).sum(axis=1))


def precision_within(counts: DistanceCounts, radius: int) -> NDArray[np.float64]:
    """Share of relevant items within a Hamming radius; a query that finds nothing there has 0."""
    inside = slice(0, radius + 1)
    found = counts.items[:, inside].sum(axis=1)
    return np.asarray(counts.relevant[:, inside].sum(axis=1) / np.maximum(found, 1))


def curve_by_radius(counts: DistanceCounts) -> Curve:
    """Precision and recall of all retrieved pairs together, at each radius from 0 to bits.

    Pooled over the queries (not a mean of their precisions), so that queries which find nothing
    at a small radius do not bend the curve. Radii where no query finds anything are left out.
    """
    found = np.cumsum(counts.items.sum(axis=0, dtype=np.int64))
    hits = np.cumsum(counts.relevant.sum(axis=0, dtype=np.int64))
    radii = np.flatnonzero(found)
    recall = hits[radii] / max(int(hits[-1]), 1)
    return Curve(radii, hits[radii] / found[radii], recall)


def curve_by_rank(counts: DistanceCounts) -> Curve:
    """Mean expected precision and recall of the queries at every rank from 1 to the last.

    Each group of ties adds an even r / n to the ranks that it covers: a difference array takes
    all groups of all queries at once, in memory of one number per rank. Queries without a
    relevant item count for precision and not for recall.
    """
    end = np.cumsum(counts.items, axis=1, dtype=np.int64)
    density = counts.relevant / np.maximum(counts.items, 1)
    total = counts.relevant.sum(axis=1)
    size, ranks = counts.database, np.arange(1, counts.database + 1)

    def hits_at_each_rank(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        steps = np.bincount((end - counts.items).ravel(), weights.ravel(), size + 1)
        steps -= np.bincount(end.ravel(), weights.ravel(), size + 1)
        return np.cumsum(np.cumsum(steps[:size]))

    precision = hits_at_each_rank(density) / len(total) / ranks
    answerable = max(int(np.count_nonzero(total)), 1)
    recall = hits_at_each_rank(density / np.maximum(total, 1)[:, None]) / answerable
    return Curve(ranks, precision, np.minimum(recall, 1.0))
