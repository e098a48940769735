"""Rows of a recognition table: accuracies over splits and seeds, each measured once and stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ddh
from ddh.bench.features import FeatureSet
from ddh.bench.options import BenchOptions
from ddh.bench.store import Store
from ddh.descriptors import DESCRIPTORS, Vocabulary, descriptor, extract
from ddh.errors import InputError
from ddh.evaluation import recognise
from ddh.evaluation.protocol import digest
from ddh.images import LabelledImages, Split
from ddh.progress import bar

VERSION = 1
METHODS: tuple[str, ...] = ("LSH", "ITQ", "DeepBit", "DDH")
# Settings that the validation images of a split choose from, as they choose C. A collection of
# 680 images wants small neighbourhoods and few, gentle steps.
_SMALL = {
    "k1": 5,
    "k2": 3,
    "alpha": 3.0,
    "learning_rate": 1e-3,
    "final_learning_rate": 1e-5,
    "batch_size": 256,
    "epochs": 60,
}
CANDIDATES: dict[str, tuple[dict[str, Any], ...]] = {
    "DDH": ({**_SMALL, "lambda1": 0.02}, {**_SMALL, "lambda1": 0.08}),
}


@dataclass(frozen=True)
class Result:
    """A row of the table: one entry for each split (and seed)."""

    label: str
    runs: list[dict[str, Any]]

    def mean(self, name: str) -> float:
        """Mean over splits and seeds."""
        return float(np.mean([run[name] for run in self.runs]))

    def deviation(self) -> float:
        """Deviation of the accuracy over splits, each the mean of its seeds."""
        splits = sorted({run["split"] for run in self.runs})
        means = [
            np.mean([run["accuracy"] for run in self.runs if run["split"] == split])
            for split in splits
        ]
        return float(np.std(means, ddof=1)) if len(means) > 1 else 0.0


def split_digest(split: Split) -> str:
    """Stands for exactly these images."""
    return digest(split.train, split.validation, split.test)


def _recognition(
    features: NDArray[Any], labels: NDArray[Any], split: Split, kernel: Any
) -> dict[str, Any]:
    parts = [(features[rows], labels[rows]) for rows in (split.train, split.validation, split.test)]
    found = recognise(*parts, kernel=kernel)  # type: ignore[arg-type]
    return {
        "accuracy": found.accuracy,
        "validation": found.validation_accuracy,
        "C": found.C,
        "fit_seconds": found.fit_seconds,
        "predict_seconds": found.predict_seconds,
        "kernel": kernel,
    }


def _key(split: Split, **parts: Any) -> dict[str, Any]:
    return {"version": VERSION, "library": ddh.__version__, "split": split_digest(split), **parts}


def descriptor_rows(store: Store, data: LabelledImages, splits: tuple[Split, ...]) -> list[Result]:
    """The paper's seven hand-crafted rows; vocabularies are learned on training images only."""
    images = digest(np.array(list(data.images.names)))
    kinds = [descriptor(name) for name in DESCRIPTORS]
    local: dict[str, Any] = {}

    def measure(name: str, split: Split) -> dict[str, Any]:
        if not local:
            cache = store.root / "features" / f"descriptors-{images}"
            local.update(extract(kinds, data.images, cache=cache))
        vocabulary = Vocabulary(descriptor(name).words).fit(local[name], split.train)
        histograms = vocabulary.histograms(local[name])
        return _recognition(histograms, data.labels, split, "chi-square")

    results = []
    with bar("Descriptors", total=len(kinds) * len(splits), unit="run") as progress:
        for kind in kinds:
            runs = []
            for split in splits:
                key = _key(split, images=images, descriptor=kind.name, words=kind.words)
                run = store.measure(f"{kind.name}-svm", key, partial(measure, kind.name, split))
                runs.append({**run, "split": split.name})
                progress.update()
            results.append(Result(kind.name, runs))
    return results


def hash_rows(
    store: Store,
    found: FeatureSet,
    splits: tuple[Split, ...],
    lengths: tuple[int, ...],
    options: BenchOptions,
) -> list[Result]:
    """Linear SVMs on the bits of each method; the hash functions saw training images only."""
    jobs = [(method, bits) for method in _wanted(options.methods) for bits in lengths]
    measure = HashMeasurement(store, found, options.device)
    results = []
    total = len(jobs) * len(splits) * len(options.seed_numbers)
    with bar("Codes", total=total, unit="run") as progress:
        for method, bits in jobs:
            given = options.settings.get(method)
            candidates = CANDIDATES.get(method, ({},)) if given is None else (given,)
            runs = []
            for split, seed in product(splits, options.seed_numbers):
                progress.set_postfix_str(f"{method}, {bits} bits, {split.name}")
                runs.append(measure.best(method, bits, seed, split, candidates))
                progress.update()
            results.append(Result(f"{method} ({bits} bits)", runs))
    return results


def _wanted(names: str | None) -> tuple[str, ...]:
    if names is None:
        return METHODS
    chosen = {name.strip().lower() for name in names.split(",")}
    if not chosen <= {name.lower() for name in METHODS}:
        raise InputError(f"the hashing rows of table6 are {', '.join(METHODS)}")
    return tuple(name for name in METHODS if name.lower() in chosen)


class HashMeasurement:
    """Recognition by the bits of a method, each run stored."""

    def __init__(self, store: Store, found: FeatureSet, device: str) -> None:
        self.store, self.found, self.device = store, found, device
        self.features = _unit(found.features)

    def best(
        self,
        method: str,
        bits: int,
        seed: int,
        split: Split,
        candidates: Sequence[dict[str, Any]],
    ) -> dict[str, Any]:
        """The run of those settings whose codes are best on the validation images."""
        runs = []
        for settings in candidates:
            key = _key(split, features=self.found.digest, method=method, bits=bits, seed=seed)
            key["settings"] = settings
            compute = partial(self._measure, method, bits, seed, split, settings)
            run = self.store.measure(f"{method}-{bits}-{seed}-svm", key, compute)
            runs.append({**run, "split": split.name, "seed": seed, "settings": str(settings)})
        return max(runs, key=lambda run: run["validation"])

    def _measure(
        self, method: str, bits: int, seed: int, split: Split, settings: dict[str, Any]
    ) -> dict[str, Any]:
        from ddh.hashers import create

        hasher = create(method, bits=bits, **{"random_state": seed, **settings})
        if "device" in hasher.get_params():
            hasher.set_params(device=self.device)
        hasher.fit(self.features[split.train])
        return _recognition(hasher.transform(self.features), self.found.labels, split, "linear")


def real_row(store: Store, found: FeatureSet, splits: tuple[Split, ...]) -> Result:
    """A linear SVM on the real-valued features that the codes were made from."""
    features = _unit(found.features)
    runs = []
    for split in splits:
        key = _key(split, features=found.digest, method="real-valued")
        compute = partial(_recognition, features, found.labels, split, "linear")
        runs.append({**store.measure("real-svm", key, compute), "split": split.name})
    return Result(f"real-valued features ({features.shape[1]})", runs)


def _unit(features: NDArray[Any]) -> NDArray[np.float32]:
    values = np.asarray(features, np.float32)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return (values / np.where(length == 0, 1, length)).astype(np.float32)
