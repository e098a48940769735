"""Retrieval tasks, and one measurement of a table: fit a method, encode, compute every score."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ddh
from ddh._core.arrays import l2_normalize
from ddh._core.errors import InputError
from ddh.bench.features import FeatureSet, compute_features, read_features
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
    per_class,
    protocol_images,
    refuse_shared_images,
    split_by_name,
)
from ddh.evaluation.protocol import digest
from ddh.images import LabelledImages, cifar10, multi_label_list, nus_wide, pixel_digest

# Raised when a measurement means something else than before, so that old ones are not reused.
VERSION = 1
CIFAR10 = "cifar10-10k-50k"
CURVE_POINTS = 120
EXAMPLES = 8
EXAMPLE_DEPTH = 10
LABEL_BUDGET = 5000  # labelled images, the same for every supervised method
CUTS = (1000, 5000)  # that multi-label figures are published with


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
        query, database = self.features[self.split.query], self.features[self.split.database]
        same = np.array_equal(self.split.train, self.split.database)
        train = database if same else self.features[self.split.train]
        return {"query": query, "database": database, "train": train}

    def part(self, name: str) -> NDArray[np.float32]:
        """Features of "query", "database" or "train"; equal parts share memory."""
        return self._parts[name]

    def labels(self, part: str) -> NDArray[Any]:
        """Labels of "query", "database" or "train"."""
        rows: NDArray[np.int64] = getattr(self.split, part)
        return self.found.labels[rows]

    @property
    def pair(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Features of queries and database."""
        return self.part("query"), self.part("database")

    @property
    def label_pair(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Labels of queries and database."""
        return self.labels("query"), self.labels("database")

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


# -- data sets ---------------------------------------------------------------------------------


def cifar10_task(options: BenchOptions, store: Store) -> Task:
    """The paper's split of CIFAR-10: 10,000 queries, 50,000 database and training images."""
    if options.features is not None:
        found = read_features(options.features)
        return given_task(found, options, 1000, lambda: split_by_name(CIFAR10, found.labels))
    data, split = cifar10_images(options)
    return Task(compute_features(data, store, options), split)


def cifar10_images(options: BenchOptions) -> tuple[LabelledImages, RetrievalSplit]:
    """CIFAR-10 and its split, or only the images that a subset uses."""
    data = cifar10(options.data_folder("CIFAR-10"), "all")
    split = split_by_name(CIFAR10, data.labels)
    refuse_shared_images(data.images.take(split.query), data.images.take(split.database))
    return used_rows(data, split, options.subset)


def used_rows(
    data: LabelledImages, split: RetrievalSplit, images: int | None
) -> tuple[LabelledImages, RetrievalSplit]:
    """The images that a subset of the split uses, and that subset; all of them for None."""
    if images is None:
        return data, split
    split = subset(split, images)
    used, rows = np.unique(np.concatenate([split.query, split.train]), return_inverse=True)
    query, train = np.split(rows, [len(split.query)])
    labelled = None if split.labelled is None else np.searchsorted(used, split.labelled)
    moved = replace(split, query=query, database=train, train=train, labelled=labelled)
    return data.take(used), moved


def protocol_task(options: BenchOptions, store: Store, protocol: str, k: int) -> Task:
    """The split of a protocol, of ready features of all its images or of the images; mAP@k."""
    parts = None
    if options.features is not None:
        found = read_features(options.features)
    else:
        data = protocol_images(protocol, options.data_folder(f"the data of {protocol}"))
        found, parts = compute_features(data, store, options), data.parts
        if parts and len(found) < len(data):
            raise InputError(f"{protocol} needs all of its images, and some cannot be read")
    split = split_by_name(protocol, found.labels, parts=parts)
    return Task(found, subset(replace(split, k=min(k, len(split.database))), options.subset))


def multi_label_task(
    options: BenchOptions,
    store: Store,
    list_file: Path | None,
    concepts: int,
    queries: int,
    training: int,
) -> Task:
    """NUS-WIDE with its most frequent concepts, or any list of paths and 0/1 columns."""
    if options.features is not None:
        found = read_features(options.features)
        if found.labels.ndim != 2:
            raise InputError(f"{options.features}: this bench needs labels as a 0/1 matrix")
        split = partial(per_class, found.labels, queries=queries, training=training)
        return given_task(found, options, 5000, split)
    root = options.data_folder("NUS-WIDE, or the folder of the pictures of --list")
    data = multi_label_list(list_file, root) if list_file else nus_wide(root, concepts=concepts)
    if options.subset is not None:
        chosen = np.random.default_rng(0).permutation(len(data))[: options.subset]
        data = data.take(np.sort(chosen))
    found = without_duplicates(compute_features(data, store, options), store)
    return Task(found, per_class(found.labels, queries=queries, training=training))


def given_task(
    found: FeatureSet, options: BenchOptions, k: int, split: Callable[[], RetrievalSplit]
) -> Task:
    """Ready features, with their marked queries or else the split of the data set."""
    chosen = split() if found.query is None else marked_split(found.query, k)
    return Task(found, subset(chosen, options.subset))


def without_duplicates(found: FeatureSet, store: Store) -> FeatureSet:
    """One of each picture: NUS-WIDE contains duplicates, and a query must not find itself."""
    images = found.images
    if images is None:
        return found

    def originals() -> dict[str, list[int]]:
        first = np.unique(np.array(pixel_digest(images)), return_index=True)[1]
        return {"rows": np.sort(first).tolist()}

    rows = store.measure("originals", {"features": found.digest}, originals)["rows"]
    return found if len(rows) == len(found) else found.take(np.array(rows))


def marked_split(query: NDArray[np.bool_], k: int) -> RetrievalSplit:
    """Marked rows are queries; all others are database and training set."""
    asked, others = np.flatnonzero(query), np.flatnonzero(~query)
    if not len(asked) or not len(others):
        raise InputError("the file of features marks every row or no row as a query")
    return RetrievalSplit("as marked in the file", asked, others, others, min(k, len(others)))


def subset(split: RetrievalSplit, images: int | None, seed: int = 0) -> RetrievalSplit:
    """A smaller split: `images` training images as database, and a fifth as many queries."""
    if images is None:
        return split
    if images < 10:
        raise InputError(f"a subset has 10 or more training images, not {images}")
    rng = np.random.default_rng(seed)
    train = np.sort(rng.choice(split.train, min(images, len(split.train)), replace=False))
    count = min(max(1, images // 5), len(split.query))
    return replace(
        split,
        name=f"{split.name}, subset of {images}",
        query=np.sort(rng.choice(split.query, count, replace=False)),
        database=train,
        train=train,
        labelled=None if split.labelled is None else np.intersect1d(split.labelled, train),
        k=None if split.k is None else min(split.k, len(train)),
    )


# -- measurements ------------------------------------------------------------------------------


def hasher(method: str, bits: int, seed: int, settings: dict[str, Any], device: str) -> Any:
    """An unfitted hasher."""
    from ddh.hashers import create

    made = create(method, bits=bits, **{"random_state": seed, **settings})
    if "device" in made.get_params():
        made.set_params(device=device)
    return made


def measure_row(
    store: Store, task: Task, row: Row, bits: int, seed: int, options: BenchOptions
) -> dict[str, Any]:
    """The stored measurement, or a new one."""
    settings = {**row.settings, **options.settings.get(row.method, {})}
    names = ("method", "supervised", "labelled_per_class")
    key = task.key | {name: getattr(row, name) for name in names}
    key |= {"settings": settings, "bits": bits, "seed": seed}
    if row.supervised and task.split.labelled is not None:
        key["labelled"] = digest(task.split.labelled)
    measure = partial(_measure, task, row, bits, seed, settings, options.device)
    return store.measure(f"{row.method}-{bits}-{seed}", key, measure)


def _measure(
    task: Task, row: Row, bits: int, seed: int, settings: dict[str, Any], device: str
) -> dict[str, Any]:
    features, labels, said = training_set(task, row, seed)
    model = hasher(row.method, bits, seed, settings, device)
    _, fitting = timed(model.fit, features, labels)
    (query, database), encoding = timed(lambda: [model.encode(part) for part in task.pair])
    protocol = replace(task.protocol, labels=said, seeds=(seed,))
    retrieval = Retrieval(
        query, database, *task.label_pair, bits=bits, device=accelerator(device), protocol=protocol
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
        "settings": {
            name: value if isinstance(value, int | float | str | None) else repr(value)
            for name, value in model.get_params().items()
        },
    }


def accelerator(device: str) -> str | None:
    """The device to score on; None for the CPU."""
    from ddh.train.device import choose

    chosen = str(choose(device))
    return None if chosen == "cpu" else chosen


def training_set(
    task: Task, row: Row, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64] | None, str]:
    """(features, labels, which labels in words) for a row.

    Supervised methods get the labelled images alone, semi-supervised ones all training images.
    """
    if not row.supervised:
        return task.part("train"), None, ""
    chosen = labelled_places(task, row, seed)
    features, labels = task.part("train"), task.labels("train").astype(np.int64)
    said = f"the labels of {len(chosen):,} images ({digest(task.split.train[chosen])})"
    from ddh.hashers import method

    if method(row.method).kind != "semi-supervised":
        return features[chosen], labels[chosen], said
    some = np.full_like(labels, -1 if labels.ndim == 1 else 0)
    some[chosen] = labels[chosen]
    return features, some, said


def labelled_places(task: Task, row: Row, seed: int) -> NDArray[np.int64]:
    """Places in the training set whose labels a row sees, in order.

    They are those that the protocol names, or `labelled_per_class` per class, or all; of more than
    LABEL_BUDGET so many, the same for all rows.
    """
    if task.split.labelled is not None:
        places = np.flatnonzero(np.isin(task.split.train, task.split.labelled))
    elif row.labelled_per_class is not None:
        labels, rng = task.labels("train"), np.random.default_rng(seed)
        parts = []
        for number in np.unique(labels):
            members = np.flatnonzero(labels == number)
            count = min(row.labelled_per_class, len(members))
            parts.append(rng.choice(members, count, replace=False))
        places = np.sort(np.concatenate(parts))
    else:
        places = np.arange(len(task.split.train))
    if len(places) > LABEL_BUDGET:
        drawn = np.random.default_rng(0).permutation(len(places))[:LABEL_BUDGET]
        places = places[np.sort(drawn)]
    return places


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
        for cut in CUTS:
            if cut != k and cut <= retrieval.counts.database:
                scores[f"mAP@{cut}"] = retrieval.mean_average_precision(cut, ties="legacy")
    return {name: score.as_dict() for name, score in scores.items()}


def _curve(curve: Curve) -> dict[str, list[float]]:
    return {name: v.round(6).tolist() for name, v in vars(curve.thinned(CURVE_POINTS)).items()}


def _examples(
    task: Task, query: NDArray[np.uint8], database: NDArray[np.uint8]
) -> dict[str, list[Any]]:
    """Random queries, from different classes if images have single labels; their nearest images."""
    chosen = np.random.default_rng(0).permutation(len(task.split.query))
    labels = task.labels("query")[chosen]
    if labels.ndim == 1:
        chosen = chosen[np.sort(np.unique(labels, return_index=True)[1])]
    chosen = chosen[:EXAMPLES]
    found = search(query[chosen], database, min(EXAMPLE_DEPTH, len(database)))
    return {
        "query": task.split.query[chosen].tolist(),
        "nearest": task.split.database[found.indices].tolist(),
        "distances": found.distances.tolist(),
    }


def measure_vectors(store: Store, task: Task, device: str) -> dict[str, Any]:
    """mAP@k of ranking by the cosine of the features themselves: the reference for codes."""

    def compute() -> dict[str, Any]:
        score = mean_average_precision_of_vectors(
            *task.pair,
            *task.label_pair,
            k=task.split.k or len(task.split.database),
            device=accelerator(device),
            protocol=task.protocol,
        )
        return {"scores": {"legacy": score.as_dict()}}

    return store.measure("cosine", {**task.key, "method": "cosine of features"}, compute)
