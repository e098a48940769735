"""The collections of `ddh bench recall`: from ready features, or from the images of a data set."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ddh._core.errors import InputError
from ddh.bench.features import FeatureSet, compute_features, read_features
from ddh.bench.options import BenchOptions
from ddh.bench.results import Store
from ddh.bench.retrieval import Task, given_task, used_rows
from ddh.evaluation import protocol_images, split_by_name


@dataclass(frozen=True)
class Collection:
    """A set of features: its name on the command line, a title, how it is split, its weights."""

    name: str
    title: str
    protocol: str | None = None
    weights: str | None = None  # where they are not those of the options


COLLECTIONS = (
    Collection("cifar10", "CIFAR-10", "cifar10-10k-50k"),
    Collection(
        "cifar10-resnet18",
        "CIFAR-10, shipped ResNet-18",
        "cifar10-10k-50k",
        "weights/cifar10-resnet18.safetensors",
    ),
    Collection("coco17", "COCO-17", "coco-17"),
    Collection("oxford17", "Oxford-17", "oxford-17"),
)


def collections(
    names: str | None, features: tuple[str, ...]
) -> list[tuple[Collection, Path | None]]:
    """The collections to measure, with their files of ready features."""
    known = {one.name: one for one in COLLECTIONS}
    given: dict[Collection, Path | None] = {}
    for text in features:
        name, equals, rest = text.partition("=")
        path = Path(rest if equals and name in known else text)
        if not path.is_file():
            raise InputError(
                f"--features {text}: there is no file {path}; sets are {', '.join(known)}"
            )
        given[known.get(name) or Collection(path.stem, path.stem)] = path
    if names is not None:
        for name in (name.strip() for name in names.split(",")):
            if name not in known:
                raise InputError(f"recall has no set {name}: {', '.join(known)}")
            given.setdefault(known[name], None)
    return list(given.items()) or [(one, None) for one in COLLECTIONS]


def task_of(collection: Collection, file: Path | None, options: BenchOptions, store: Store) -> Task:
    """Its features and its split."""
    if file is not None:
        found = read_features(file)
        return given_task(found, options, 1000, partial(_split, collection, found, file))
    name, own = str(collection.protocol), options
    if collection.weights is not None:
        if not Path(collection.weights).is_file():
            raise InputError(
                f"{collection.weights} is missing: run this in the folder of the source code, or "
                f"leave out the set {collection.name} with --sets"
            )
        own = replace(options, backbone="auto", weights=collection.weights, size=None)
    data = protocol_images(name, options.data_folder(collection.title))
    data, split = used_rows(data, split_by_name(name, data.labels), options.subset)
    found = compute_features(data, store, own)
    if len(found) != len(data):
        raise InputError(f"{collection.title}: the split needs all images; repair the unreadable")
    return Task(found, split)


def _split(collection: Collection, found: FeatureSet, file: Path) -> Any:
    if collection.protocol is None:
        names = ", ".join(one.name for one in COLLECTIONS)
        raise InputError(
            f"{file} marks no queries: add an array `query`, or say which set it is with "
            f"--features SET={file.name} ({names})"
        )
    return split_by_name(collection.protocol, found.labels)
