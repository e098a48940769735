"""Average precision of a ranking by Hamming distance, where many items stand at equal distance.

Items at one distance have no order among themselves. `expected_average_precision` is the mean
over all their orders in closed form (McSherry & Najork, ECIR 2008, carried on to a cut at k
inside a group of ties and to each denominator); `average_precision` is the plain value of one
given order.

Take a group of n items, r of them relevant, after N0 items with R0 relevant. The j-th place of
the group holds a relevant item with probability r / n, and then (j - 1)(r - 1) / (n - 1) of the
places before it in the group do too, so the group adds to the sum of precisions

    sum_{j <= t} r/n (R0 + 1 + (j - 1)(r - 1)/(n - 1)) / (N0 + j)
        = r/n ((R0 + 1) A + (r - 1)/(n - 1) B)

with t = min(n, k - N0), A = H(N0 + t) - H(N0) for the harmonic numbers H, B = t - (N0 + 1) A.
"""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.spans import spans
from ddh.evaluation.counts import DistanceCounts

Denominator = Literal["relevant in top k", "min(R, k)", "R"]
DENOMINATORS: tuple[Denominator, ...] = get_args(Denominator)

# Values held at once while the closed form is worked out.
CELLS = 1 << 20


def check_denominator(name: str) -> Denominator:
    """One of DENOMINATORS, or an error that lists them."""
    if name not in DENOMINATORS:
        choices = ", ".join(map(repr, DENOMINATORS))
        raise InputError(f"there is no AP denominator {name!r}; there are {choices}")
    return name


def average_precision(
    relevance: NDArray[np.bool_], total: NDArray[Any], k: int, denominator: Denominator
) -> NDArray[np.float64]:
    """AP of ranked lists: `relevance` (queries, top k) in rank order, `total` relevant items R."""
    hits = np.cumsum(relevance, axis=1, dtype=np.float64)
    precisions = hits / np.arange(1, relevance.shape[1] + 1)
    summed = np.where(relevance, precisions, 0.0).sum(axis=1)
    return _divide(summed, {"relevant in top k": hits[:, -1], "R": total}, k, denominator)


def _divide(
    summed: NDArray[np.float64], known: dict[str, NDArray[Any]], k: int, denominator: Denominator
) -> NDArray[np.float64]:
    below = np.minimum(known["R"], k) if denominator == "min(R, k)" else known[denominator]
    # without anything relevant the sum is 0 already
    return np.asarray(summed / np.maximum(below, 1))


def expected_average_precision(
    counts: DistanceCounts, k: int | None, denominator: Denominator
) -> NDArray[np.float64]:
    """Mean AP of each query over all orders inside equal distances; 0 where nothing is relevant.

    Time and memory go with queries x (bits + 1), whatever the size of the database.
    """
    size = counts.database
    cut = size if k is None else min(k, size)
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, size + 1))])
    result = np.empty(len(counts.items))
    # With this denominator a cut inside a group of ties has up to k + 1 outcomes per query.
    outcomes = cut + 1 if cut < size and denominator == "relevant in top k" else 1
    step = max(1, CELLS // max(counts.bits + 1, outcomes))
    for part in spans(len(result), step):
        result[part] = _expected(counts.part(part), cut, k or size, denominator, harmonic)
    return result


def _expected(
    counts: DistanceCounts,
    cut: int,
    k: int,
    denominator: Denominator,
    harmonic: NDArray[np.float64],
) -> NDArray[np.float64]:
    n, r = counts.items.astype(np.int64), counts.relevant.astype(np.int64)
    N0, R0 = np.cumsum(n, axis=1) - n, np.cumsum(r, axis=1) - r
    t = np.clip(cut - N0, 0, n)
    A = harmonic[N0 + t] - harmonic[N0]
    B = t - (N0 + 1) * A
    groups = r / np.maximum(n, 1) * ((R0 + 1) * A + (r - 1) / np.maximum(n - 1, 1) * B)
    total = r.sum(axis=1)
    if denominator != "relevant in top k":
        return _divide(groups.sum(axis=1), {"R": total}, k, denominator)
    # The group that the cut goes through: before it all is certain, inside it the number of
    # relevant items above the cut is random.
    last = np.argmax(N0 + n >= cut, axis=1)
    rows = np.arange(len(n))
    before = groups.sum(axis=1) - groups[rows, last]
    group = [values[rows, last] for values in (n, r, t, R0, A, B)]
    return _over_hits_in_cut_group(before, *group)


def _over_hits_in_cut_group(
    before: NDArray[np.float64],
    n: NDArray[np.int64],
    r: NDArray[np.int64],
    t: NDArray[np.int64],
    R0: NDArray[np.int64],
    A: NDArray[np.float64],
    B: NDArray[np.float64],
) -> NDArray[np.float64]:
    """E[sum of precisions / relevant items above the cut].

    The cut leaves t of the group's n places above it; h of its r relevant items fall there with
    the hypergeometric probability. Given h, every arrangement of them on the t places is
    equally likely, so the closed form holds with (t, h) in place of (n, r).
    """
    least, most = np.maximum(0, t - (n - r)), np.minimum(r, t)
    lengths = most - least + 1
    owner = np.repeat(np.arange(len(n)), lengths)
    first = np.cumsum(lengths) - lengths
    h = np.arange(len(owner)) - first[owner] + least[owner]
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int(n.max()) + 1)))])

    def log_choose(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(log_factorial[a] - log_factorial[b] - log_factorial[a - b])

    n, r, t, R0 = n[owner], r[owner], t[owner], R0[owner]
    A, B = A[owner], B[owner]
    chance = np.exp(log_choose(r, h) + log_choose(n - r, t - h) - log_choose(n, t))
    inside = h / t * ((R0 + 1) * A + (h - 1) / np.maximum(t - 1, 1) * B)
    value = (before[owner] + inside) / np.maximum(R0 + h, 1)
    # The chances of a query sum to 1 up to the rounding of large logarithms: take that out.
    return np.add.reduceat(chance * value, first) / np.add.reduceat(chance, first)
