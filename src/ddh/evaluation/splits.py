"""Protocols by name: which images are queries, database and training images of a retrieval test."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh import images
from ddh._core.errors import InputError
from ddh._core.labels import check_labels, indicators
from ddh.evaluation.protocol import digest


@dataclass(frozen=True)
class RetrievalSplit:
    """Rows of a data set: what asks, what is searched, what may be learned from.

    `k` is the cut that the protocol's figures are published with (None: the whole ranking).
    `labelled` are the training images whose labels supervised methods see; None: all of them.
    """

    name: str
    query: NDArray[np.int64]
    database: NDArray[np.int64]
    train: NDArray[np.int64]
    k: int | None
    labelled: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if np.intersect1d(self.query, self.database).size:
            raise InputError(f"split {self.name}: a query is also in the database")
        if np.intersect1d(self.query, self.train).size:
            raise InputError(f"split {self.name}: a query is also a training image")
        if self.labelled is not None and np.setdiff1d(self.labelled, self.train).size:
            raise InputError(f"split {self.name}: a labelled image is not a training image")

    @property
    def digest(self) -> str:
        """Stands for exactly these rows in this order."""
        return digest(self.query, self.database, self.train)

    @property
    def title(self) -> str:
        """The name with the digest, for `Protocol.split`."""
        return f"{self.name} ({self.digest})"


def cifar10_full(labels: ArrayLike, *, seed: int = 0) -> RetrievalSplit:
    """The paper: 10,000 test images ask, the 50,000 training images are database and training."""
    train, test = np.split(np.arange(len(_whole_cifar10(labels))), [50_000])
    return RetrievalSplit("cifar10-10k-50k", test, train, train, k=1000)


def cifar10_drawn(labels: ArrayLike, *, with_training: bool, seed: int = 0) -> RetrievalSplit:
    """1,000 queries, 5,000 training images; 54,000 others searched, `with_training` or without."""
    query, train, rest = _per_class(_whole_cifar10(labels), queries=100, training=500, seed=seed)
    database = np.sort(np.concatenate([train, rest])) if with_training else rest
    name = f"cifar10-1k-{len(database) // 1000}k-5k, seed {seed}"
    return RetrievalSplit(name, query, database, train, k=None)


def cifar10_protocol_ii(labels: ArrayLike, *, seed: int = 0) -> RetrievalSplit:
    """10,000 test images ask; 500 training images per class of the 50,000 that are searched."""
    classes = _whole_cifar10(labels)
    database, test = np.split(np.arange(len(classes)), [50_000])
    _, train, _ = _per_class(classes[:50_000], queries=0, training=500, seed=seed)
    return RetrievalSplit(f"cifar10-ii, seed {seed}", test, database, train, k=1000)


def drawn(
    labels: ArrayLike, *, name: str, queries: int, training: int, k: int, seed: int = 0
) -> RetrievalSplit:
    """Queries drawn from all images; the others are searched, and some of them learned from."""
    rows = np.random.default_rng(seed).permutation(len(np.asarray(labels)))
    if queries + training > len(rows):
        raise InputError(f"{name} draws {queries + training:,} images, there are {len(rows):,}")
    query, train = np.sort(rows[:queries]), np.sort(rows[queries : queries + training])
    return RetrievalSplit(f"{name}, seed {seed}", query, np.sort(rows[queries:]), train, k)


def listed(
    labels: ArrayLike, parts: Mapping[str, NDArray[np.int64]], *, name: str, k: int
) -> RetrievalSplit:
    """The split that the lists of a data set name (`LabelledImages.parts`)."""
    if not parts:
        raise InputError(
            f"the split of {name} is in its lists, which are read with its images: use "
            f"data = protocol_images({name!r}, root) and parts=data.parts"
        )
    query, database, train = (np.asarray(parts[part]) for part in ("query", "database", "train"))
    return RetrievalSplit(name, query, database, train, k)


def per_class(
    labels: ArrayLike,
    *,
    queries: int = 100,
    training: int = 500,
    seed: int = 0,
    k: int | None = 5000,
) -> RetrievalSplit:
    """Queries and training images drawn for each class; all images but the queries are searched.

    With the defaults this is NUS-WIDE-21 as it is mostly used (2,100 queries, 10,500 training
    images, mAP@5000, relevant: at least one shared concept). The paper draws 1,000 queries and
    4,000 training images of each concept.
    """
    query, train, rest = _per_class(np.asarray(labels), queries, training, seed)
    database = np.sort(np.concatenate([train, rest]))
    name = f"{queries} queries and {training} training images per class, seed {seed}"
    return RetrievalSplit(name, query, database, train, k)


def held_out(
    labels: ArrayLike,
    *,
    name: str,
    queries: int,
    k: int,
    labelled: int | None = None,
    seed: int = 0,
) -> RetrievalSplit:
    """Queries drawn for each class, no image twice; all others are database and training.

    With `labelled`, each class has so many of the others (or all, where it has fewer) whose labels
    may be learned from; an image counts for all of its classes.
    """
    query, _, others = _per_class(np.asarray(labels), queries, 0, seed)
    some = None
    if labelled is not None:
        some = others[_labelled(_members(np.asarray(labels))[others], labelled, seed)]
    return RetrievalSplit(f"{name}, seed {seed}", query, others, others, k, some)


PROTOCOLS: dict[str, Callable[..., RetrievalSplit]] = {
    "cifar10-10k-50k": cifar10_full,
    "cifar10-i": cifar10_full,
    "cifar10-ii": cifar10_protocol_ii,
    "cifar10-1k-59k-5k": partial(cifar10_drawn, with_training=True),
    "cifar10-1k-54k-5k": partial(cifar10_drawn, with_training=False),
    "nus-wide-21": partial(per_class, queries=100, training=500),
    "nus-wide-21-paper": partial(per_class, queries=1000, training=4000),
    "flickr25k": partial(drawn, name="flickr25k", queries=2000, training=5000, k=5000),
    "coco-17": partial(held_out, name="coco-17", queries=60, k=1000, labelled=200),
    "oxford-17": partial(held_out, name="oxford-17", queries=20, k=100),
}
# Data sets whose lists are the split.
LISTED: dict[str, Callable[..., RetrievalSplit]] = {
    "mscoco-80": partial(listed, name="mscoco-80", k=5000),
    "imagenet-100": partial(listed, name="imagenet-100", k=1000),
}
PROTOCOLS |= LISTED
_IMAGES: dict[str, Callable[..., images.LabelledImages]] = {
    "coco-17": images.coco17,
    "flickr25k": images.flickr25k,
    "imagenet-100": images.imagenet100,
    "mscoco-80": images.mscoco,
    "oxford-17": images.flowers17,
}


def split_by_name(
    name: str,
    labels: ArrayLike,
    *,
    seed: int = 0,
    parts: Mapping[str, NDArray[np.int64]] | None = None,
) -> RetrievalSplit:
    """A split of PROTOCOLS for a data set's labels (CIFAR-10: the training images first).

    Data sets that are split by their own lists need those `parts`.
    """
    if name not in PROTOCOLS:
        raise InputError(f"there is no protocol {name!r}; there are: {', '.join(PROTOCOLS)}")
    if name in LISTED:
        return LISTED[name](labels, parts or {})
    return PROTOCOLS[name](labels, seed=seed)


def protocol_images(name: str, root: str | os.PathLike[str]) -> images.LabelledImages:
    """All images that a protocol of PROTOCOLS splits, from the folder of their data set."""
    if name.startswith("cifar10"):
        return images.cifar10(root, "all")
    return _IMAGES.get(name, images.nus_wide)(root)


def _whole_cifar10(labels: ArrayLike) -> NDArray[Any]:
    classes = np.asarray(labels)
    if classes.shape != (60_000,):
        raise InputError(
            f"this protocol splits all 60,000 images of CIFAR-10, got labels of {classes.shape}; "
            'load them with cifar10(root, split="all")'
        )
    return classes


def _members(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Which image (row) belongs to which class (column); an unlabelled one belongs to none."""
    return indicators(check_labels(labels)).astype(bool)


def _labelled(members: NDArray[np.bool_], share: int, seed: int) -> NDArray[np.int64]:
    """Rows such that each class has `share` or more of them, or all that it has; rare classes
    choose first."""
    rng = np.random.default_rng((seed, share))
    taken = np.zeros(len(members), bool)
    for number in np.argsort(members.sum(axis=0), kind="stable"):
        candidates = np.flatnonzero(members[:, number] & ~taken)
        missing = max(0, share - int(members[taken, number].sum()))
        taken[rng.choice(candidates, min(missing, len(candidates)), replace=False)] = True
    return np.flatnonzero(taken)


def _per_class(
    labels: NDArray[Any], queries: int, training: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(queries, training images, the others); rare classes choose first, so all get their share."""
    members = _members(labels)
    rng = np.random.default_rng(seed)
    free = np.ones(len(labels), bool)
    chosen: dict[str, list[NDArray[np.int64]]] = {"query": [], "training": []}
    for part, share in (("query", queries), ("training", training)):
        for number in np.argsort(members.sum(axis=0), kind="stable"):
            candidates = np.flatnonzero(members[:, number] & free)
            if len(candidates) < share:
                raise InputError(
                    f"class {number} has {len(candidates)} images left for {share} {part} images; "
                    "ask for fewer per class"
                )
            taken = rng.choice(candidates, share, replace=False)
            free[taken] = False
            chosen[part].append(taken)
    query, train = (np.sort(np.concatenate(chosen[part])) for part in ("query", "training"))
    return query, train, np.flatnonzero(free)
