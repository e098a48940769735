"""Features of a data set for the benches: read from a file, or computed once and cached."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

import ddh
from ddh._core.errors import DDHWarning, InputError
from ddh.bench.options import BenchOptions
from ddh.bench.results import Store, key_digest
from ddh.evaluation.protocol import UNSPECIFIED, digest
from ddh.images import ImageSource, LabelledImages


@dataclass(frozen=True)
class FeatureSet:
    """Features and labels of all images of a data set, and where they came from.

    `query` marks the query rows, if the file of features has such a mark; `images` are the
    pictures, if available; `digest` identifies the features by their values or by how they were
    computed; `views` are the features of random views of each picture, if requested.
    """

    features: NDArray[np.float32]
    labels: NDArray[Any]
    data: str
    backbone: str
    supervision: str
    digest: str
    images: ImageSource | None = None
    query: NDArray[np.bool_] | None = None
    views: Sequence[NDArray[np.float32]] = ()

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: NDArray[np.int64]) -> "FeatureSet":
        """Some of the images, in the order of `rows`."""
        return replace(
            self,
            features=self.features[rows],
            labels=self.labels[rows],
            digest=digest(np.array(self.digest), rows),
            images=None if self.images is None else self.images.take(rows),
            query=None if self.query is None else self.query[rows],
            views=[values[rows] for values in self.views],
        )


def read_features(path: Path) -> FeatureSet:
    """Features from an .npz file: features (n, d), labels, and optionally query, data, backbone
    and supervision."""
    try:
        with np.load(path, allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
    except (OSError, TypeError, ValueError, BadZipFile) as error:  # TypeError: a single array
        raise InputError(f"{path} is not an .npz file of arrays: {error}") from error
    if missing := {"features", "labels"} - content.keys():
        raise InputError(f"{path} lacks {' and '.join(sorted(missing))}")
    features = np.asarray(content["features"], np.float32)
    labels, query = content["labels"], content.get("query")
    if features.ndim != 2 or len(labels) != len(features):
        raise InputError(f"{path}: features {features.shape} and labels {labels.shape} do not fit")
    if query is not None and query.shape != (len(features),):
        raise InputError(f"{path}: query marks each of the {len(features)} rows with 0 or 1")
    return FeatureSet(
        features,
        labels,
        data=str(content.get("data", path.stem)),
        backbone=str(content.get("backbone", UNSPECIFIED)),
        supervision=str(content.get("supervision", UNSPECIFIED)),
        digest=digest(features),
        query=None if query is None else query.astype(bool),
    )


def compute_features(
    data: LabelledImages, store: Store, options: BenchOptions, *, views: int = 0
) -> FeatureSet:
    """Features of all readable images and of `views` random views of each, cached in the store.

    An interrupted run resumes. Unreadable images are left out, with a warning.
    """
    from ddh.backbones import open_network
    from ddh.train.features import extract

    network = open_network(options.backbone, options.weights, options.size)
    key = {
        "library": ddh.__version__,
        "data": data.name,
        "images": digest(np.array(list(data.images.names))),
        "backbone": network.name,
        "weights": network.origin,
        "preprocessing": network.preprocessing.to_dict(),
    }
    name = key_digest(key)
    folder = store.root / "features" / name
    found = extract(
        network, data.images, views=views, device=options.device, folder=folder, resume=True
    )
    plain, *others = found.values.reshape(views + 1, -1, network.dimensions)
    if found.failures:
        first = found.failures[0]
        warnings.warn(
            f"left out {len(found.failures)} of {len(data)} images that cannot be read, the first "
            f"is {first.name}: {first.reason}",
            DDHWarning,
            stacklevel=2,
        )
        data = data.take(found.usable[: len(plain)])
    return FeatureSet(
        plain,
        data.labels,
        data=data.name,
        backbone=f"{network.name} at {network.preprocessing.size} px",
        supervision=_supervision(network.origin),
        digest=name,
        images=data.images,
        views=others,
    )


def _supervision(origin: str) -> str:
    """How the backbone was supervised, by the origin of its weights."""
    if origin.startswith("imagenet"):
        return f"ImageNet's labels ({origin})"
    if origin == "random":
        return "nothing (random weights)"
    if " from random" in origin:  # `ddh pretrain` records the weights that it started from
        return f"nothing (pretrained on pictures alone: {origin})"
    return f"weights of {origin}"
