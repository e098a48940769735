"""The data of a retrieval bench: CIFAR-10, NUS-WIDE or a multi-label list, or ready features."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.bench.features import FeatureSet, compute_features, read_features
from ddh.bench.options import BenchOptions
from ddh.bench.retrieval_measure import Task, subset
from ddh.bench.store import Store
from ddh.evaluation import RetrievalSplit, per_class, refuse_shared_images, split_by_name
from ddh.images import LabelledImages, cifar10, multi_label_list, nus_wide, pixel_digest
from ddh.images.nus import MOST_FREQUENT


def cifar10_task(options: BenchOptions, store: Store) -> Task:
    """CIFAR-10 as the paper splits it: 10,000 queries, 50,000 images searched and learned from."""
    if options.features is not None:
        found = read_features(options.features)
        if found.query is not None:
            return _cut(found, _marked_split(found.query, k=1000), options)
        return _cut(found, split_by_name("cifar10-10k-50k", found.labels), options)
    data, split = cifar10_images(options)
    return Task(_features(data, options, store), split)


def cifar10_images(options: BenchOptions) -> tuple[LabelledImages, RetrievalSplit]:
    """The pictures and the paper's split of them, or a part of both."""
    data = cifar10(options.data_folder("CIFAR-10"), "all")
    split = split_by_name("cifar10-10k-50k", data.labels)
    refuse_shared_images(data.images.take(split.query), data.images.take(split.database))
    if options.subset is not None:
        return _reduced(data, subset(split, options.subset))
    return data, split


def multi_label_task(
    options: BenchOptions,
    store: Store,
    *,
    list_file: Path | None,
    concepts: int = MOST_FREQUENT,
    queries: int = 100,
    training: int = 500,
) -> Task:
    """NUS-WIDE with its most frequent concepts, or any list of paths and 0/1 columns."""
    if options.features is not None:
        found = read_features(options.features)
        if found.labels.ndim != 2:
            raise InputError(f"{options.features}: this bench needs labels as a 0/1 matrix")
        if found.query is not None:
            return _cut(found, _marked_split(found.query, k=5000), options)
        split = per_class(found.labels, queries=queries, training=training)
        return _cut(found, split, options)
    root = options.data_folder("NUS-WIDE, or the folder of the pictures of --list")
    if list_file is None:
        data = nus_wide(root, concepts=concepts)
    else:
        data = multi_label_list(list_file, root)
    if options.subset is not None:
        chosen = np.random.default_rng(0).permutation(len(data))[: options.subset]
        data = data.take(np.sort(chosen))
    found = without_copies(_features(data, options, store), store)
    return Task(found, per_class(found.labels, queries=queries, training=training))


def without_copies(found: FeatureSet, store: Store) -> FeatureSet:
    """One of each picture: NUS-WIDE holds some twice, and a query must not find itself."""
    if found.images is None:
        return found
    images = found.images

    def originals() -> dict[str, Any]:
        first = np.unique(np.array(pixel_digest(images)), return_index=True)[1]
        return {"rows": np.sort(first).tolist()}

    rows = store.measure("originals", {"features": found.digest}, originals)["rows"]
    return found if len(rows) == len(found) else found.take(np.array(rows))


def _features(data: LabelledImages, options: BenchOptions, store: Store) -> FeatureSet:
    return compute_features(
        data,
        store,
        backbone=options.backbone,
        weights=options.weights,
        size=options.size,
        device=options.device,
    )


def _marked_split(query: NDArray[np.bool_], k: int) -> RetrievalSplit:
    """Marked rows ask, all others are searched and learned from."""
    asked, others = np.flatnonzero(query), np.flatnonzero(~query)
    if not len(asked) or not len(others):
        raise InputError("the file of features marks every row or no row as a query")
    return RetrievalSplit("as marked in the file", asked, others, others, min(k, len(others)))


def _cut(found: FeatureSet, split: RetrievalSplit, options: BenchOptions) -> Task:
    return Task(found, split if options.subset is None else subset(split, options.subset))


def _reduced(data: LabelledImages, split: RetrievalSplit) -> tuple[LabelledImages, RetrievalSplit]:
    """Only the images that a subset uses, so that no others go through the network."""
    used = np.unique(np.concatenate([split.query, split.database, split.train]))
    smaller = replace(
        split,
        query=np.searchsorted(used, split.query),
        database=np.searchsorted(used, split.database),
        train=np.searchsorted(used, split.train),
    )
    return data.take(used), smaller
