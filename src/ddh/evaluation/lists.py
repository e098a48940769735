"""Scores of ranked lists that any search has made: mAP, and the share of true neighbours found."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh.evaluation.average_precision import check_denominator
from ddh.evaluation.inputs import Relevance
from ddh.evaluation.protocol import UNSPECIFIED, Protocol, Score, digest
from ddh.evaluation.ranking import average_precisions


class RankedLists:
    """Database rows in rank order, one list per query, ready to be scored.

    Parameters
    ----------
    lists : array of shape (queries, length)
        Rows of the database, best first.
    query_labels, database_labels : array
        Classes, or 0/1 matrices with a column per concept.
    protocol : Protocol, optional
        What the lists were made from and how.
    """

    def __init__(
        self,
        lists: ArrayLike,
        query_labels: ArrayLike,
        database_labels: ArrayLike,
        *,
        protocol: Protocol | None = None,
    ) -> None:
        self.lists = np.asarray(lists)
        query, database = np.asarray(query_labels), np.asarray(database_labels)
        if self.lists.ndim != 2 or self.lists.dtype.kind not in "iu" or not self.lists.size:
            raise InputError(f"lists are whole numbers (queries, length), not {self.lists.shape}")
        if self.lists.min() < 0 or self.lists.max() >= len(database):
            raise InputError(f"lists name rows outside of the {len(database):,} of the database")
        self._relevance = Relevance.of(query, database, len(self.lists), len(database))
        self.protocol = (protocol or Protocol()).replace(
            queries=len(self.lists), database=len(database)
        )
        if self.protocol.split == UNSPECIFIED:
            self.protocol = self.protocol.replace(split=f"labels {digest(query, database)}")

    def mean_average_precision(
        self, k: int = 1000, *, denominator: str = "relevant in top k"
    ) -> Score:
        """mAP of the first k; a query without any relevant item counts 0."""
        name = check_denominator(denominator)
        first = self._first(min(k, len(self._relevance.database)))
        values, empty = average_precisions(self._relevance, first.__getitem__, k, name)
        said = {"k": k, "denominator": name, "without_relevant": "zero"}
        return Score(
            values.mean(), self.protocol.replace(measure="mAP", **said), values, empty=empty
        )

    def neighbour_recall(self, neighbours: ArrayLike, k: int = 100) -> Score:
        """Share of each query's true neighbours (a row of `neighbours`) among the first k."""
        true = check_neighbours(neighbours, len(self.lists), len(self._relevance.database))
        # both sides as sorted keys of (query, row): no array of queries x neighbours x k
        offset = np.arange(len(true))[:, None] * len(self._relevance.database)
        first = self._first(min(k, len(self._relevance.database)))
        values = np.isin(true + offset, first + offset).mean(axis=1)
        return Score(values.mean(), recall_protocol(self.protocol, true, k), values)

    def _first(self, k: int) -> NDArray[np.int64]:
        if not 1 <= k <= self.lists.shape[1]:
            raise InputError(f"the lists hold {self.lists.shape[1]} rows, {k} are asked for")
        return self.lists[:, :k].astype(np.int64)


def check_neighbours(neighbours: ArrayLike, queries: int, items: int) -> NDArray[np.int64]:
    """Row numbers of the database, one list per query, or an error."""
    true = np.asarray(neighbours)
    if true.ndim != 2 or len(true) != queries or not true.size or true.dtype.kind not in "iu":
        raise InputError(f"neighbours are row numbers ({queries}, n), not {true.shape}")
    if true.min() < 0 or true.max() >= items:
        raise InputError(f"neighbours name rows outside of the {items:,} of the database")
    return true.astype(np.int64)


def recall_protocol(protocol: Protocol, neighbours: NDArray[np.int64], k: int) -> Protocol:
    """The protocol of the share of true neighbours among the first k."""
    return protocol.replace(measure=f"recall of the {neighbours.shape[1]} nearest", k=k)
