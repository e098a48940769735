"""One measurement of a retrieval table: fit a method, encode, score the codes in every way."""

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ddh
from ddh._core.arrays import l2_normalize
from ddh._core.errors import InputError
from ddh.bench.features import FeatureSet
from ddh.bench.store import Store
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
class Row:
    """A row of a table: its name there, the method's name here, and what the method may see.

    `supervised` methods are given the labels of the training images, of `labelled_per_class` of
    them or of all; `chance` says whether the seed matters.
    """

    label: str
    method: str
    supervised: bool = False
    chance: bool = True
    labelled_per_class: int | None = None


@dataclass(frozen=True)
class Task:
    """Features and labels, cut by a split, and the cut of the ranking."""

    found: FeatureSet
    split: RetrievalSplit
    normalise: bool = True

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """Features of all images, of length 1 where the task normalises."""
        values = self.found.features
        return l2_normalize(values) if self.normalise else np.asarray(values, np.float32)

    @cached_property
    def parts(self) -> dict[str, NDArray[np.float32]]:
        """Features of queries, database and training images; equal parts share memory."""
        query, database = self.features[self.split.query], self.features[self.split.database]
        same = np.array_equal(self.split.train, self.split.database)
        train = database if same else self.features[self.split.train]
        return {"query": query, "database": database, "train": train}

    def labels(self, part: str) -> NDArray[Any]:
        """Labels of "query", "database" or "train"."""
        return self.found.labels[getattr(self.split, part)]

    @property
    def protocol(self) -> Protocol:
        """What all measurements of this task have in common."""
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


def subset(split: RetrievalSplit, images: int, seed: int = 0) -> RetrievalSplit:
    """A quick form of a split: `images` training images as database, a fifth as many queries."""
    rng = np.random.default_rng(seed)
    if images < 10:
        raise InputError(f"a subset has 10 or more training images, not {images}")

    def some(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        return np.sort(rng.choice(rows, min(count, len(rows)), replace=False))

    train = some(split.train, images)
    query = some(split.query, max(1, images // 5))
    return replace(
        split,
        name=f"{split.name}, subset of {images}",
        query=query,
        database=train,
        train=train,
        k=None if split.k is None else min(split.k, len(train)),
    )


def measure_row(
    store: Store,
    task: Task,
    row: Row,
    bits: int,
    seed: int,
    settings: dict[str, Any],
    device: str,
) -> dict[str, Any]:
    """The stored measurement, or a new one."""
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
    return store.measure(name, key, lambda: _measure(task, row, bits, seed, settings, device))


def _measure(
    task: Task, row: Row, bits: int, seed: int, settings: dict[str, Any], device: str
) -> dict[str, Any]:
    from ddh.hashers import create
    from ddh.train.device import choose

    hasher = create(row.method, bits=bits, **{"random_state": seed, **settings})
    if "device" in hasher.get_params():
        hasher.set_params(device=device)
    labels = _training_labels(task, row, seed) if row.supervised else None
    start = time.perf_counter()
    hasher.fit(task.parts["train"], labels)
    fitted = time.perf_counter()
    query = hasher.encode(task.parts["query"])
    database = hasher.encode(task.parts["database"])
    encoded = time.perf_counter()
    on = str(choose(device))
    retrieval = Retrieval(
        query,
        database,
        task.labels("query"),
        task.labels("database"),
        bits=bits,
        device=None if on == "cpu" else on,
        protocol=task.protocol.but(seeds=(seed,)),
    )
    return {
        "fit_seconds": fitted - start,
        "encode_seconds": encoded - fitted,
        "scores": _scores(retrieval, task.split.k),
        "curves": {
            "rank": _curve(retrieval.curve_by_rank()),
            "radius": _curve(retrieval.curve_by_radius()),
        },
        "diagnostics": diagnose(database, bits=bits).as_dict(),
        "examples": _examples(task, query, database),
        "settings": {name: _plain(value) for name, value in hasher.get_params().items()},
    }


def _training_labels(task: Task, row: Row, seed: int) -> NDArray[np.int64]:
    """Labels of the training images; -1 (unlabelled) beyond the share of each class."""
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
    """A few queries drawn at random, of different classes where there are classes."""
    order = np.random.default_rng(0).permutation(len(task.split.query))
    labels = task.labels("query")[order]
    if labels.ndim == 1:
        order = order[np.sort(np.unique(labels, return_index=True)[1])]
    return order[:EXAMPLES]


def _examples(
    task: Task, query: NDArray[np.uint8], database: NDArray[np.uint8]
) -> dict[str, list[Any]]:
    """Rows of the data set: some queries and their nearest images."""
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
    """mAP@k of the cosine ranking of the features themselves: what codes are compared with."""
    from ddh.train.device import choose

    def compute() -> dict[str, Any]:
        on = str(choose(device))
        score = mean_average_precision_of_vectors(
            task.parts["query"],
            task.parts["database"],
            task.labels("query"),
            task.labels("database"),
            k=task.split.k or len(task.split.database),
            device=None if on == "cpu" else on,
            protocol=task.protocol,
        )
        return {"scores": {"legacy": score.as_dict()}}

    return store.measure("cosine", {**task.key, "method": "cosine of features"}, compute)
