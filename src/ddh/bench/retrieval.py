"""One measurement of a retrieval table: fit a method, encode, and compute every score."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ddh
from ddh._core.arrays import l2_normalize
from ddh.bench.features import FeatureSet
from ddh.bench.options import BenchOptions
from ddh.bench.results import Store
from ddh.bench.tables import Row
from ddh.bench.timing import timed
from ddh.codes import search
from ddh.evaluation import (
    Curve,
    Protocol,
    Retrieval,
    RetrievalSplit,
    diagnose,
    mean_average_precision_of_vectors,
)

# Raised when a measurement means something else than before, so that old ones are not reused.
VERSION = 1
CURVE_POINTS = 120
EXAMPLES = 8
EXAMPLE_DEPTH = 10


@dataclass(frozen=True)
class Task:
    """Features and labels of a data set, and how they are split into queries and database."""

    found: FeatureSet
    split: RetrievalSplit
    normalise: bool = True

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """Features of all images, L2-normalised if the task says so."""
        values = self.found.features
        return l2_normalize(values) if self.normalise else np.asarray(values, np.float32)

    @cached_property
    def _parts(self) -> dict[str, NDArray[np.float32]]:
        return {}

    def part(self, name: str) -> NDArray[np.float32]:
        """Features of "query", "database" or "train"; equal parts share memory."""
        if name == "train" and np.array_equal(self.split.train, self.split.database):
            name = "database"
        if name not in self._parts:
            self._parts[name] = self.features[getattr(self.split, name)]
        return self._parts[name]

    def labels(self, part: str) -> NDArray[Any]:
        """Labels of "query", "database" or "train"."""
        rows: NDArray[np.int64] = getattr(self.split, part)
        return self.found.labels[rows]

    @property
    def protocol(self) -> Protocol:
        """The protocol that all measurements of this task share."""
        form = ", L2-normalised features" if self.normalise else ""
        return Protocol(
            data=self.found.data,
            split=self.split.title,
            backbone=self.found.backbone + form,
            supervision=self.found.supervision,
        )

    @property
    def key(self) -> dict[str, Any]:
        """What a measurement of this task depends on, besides the method."""
        return {
            "version": VERSION,
            "library": ddh.__version__,
            "data": self.found.data,
            "features": self.found.digest,
            "split": self.split.digest,
            "normalise": self.normalise,
            "k": self.split.k,
        }


def fit(
    method: str,
    bits: int,
    seed: int,
    settings: dict[str, Any],
    device: str,
    X: NDArray[np.float32],
    y: NDArray[Any] | None = None,
) -> Any:
    """A fitted hasher."""
    from ddh.hashers import create

    hasher = create(method, bits=bits, **{"random_state": seed, **settings})
    if "device" in hasher.get_params():
        hasher.set_params(device=device)
    return hasher.fit(X, y)


def measure_row(
    store: Store, task: Task, row: Row, bits: int, seed: int, options: BenchOptions
) -> dict[str, Any]:
    """The stored measurement, or a new one."""
    settings = options.settings.get(row.method, {})
    key = {
        **task.key,
        "method": row.method,
        "supervised": row.supervised,
        "labelled_per_class": row.labelled_per_class,
        "settings": settings,
        "bits": bits,
        "seed": seed,
    }
    name = f"{row.method}-{bits}-{seed}"
    measure = partial(_measure, task, row, bits, seed, settings, options.device)
    return store.measure(name, key, measure)


def _measure(
    task: Task, row: Row, bits: int, seed: int, settings: dict[str, Any], device: str
) -> dict[str, Any]:
    labels = _training_labels(task, row, seed) if row.supervised else None
    parts = task.part("query"), task.part("database")
    train = task.part("train")
    hasher, fitting = timed(fit, row.method, bits, seed, settings, device, train, labels)
    (query, database), encoding = timed(lambda: [hasher.encode(part) for part in parts])
    retrieval = Retrieval(
        query,
        database,
        task.labels("query"),
        task.labels("database"),
        bits=bits,
        device=_accelerator(device),
        protocol=replace(task.protocol, seeds=(seed,)),
    )
    return {
        "fit_seconds": fitting["wall"],
        "encode_seconds": encoding["wall"],
        "scores": _scores(retrieval, task.split.k),
        "curves": {
            "rank": _curve(retrieval.curve_by_rank()),
            "radius": _curve(retrieval.curve_by_radius()),
        },
        "diagnostics": diagnose(database, bits=bits).as_dict(),
        "examples": _examples(task, query, database),
        "settings": {name: _plain(value) for name, value in hasher.get_params().items()},
    }


def _accelerator(device: str) -> str | None:
    """The device to score on; None for the CPU."""
    from ddh.train.device import choose

    chosen = str(choose(device))
    return None if chosen == "cpu" else chosen


def _training_labels(task: Task, row: Row, seed: int) -> NDArray[np.int64]:
    """Labels of the training images; -1 (unlabelled) beyond `labelled_per_class` per class."""
    labels = task.labels("train").astype(np.int64)
    if row.labelled_per_class is None:
        return labels
    rng = np.random.default_rng(seed)
    some = np.full(len(labels), -1, np.int64)
    for number in np.unique(labels):
        members = np.flatnonzero(labels == number)
        chosen = rng.choice(members, min(row.labelled_per_class, len(members)), replace=False)
        some[chosen] = number
    return some


def _scores(retrieval: Retrieval, k: int | None) -> dict[str, Any]:
    depth = min(k or 1000, retrieval.counts.database)
    scores = {
        "legacy": retrieval.mean_average_precision(k, ties="legacy"),
        "expected": retrieval.mean_average_precision(k),
        "expected, min(R, k)": retrieval.mean_average_precision(k, denominator="min(R, k)"),
        "whole": retrieval.mean_average_precision(None),
        "precision": retrieval.precision_at(min(100, depth)),
        "recall": retrieval.recall_at(depth),
        "radius 2": retrieval.precision_within(2),
    }
    if retrieval.query_labels.ndim == 2:
        scores["ndcg"] = retrieval.ndcg(min(100, depth))
    return {name: score.as_dict() for name, score in scores.items()}


def _curve(curve: Curve) -> dict[str, list[float]]:
    thin = curve.thinned(CURVE_POINTS)
    return {
        "at": thin.at.tolist(),
        "precision": np.round(thin.precision, 6).tolist(),
        "recall": np.round(thin.recall, 6).tolist(),
    }


def example_queries(task: Task) -> NDArray[np.int64]:
    """A few random queries, from different classes if the images have single labels."""
    order = np.random.default_rng(0).permutation(len(task.split.query))
    labels = task.labels("query")[order]
    if labels.ndim == 1:
        order = order[np.sort(np.unique(labels, return_index=True)[1])]
    return order[:EXAMPLES]


def _examples(
    task: Task, query: NDArray[np.uint8], database: NDArray[np.uint8]
) -> dict[str, list[Any]]:
    """Indices of some queries and of their nearest images."""
    chosen = example_queries(task)
    found = search(query[chosen], database, min(EXAMPLE_DEPTH, len(database)))
    return {
        "query": task.split.query[chosen].tolist(),
        "nearest": task.split.database[found.indices].tolist(),
        "distances": found.distances.tolist(),
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | type(None)) else repr(value)


def measure_vectors(store: Store, task: Task, device: str) -> dict[str, Any]:
    """mAP@k of ranking by the cosine of the features themselves: the reference for codes."""

    def compute() -> dict[str, Any]:
        score = mean_average_precision_of_vectors(
            task.part("query"),
            task.part("database"),
            task.labels("query"),
            task.labels("database"),
            k=task.split.k or len(task.split.database),
            device=_accelerator(device),
            protocol=task.protocol,
        )
        return {"scores": {"legacy": score.as_dict()}}

    return store.measure("cosine", {**task.key, "method": "cosine of features"}, compute)
