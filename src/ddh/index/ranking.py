"""The order of what a Hamming search has found, by the real-valued outputs of its query."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh.codes import asymmetric_scores
from ddh.index.rows import Codes, Hit

# Rows to find by distance at least. Among the 1,000 nearest of 60,000 are 98 % of the 100 best
# 64-bit codes by score, and 77 % among the 200 nearest (EfficientNet-Lite0 features, ITQ).
CANDIDATES = 1000

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """Asymmetric scores, descending; equal ones by distance, then in the order written.

    Of the rows that were found the first `candidates` are ordered, all of them where it is None.
    """

    values: NDArray[np.float32]
    candidates: int | None

    def depth(self, k: int) -> int:
        """How many rows to find by distance for k answers."""
        return max(k, CANDIDATES if self.candidates is None else self.candidates)

    def order(self, codes: Codes) -> tuple[NDArray[np.int64], Scores]:
        """Positions (q, n) of the rows with these codes (q, n, bytes) in their order, and scores.

        The codes come by distance and in the order written, and the sort is stable.
        """
        scores = asymmetric_scores(self.values, codes)
        first = np.argsort(-scores[:, : self.candidates], axis=1, kind="stable")
        rest = np.arange(first.shape[1], scores.shape[1])
        order = np.hstack([first, np.broadcast_to(rest, (len(scores), len(rest)))])
        return order, np.take_along_axis(scores, order, axis=1)

    def of(self, query: int) -> "Ranking":
        """The ranking of one of the queries."""
        return replace(self, values=self.values[query : query + 1])

    def scored(self, answers: list[list[Hit]]) -> list[list[Hit]]:
        """Hits with their scores, in the order that they have."""
        return replace(self, candidates=0).ranked(answers)

    def ranked(self, answers: list[list[Hit]]) -> list[list[Hit]]:
        """The hits of each query in their order, with their scores."""
        return [self.of(query)._ranked(hits) for query, hits in enumerate(answers)]

    def _ranked(self, hits: list[Hit]) -> list[Hit]:
        if not hits:
            return hits
        order, scores = self.order(np.stack([hit.code for hit in hits])[None])
        pairs = zip(order[0].tolist(), scores[0].tolist(), strict=True)
        return [replace(hits[position], score=score) for position, score in pairs]


def make_ranking(values: ArrayLike, queries: int, bits: int, candidates: int | None) -> Ranking:
    """Checked arguments of a search."""
    array = np.asarray(values, np.float32)
    if array.shape != (queries, bits):
        raise InputError(
            f"the values of {queries} queries of {bits} bits have the shape ({queries}, {bits}), "
            f"not {array.shape}"
        )
    if not np.isfinite(array).all():
        raise InputError("the values hold NaN or infinity: give what the model's outputs() gives")
    if candidates is not None and candidates < 1:
        raise InputError(f"candidates, the rows to be ordered, are 1 or more, not {candidates!r}")
    return Ranking(array, candidates)
