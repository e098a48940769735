"""Relevance: which database items are right answers to which queries."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh._core.labels import check_labels, is_labelled, shares_label


@dataclass(frozen=True)
class Relevance:
    """An item is relevant to a query if the two share a label.

    `query` and `database` are int32 class numbers, or float32 0/1 matrices; nothing of the size
    queries x database is ever held, `block` makes the part that is asked for.
    """

    query: NDArray[Any]
    database: NDArray[Any]

    @classmethod
    def of(
        cls, query_labels: ArrayLike, database_labels: ArrayLike, queries: int, items: int
    ) -> "Relevance":
        """Check both label sets against the number of codes and against each other."""
        query, database = np.asarray(query_labels), np.asarray(database_labels)
        for labels, rows, what in ((query, queries, "query"), (database, items, "database")):
            checked = check_labels(labels, rows, f"{what} labels")
            if checked.ndim == 1 and not is_labelled(checked).all():
                raise InputError(
                    f"{what} labels hold negative classes (unlabelled?): leave those rows out"
                )
        if query.ndim != database.ndim or query.shape[1:] != database.shape[1:]:
            raise InputError(
                f"query labels {query.shape} and database labels {database.shape} do not match: "
                "both are class vectors, or both are 0/1 matrices with the same concepts"
            )
        both = np.concatenate([query, database])
        if both.ndim == 2:
            labels = both.astype(np.float32)
        else:
            labels = np.unique(both, return_inverse=True)[1].astype(np.int32)
        return cls(labels[:queries], labels[queries:])

    @property
    def most_shared(self) -> int:
        """Largest number of labels that a query and an item can share."""
        if self.query.ndim == 1:
            return 1
        return int(min(self.query.sum(axis=1).max(), self.database.sum(axis=1).max()))

    def permuted(self, order: NDArray[np.intp]) -> "Relevance":
        """The relevance of a database in another order."""
        return Relevance(self.query, self.database[order])

    def block(self, rows: slice, columns: slice = slice(None)) -> NDArray[np.bool_]:
        """Relevance of database[columns] to query[rows]."""
        shared: NDArray[np.bool_] = shares_label(self.query[rows], self.database[columns])
        return shared

    def shared(self, rows: slice, columns: slice = slice(None)) -> NDArray[np.intp]:
        """Number of labels that query[rows] and database[columns] share (graded relevance)."""
        if self.query.ndim == 1:
            return self.block(rows, columns).astype(np.intp)
        return np.asarray(np.rint(self.query[rows] @ self.database[columns].T).astype(np.intp))
