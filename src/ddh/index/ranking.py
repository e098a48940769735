"""The order of what a Hamming search has found, by the outputs or the features of its query."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh.codes import asymmetric_scores
from ddh.index.features import FeatureTransform, Stored, Vectors
from ddh.index.rows import Codes, Hit

# Rows to find by distance at least. Among the 1,000 nearest of 60,000 are 98 % of the 100 best
# 64-bit codes by score, and 77 % among the 200 nearest (EfficientNet-Lite0 features, ITQ).
CANDIDATES = 1000
# Rows whose features are compared: with 64 bits, 99.7 % of the ten nearest of the same 60,000.
FEATURE_CANDIDATES = 2000
FOUND_PER_CANDIDATE = 5  # rows found by distance, from which the outputs choose for the features

Scores = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    """The order of candidates by what is known of each query beside its code.

    With `values`, asymmetric scores, descending; equal ones by distance, then in the order
    written. Of the rows that were found the first `candidates` are ordered, all where it is None.
    With `features` (of unit length) the first `candidates`, 2,000 where it is None, are then
    ordered by their cosines to the stored ones, which are their scores.
    """

    values: NDArray[np.float32] | None
    candidates: int | None
    features: Vectors | None = None
    transform: FeatureTransform | None = None

    def depth(self, k: int) -> int:
        """How many rows to find by distance for k answers."""
        if self.features is None:
            return max(k, CANDIDATES if self.candidates is None else self.candidates)
        return max(k, self.compared * (1 if self.values is None else FOUND_PER_CANDIDATE))

    @property
    def compared(self) -> int:
        """How many rows are compared by their features."""
        return FEATURE_CANDIDATES if self.candidates is None else self.candidates

    def order(
        self, codes: Codes, stored: Callable[[Positions], Stored]
    ) -> tuple[Positions, Scores]:
        """Positions (q, n) of the rows with these codes (q, n, bytes) in their order, and scores.

        The codes come by distance and in the order written, and the sorts are stable. `stored`
        gives the features (q, m, components) of the rows at positions (q, m); rows that are not
        compared have the score NaN.
        """
        order = np.tile(np.arange(codes.shape[1]), (len(codes), 1))
        scores = np.full(order.shape, np.nan)
        if self.values is not None:
            scores = asymmetric_scores(self.values, codes)
            # All of them where features take over: they choose the candidates.
            _sort(order, scores, self.candidates if self.features is None else None)
        if self.features is not None and self.transform is not None:
            first = order[:, : self.compared]
            scores[:] = np.nan
            scores[:, : first.shape[1]] = self.transform.cosines(self.features, stored(first))
            _sort(order, scores, first.shape[1])
        return order, scores

    def of(self, query: int) -> "Ranking":
        """The ranking of one of the queries."""
        part = slice(query, query + 1)
        return replace(
            self,
            values=None if self.values is None else self.values[part],
            features=None if self.features is None else self.features[part],
        )

    def scored(self, answers: list[list[Hit]]) -> list[list[Hit]]:
        """Hits behind the candidates: in the order that they have."""
        if self.features is not None or self.values is None:
            return answers
        return replace(self, candidates=0).ranked(answers, lambda keys: np.empty((0, 0), np.int8))

    def ranked(
        self, answers: list[list[Hit]], features: Callable[[list[str]], Stored]
    ) -> list[list[Hit]]:
        """The hits of each query in their order, with their scores; `features` by their keys."""
        return [self.of(query)._ranked(hits, features) for query, hits in enumerate(answers)]

    def _ranked(self, hits: list[Hit], features: Callable[[list[str]], Stored]) -> list[Hit]:
        if not hits:
            return hits
        order, scores = self.order(
            np.stack([hit.code for hit in hits])[None],
            lambda positions: features([hits[i].key for i in positions[0].tolist()])[None],
        )
        pairs = zip(order[0].tolist(), as_optional(scores[0]), strict=True)
        return [replace(hits[position], score=score) for position, score in pairs]


def _sort(order: Positions, scores: Scores, count: int | None) -> None:
    """Sort the first `count` columns of both by descending score, in place."""
    by_score = np.argsort(-scores[:, :count], axis=1, kind="stable")
    for column in (order, scores):
        column[:, :count] = np.take_along_axis(column[:, :count], by_score, axis=1)


def as_optional(scores: Scores) -> list[float | None]:
    """Scores of one query, None where there is none."""
    return [None if score != score else score for score in scores.tolist()]


def check_values(values: ArrayLike, queries: int, bits: int) -> NDArray[np.float32]:
    """Outputs of queries, finite and one per bit."""
    with np.errstate(over="ignore"):
        array = np.asarray(values, np.float32)
    if array.shape != (queries, bits):
        raise InputError(
            f"values are {bits} numbers per query, one for each bit: the values of {queries} have "
            f"the shape ({queries}, {bits}), not {array.shape}"
        )
    if not np.isfinite(array).all():
        raise InputError(
            f"values are {bits} numbers per query, and these hold NaN or infinity: give what the "
            "model's outputs() gives"
        )
    return array
