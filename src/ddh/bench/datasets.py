"""Retrieval tasks of the benches: CIFAR-10, NUS-WIDE or a multi-label list, or ready features."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.bench.features import FeatureSet, compute_features, read_features
from ddh.bench.options import BenchOptions
from ddh.bench.results import Store
from ddh.bench.retrieval import Task
from ddh.evaluation import RetrievalSplit, per_class, refuse_shared_images, split_by_name
from ddh.images import LabelledImages, cifar10, multi_label_list, nus_wide, pixel_digest

CIFAR10 = "cifar10-10k-50k"


def cifar10_task(options: BenchOptions, store: Store) -> Task:
    """The paper's split of CIFAR-10: 10,000 queries, 50,000 database and training images."""
    if options.features is not None:
        found = read_features(options.features)
        return _given(found, options, 1000, lambda: split_by_name(CIFAR10, found.labels))
    data, split = cifar10_images(options)
    return Task(compute_features(data, store, options), split)


def cifar10_images(options: BenchOptions) -> tuple[LabelledImages, RetrievalSplit]:
    """CIFAR-10 and its split, or only the images that a subset uses."""
    data = cifar10(options.data_folder("CIFAR-10"), "all")
    split = split_by_name(CIFAR10, data.labels)
    refuse_shared_images(data.images.take(split.query), data.images.take(split.database))
    if options.subset is None:
        return data, split
    split = subset(split, options.subset)
    used, rows = np.unique(np.concatenate([split.query, split.train]), return_inverse=True)
    query, train = np.split(rows, [len(split.query)])
    return data.take(used), replace(split, query=query, database=train, train=train)


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
        return _given(found, options, 5000, split)
    root = options.data_folder("NUS-WIDE, or the folder of the pictures of --list")
    if list_file is None:
        data = nus_wide(root, concepts=concepts)
    else:
        data = multi_label_list(list_file, root)
    if options.subset is not None:
        chosen = np.random.default_rng(0).permutation(len(data))[: options.subset]
        data = data.take(np.sort(chosen))
    found = without_duplicates(compute_features(data, store, options), store)
    return Task(found, per_class(found.labels, queries=queries, training=training))


def _given(
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
        k=None if split.k is None else min(split.k, len(train)),
    )
