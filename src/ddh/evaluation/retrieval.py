"""A query set, a database and their labels: counted once, measured in every way of this package."""

from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh.codes.inputs import Codes, binary_pair
from ddh.evaluation.average_precision import (
    average_precision,
    check_denominator,
    expected_average_precision,
)
from ddh.evaluation.counts import DistanceCounts, count
from ddh.evaluation.curves import (
    Curve,
    curve_by_radius,
    curve_by_rank,
    expected_hits,
    precision_within,
)
from ddh.evaluation.inputs import Relevance
from ddh.evaluation.leakage import refuse_shared_images
from ddh.evaluation.lists import check_neighbours, recall_protocol
from ddh.evaluation.ndcg import expected_ndcg
from ddh.evaluation.protocol import UNSPECIFIED, Protocol, Score, digest
from ddh.evaluation.ranking import ranked_relevance

Ties = Literal["expected", "legacy"]
WithoutRelevant = Literal["zero", "skip"]


class Retrieval:
    """Codes and labels of queries and database, ready to be scored.

    Codes are +-1 (n, bits), or packed uint8 rows with `bits`. Labels are classes (relevant: the
    same class) or 0/1 matrices (relevant: at least one shared concept). `without_relevant` says
    what a query without any relevant item in the database counts: "zero" (default, never
    flatters; the usual code of published mAP@k), or "skip" (left out of the mean, as the released
    code of the paper has it); `Score.empty` says how many there were. With images given on both
    sides, a query that is also in the database is refused.
    """

    def __init__(
        self,
        query_codes: ArrayLike,
        database_codes: ArrayLike,
        query_labels: ArrayLike,
        database_labels: ArrayLike,
        *,
        bits: int | None = None,
        device: str | None = None,
        without_relevant: WithoutRelevant = "zero",
        protocol: Protocol | None = None,
        query_images: Any = None,
        database_images: Any = None,
    ) -> None:
        if without_relevant not in ("zero", "skip"):
            raise InputError(f"without_relevant is 'zero' or 'skip', not {without_relevant!r}")
        if (query_images is None) != (database_images is None):
            raise InputError("give the images of both sides, or of neither")
        if query_images is not None:
            refuse_shared_images(query_images, database_images)
        self.query_codes, self.database_codes, self.bits = binary_pair(
            query_codes, database_codes, bits
        )
        self.query_labels = np.asarray(query_labels)
        self.database_labels = np.asarray(database_labels)
        self._relevance = Relevance.of(
            query_labels, database_labels, len(self.query_codes), len(self.database_codes)
        )
        self.device = device
        self.without_relevant = without_relevant
        self.protocol = (protocol or Protocol()).replace(
            queries=len(self.query_codes),
            database=len(self.database_codes),
            bits=self.bits,
            without_relevant=without_relevant,
        )
        if self.protocol.split == UNSPECIFIED:
            known = digest(self.query_labels, self.database_labels)
            self.protocol = self.protocol.replace(split=f"labels {known}")

    @property
    def _problem(self) -> tuple[Codes, Codes, Relevance, int]:
        return self.query_codes, self.database_codes, self._relevance, self.bits

    @cached_property
    def counts(self) -> DistanceCounts:
        """Items and relevant items per query and distance."""
        return count(*self._problem, device=self.device)

    @cached_property
    def _answerable(self) -> NDArray[np.bool_]:
        return np.asarray(self.counts.relevant.sum(axis=1) > 0)

    def _score(self, values: NDArray[np.float64], **protocol: Any) -> Score:
        counted = values[self._answerable] if self.without_relevant == "skip" else values
        if not len(counted):
            raise InputError("no query has a relevant item in the database; are the labels right?")
        empty = int(np.count_nonzero(~self._answerable))
        return Score(counted.mean(), self.protocol.replace(**protocol), counted, empty=empty)

    def mean_average_precision(
        self,
        k: int | None = 1000,
        *,
        ties: Ties = "expected",
        denominator: str = "relevant in top k",
        seed: int = 0,
    ) -> Score:
        """mAP of the k nearest (None: of the whole ranking).

        Parameters
        ----------
        k : int or None
            Length of the rankings.
        ties : {"expected", "legacy"}
            "expected" is the mean over all orders inside equal distances, in closed form. "legacy"
            ranks them by the database order that `seed` draws, as published figures do.
        denominator : {"relevant in top k", "min(R, k)", "R"}
            What the sum of precisions is divided by; R is the number of relevant items.
        seed : int
            Of the order for "legacy".

        Returns
        -------
        Score
        """
        name = check_denominator(denominator)
        _check_rank(k)
        if ties == "expected":
            values, said = expected_average_precision(self.counts, k, name), "expected"
        elif ties == "legacy":
            values, said = np.empty(len(self.query_codes)), f"legacy (order {seed})"
            depth = k or len(self.database_codes)
            blocks = ranked_relevance(*self._problem, k=k, seed=seed, device=self.device)
            for rows, relevance, total in blocks:
                values[rows] = average_precision(relevance, total, depth, name)
        else:
            raise InputError(f"ties is 'expected' or 'legacy', not {ties!r}")
        return self._score(values, measure="mAP", k=k, denominator=name, ties=said)

    def precision_at(self, k: int) -> Score:
        """Expected share of relevant items among the k nearest."""
        _check_rank(k)
        depth = min(k, self.counts.database)
        values = expected_hits(self.counts, k) / depth
        return self._score(values, measure="precision", k=k, ties="expected")

    def recall_at(self, k: int) -> Score:
        """Expected share of all relevant items that are among the k nearest."""
        _check_rank(k)
        total = self.counts.relevant.sum(axis=1)
        values = expected_hits(self.counts, k) / np.maximum(total, 1)
        return self._score(values, measure="recall", k=k, ties="expected")

    def neighbour_recall(self, neighbours: ArrayLike, k: int = 100) -> Score:
        """Expected share of each query's true neighbours among the k nearest by code.

        Parameters
        ----------
        neighbours : array of shape (queries, n)
            Rows of the database, for example those of `nearest_by_cosine`.
        k : int
            How many of the nearest by code count.

        Returns
        -------
        Score
        """
        _check_rank(k)
        items = self.counts.items
        true = check_neighbours(neighbours, len(items), len(self.database_codes))
        found = np.zeros_like(items)
        for column in true.T:
            differing = self.query_codes ^ self.database_codes[column]
            distances = np.bitwise_count(differing).sum(axis=1, dtype=np.intp)
            found[np.arange(len(found)), distances] += 1
        values = expected_hits(DistanceCounts(items, found), k) / true.shape[1]
        protocol = recall_protocol(self.protocol, true, k)
        return Score(values.mean(), protocol.replace(ties="expected"), values)

    def precision_within(self, radius: int = 2) -> Score:
        """Precision of what lies within a Hamming radius; a query that finds nothing counts 0."""
        if radius < 0:
            raise InputError(f"a radius is 0 or more, not {radius}")
        values = precision_within(self.counts, radius)
        return self._score(values, measure=f"precision within radius {radius}")

    def ndcg(self, k: int | None = 100) -> Score:
        """Expected NDCG@k, with the gain 2^(shared labels) - 1."""
        _check_rank(k)
        values = expected_ndcg(*self._problem, k)
        return self._score(values, measure="NDCG", k=k, ties="expected")

    def curve_by_radius(self) -> Curve:
        """Precision and recall at each Hamming radius, pooled over the queries."""
        return curve_by_radius(self.counts)

    def curve_by_rank(self) -> Curve:
        """Mean expected precision and recall at each rank."""
        return curve_by_rank(self.counts)


def _check_rank(k: int | None) -> None:
    if k is not None and k < 1:
        raise InputError(f"k is 1 or more, or None for the whole ranking, not {k}")


def mean_average_precision(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    k: int | None = 1000,
    ties: Ties = "expected",
    *,
    denominator: str = "relevant in top k",
    seed: int = 0,
    **options: Any,
) -> Score:
    """mAP@k of ranking `database_codes` by Hamming distance for each query: one call.

    `k`, `ties`, `denominator` and `seed` as in `Retrieval.mean_average_precision`; the `options`
    (bits, device, without_relevant, protocol, query_images, database_images) as in `Retrieval`.
    """
    retrieval = Retrieval(query_codes, database_codes, query_labels, database_labels, **options)
    return retrieval.mean_average_precision(k, ties=ties, denominator=denominator, seed=seed)
