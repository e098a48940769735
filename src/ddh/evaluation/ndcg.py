"""NDCG for graded relevance: the more labels two images share, the higher the gain 2^shared - 1.

Inside a group of equal distances every order is equally likely, so each of its ranks has the
mean gain of the group in expectation (McSherry & Najork, ECIR 2008). The ideal order of a query
needs only how many items share how many labels with it.
"""

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.codes.inputs import Codes
from ddh.evaluation.counts import histogram
from ddh.evaluation.inputs import Relevance


def expected_ndcg(
    queries: Codes, database: Codes, relevance: Relevance, bits: int, k: int | None
) -> NDArray[np.float64]:
    """Expected NDCG@k of each query (k=None: the whole ranking); 0 where nothing is relevant."""
    if relevance.most_shared > 1000:
        raise InputError("gains of 2^shared overflow with more than 1,000 shared labels")
    shared = histogram(queries, database, relevance.most_shared + 1, relevance.shared, bits)
    items, grades = shared.sum(axis=1, dtype=np.int64), shared.sum(axis=2, dtype=np.int64)
    cut = len(database) if k is None else min(k, len(database))
    discount = 1.0 / np.log2(np.arange(2, len(database) + 2))
    # discounts[i] is the sum of the discounts of ranks 1..i, with nothing below the cut
    discounts = np.concatenate(
        [[0.0], np.cumsum(np.where(np.arange(1, len(database) + 1) <= cut, discount, 0.0))]
    )
    gain = np.exp2(np.arange(shared.shape[1])) - 1
    mean_gain = np.einsum("qgd,g->qd", shared, gain) / np.maximum(items, 1)
    found = _sum_over_groups(items, mean_gain, discounts)
    ideal = _sum_over_groups(grades[:, ::-1], gain[::-1], discounts)
    return np.divide(found, ideal, out=np.zeros_like(found), where=ideal > 0)


def _sum_over_groups(
    sizes: NDArray[np.int64], gain: NDArray[np.float64], discounts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sum over groups of (gain of the group) x (discounts of the ranks it covers)."""
    end = np.cumsum(sizes, axis=1)
    return np.asarray((gain * (discounts[end] - discounts[end - sizes])).sum(axis=1))
