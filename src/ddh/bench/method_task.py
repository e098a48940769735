"""What `ddh bench methods` asks of a method: queries, a database with labels, and mAP."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.bench.features import FeatureSet
from ddh.evaluation import Protocol, Score, mean_average_precision
from ddh.evaluation.protocol import digest

HELD_OUT = 1 / 6


@dataclass(frozen=True)
class Task:
    """Queries and a database with labels; the database is also what methods learn from."""

    query: NDArray[np.floating]
    database: NDArray[np.floating]
    query_labels: NDArray[Any]
    database_labels: NDArray[Any]
    bits: int
    k: int
    protocol: Protocol

    @classmethod
    def of(cls, data: FeatureSet, bits: int, k: int) -> "Task":
        """Split by the query rows that the data name, or hold some out."""
        query = held_out(data.labels) if data.query is None else np.flatnonzero(data.query)
        database = np.setdiff1d(np.arange(len(data)), query)
        if not len(query) or not len(database):
            raise InputError("some rows must ask and some must be searched; see `query` in --help")
        protocol = Protocol(
            data=data.data,
            split=digest(query, database),
            queries=len(query),
            database=len(database),
            bits=bits,
            k=k,
            denominator="relevant in top k",
            ties="expected",
            backbone=data.backbone,
            supervision=data.supervision,
        )
        return cls(
            data.features[query],
            data.features[database],
            data.labels[query],
            data.labels[database],
            bits,
            k,
            protocol,
        )

    def score(self, encode: Callable[[NDArray[Any]], NDArray[np.int8]]) -> Score:
        """mAP of the codes that `encode` gives."""
        return mean_average_precision(
            encode(self.query),
            encode(self.database),
            self.query_labels,
            self.database_labels,
            k=self.k,
            protocol=self.protocol,
        )


def digits() -> FeatureSet:
    """The 8 x 8 pixels of scikit-learn's digits as features."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    features = bunch.data.astype(np.float32)
    return FeatureSet(features, bunch.target, "digits", "pixels", "nothing", digest(features))


def held_out(labels: NDArray[Any]) -> NDArray[np.int64]:
    """A sixth of the rows, evenly over the classes; always the same ones."""
    from sklearn.model_selection import train_test_split

    classes = labels if labels.ndim == 1 else None
    rows = np.arange(len(labels))
    return np.sort(train_test_split(rows, test_size=HELD_OUT, random_state=0, stratify=classes)[1])
