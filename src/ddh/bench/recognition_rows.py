"""Rows of a recognition table: accuracies over splits and seeds, each measured once and stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
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
VIEWS = 7


@dataclass(frozen=True)
class HashRow:
    """A row of codes: the method, and whether it learns from random views of the pictures too."""

    label: str
    method: str
    views: bool = False


ROWS = (
    HashRow("LSH", "LSH"),
    HashRow("ITQ", "ITQ"),
    HashRow("ITQ with views", "ITQ", views=True),
    HashRow("DeepBit", "DeepBit"),
    HashRow("DDH", "DDH", views=True),
)
# Settings that the validation images of a split choose from, as they choose C. A collection of
# 680 images wants small neighbourhoods and few, gentle steps; with views, a picture's own views
# are most of its neighbourhood.
_SMALL = {
    "alpha": 3.0,
    "learning_rate": 1e-3,
    "final_learning_rate": 1e-5,
    "batch_size": 256,
}
_PLAIN = {**_SMALL, "k1": 5, "k2": 3, "epochs": 60}
_VIEWS = {**_SMALL, "epochs": 20, "lambda1": 0.02}
CANDIDATES: dict[tuple[str, bool], tuple[dict[str, Any], ...]] = {
    ("DDH", False): ({**_PLAIN, "lambda1": 0.02}, {**_PLAIN, "lambda1": 0.08}),
    ("DDH", True): ({**_VIEWS, "k1": 6, "k2": 1}, {**_VIEWS, "k1": 12, "k2": 3}),
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


@dataclass(frozen=True)
class SplitTask:
    """A split and the features that its rows are measured on."""

    found: FeatureSet
    split: Split

    @cached_property
    def unit_features(self) -> NDArray[np.float32]:
        """L2-normalised."""
        return _unit(self.found.features)

    def training_rows(self, views: bool) -> NDArray[np.float32]:
        """What hash functions learn from: training images, and with `views` their views."""
        rows = self.split.train
        others = [_unit(values[rows]) for values in self.found.views] if views else []
        return np.concatenate([self.unit_features[rows], *others])

    def key(self, **parts: Any) -> dict[str, Any]:
        """Stands for a measurement."""
        return _key(self.split, features=self.found.digest, **parts)

    def recognise(self, features: NDArray[Any]) -> dict[str, Any]:
        """A linear SVM on these features, or bits, of all images."""
        return _recognition(features, self.found.labels, self.split, "linear")


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
    tasks: Sequence[SplitTask],
    lengths: tuple[int, ...],
    options: BenchOptions,
) -> list[Result]:
    """Linear SVMs on the bits of each method; the hash functions saw training images only."""
    views = bool(tasks[0].found.views)
    rows = [row for row in _wanted(options.methods) if views or row.label == row.method]
    jobs = [(row, bits) for row in rows for bits in lengths]
    results = []
    total = len(jobs) * len(tasks) * len(options.seed_numbers)
    with bar("Codes", total=total, unit="run") as progress:
        for row, bits in jobs:
            given = options.settings.get(row.method)
            known = CANDIDATES.get((row.method, row.views and views), ({},))
            candidates = known if given is None else (given,)
            runs = []
            for task, seed in product(tasks, options.seed_numbers):
                progress.set_postfix_str(f"{row.label}, {bits} bits, {task.split.name}")
                measure = HashMeasurement(store, task, row, options.device)
                runs.append(measure.best(bits, seed, candidates))
                progress.update()
            results.append(Result(f"{row.label} ({bits} bits)", runs))
    return results


def _wanted(names: str | None) -> tuple[HashRow, ...]:
    if names is None:
        return ROWS
    chosen = {name.strip().lower() for name in names.split(",")}
    if not chosen <= {row.method.lower() for row in ROWS}:
        known = ", ".join(dict.fromkeys(row.method for row in ROWS))
        raise InputError(f"the hashing rows of table6 are {known}")
    return tuple(row for row in ROWS if row.method.lower() in chosen)


class HashMeasurement:
    """Recognition by the bits of a method, each run stored."""

    def __init__(self, store: Store, task: SplitTask, row: HashRow, device: str) -> None:
        self.store, self.task, self.row, self.device = store, task, row, device

    def best(self, bits: int, seed: int, candidates: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The run of those settings whose codes are best on the validation images."""
        method, split, runs = self.row.method, self.task.split, []
        views = len(self.task.found.views) if self.row.views else 0
        for settings in candidates:
            key = self.task.key(method=method, bits=bits, seed=seed, settings=settings)
            key |= {"views": views} if views else {}
            compute = partial(self._measure, bits, seed, settings)
            run = self.store.measure(f"{method}-{bits}-{seed}-svm", key, compute)
            runs.append({**run, "split": split.name, "seed": seed, "settings": str(settings)})
        return max(runs, key=lambda run: run["validation"])

    def _measure(self, bits: int, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
        from ddh.hashers import create

        hasher = create(self.row.method, bits=bits, **{"random_state": seed, **settings})
        if "device" in hasher.get_params():
            hasher.set_params(device=self.device)
        hasher.fit(self.task.training_rows(self.row.views))
        return self.task.recognise(hasher.transform(self.task.unit_features))


def real_row(store: Store, tasks: Sequence[SplitTask]) -> Result:
    """A linear SVM on the real-valued features that the codes were made from."""
    runs = []
    for task in tasks:
        compute = partial(task.recognise, task.unit_features)
        run = store.measure("real-svm", task.key(method="real-valued"), compute)
        runs.append({**run, "split": task.split.name})
    return Result(f"real-valued features ({tasks[0].found.features.shape[1]})", runs)


def _unit(features: NDArray[Any]) -> NDArray[np.float32]:
    values = np.asarray(features, np.float32)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return (values / np.where(length == 0, 1, length)).astype(np.float32)
