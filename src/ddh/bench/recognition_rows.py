"""Rows of a recognition table: accuracies over splits and seeds, each measured once and stored."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ddh
from ddh._core.arrays import l2_normalize
from ddh._core.errors import InputError
from ddh._core.progress import bar
from ddh.bench.features import FeatureSet
from ddh.bench.options import BenchOptions
from ddh.bench.results import Store
from ddh.descriptors import DESCRIPTORS, Vocabulary, descriptor, extract
from ddh.evaluation import recognise
from ddh.evaluation.protocol import digest
from ddh.images import LabelledImages, Split

VERSION = 1
VIEWS = 7
SHORT = 64  # bits


# A collection of 680 images wants small neighbourhoods and few, gentle steps. Long codes follow
# such a small collection too closely, which views prevent: a picture's own views are then most of
# its neighbourhood. Chosen by splits of training and validation images alone.
_SMALL = {
    "alpha": 3.0,
    "learning_rate": 1e-3,
    "final_learning_rate": 1e-5,
    "batch_size": 256,
}
_PLAIN = {**_SMALL, "k1": 5, "k2": 3, "epochs": 60}
_VIEWS = {**_SMALL, "epochs": 20, "lambda1": 0.02}


@dataclass(frozen=True)
class Candidate:
    """Settings of a method, and whether it learns from random views of the pictures too."""

    settings: dict[str, Any] = field(default_factory=dict)
    views: bool = False


@dataclass(frozen=True)
class HashRow:
    """A row of codes; the validation images of a split choose a candidate, as they choose C.

    Where some candidates have views and some do not, the former are for long codes.
    """

    label: str
    method: str
    candidates: tuple[Candidate, ...] = (Candidate(),)
    transductive: bool = False
    """Whether the hash functions see validation and test images too, without labels, as those of a
    collection that is searched do."""

    def candidates_for(self, bits: int) -> list[Candidate]:
        """Those that are for codes of this length."""
        if len({one.views for one in self.candidates}) == 1:
            return list(self.candidates)
        return [one for one in self.candidates if one.views == (bits > SHORT)]


ROWS = (
    HashRow("LSH", "LSH"),
    HashRow("ITQ", "ITQ"),
    HashRow("ITQ with views", "ITQ", (Candidate(views=True),)),
    HashRow("DeepBit", "DeepBit"),
    HashRow(
        "DDH",
        "DDH",
        (
            Candidate({**_PLAIN, "lambda1": 0.02}),
            Candidate({**_PLAIN, "lambda1": 0.08}),
            Candidate({**_VIEWS, "k1": 6, "k2": 1}, views=True),
        ),
    ),
    HashRow("ITQ transductive", "ITQ", transductive=True),
    HashRow(
        "DDH transductive",
        "DDH",
        (Candidate({**_VIEWS, "k1": 12, "k2": 3}, views=True),),
        transductive=True,
    ),
)


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
        return l2_normalize(self.found.features)

    def rows(self, rows: NDArray[np.int64] | slice, views: bool) -> NDArray[np.float32]:
        """What hash functions learn from: some images, and with `views` their views."""
        others = [l2_normalize(values[rows]) for values in self.found.views] if views else []
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
    rows = _wanted(options, views=bool(tasks[0].found.views))
    jobs = [(row, bits) for row in rows for bits in lengths]
    results = []
    total = len(jobs) * len(tasks) * len(options.seed_numbers)
    with bar("Codes", total=total, unit="run") as progress:
        for row, bits in jobs:
            runs = []
            for task, seed in product(tasks, options.seed_numbers):
                progress.set_postfix_str(f"{row.label}, {bits} bits, {task.split.name}")
                runs.append(HashMeasurement(store, task, row, options.device).best(bits, seed))
                progress.update()
            results.append(Result(f"{row.label} ({bits} bits)", runs))
    return results


def _wanted(options: BenchOptions, views: bool) -> list[HashRow]:
    """The rows that were asked for, with the candidates that can be: views are made of pictures,
    and settings that were named are the only ones."""
    known = dict.fromkeys(row.method for row in ROWS)
    chosen = {name.lower() for name in known}
    if options.methods is not None:
        chosen = {name.strip().lower() for name in options.methods.split(",")}
    if not chosen <= {name.lower() for name in known}:
        raise InputError(f"the hashing rows of table6 are {', '.join(known)}")
    rows = []
    for row in ROWS:
        candidates = tuple(one for one in row.candidates if views or not one.views)
        given = options.settings.get(row.method)
        if given is not None:
            with_views = sorted({one.views for one in candidates})
            candidates = tuple(Candidate(given, views) for views in with_views)
        if candidates and row.method.lower() in chosen:
            rows.append(replace(row, candidates=candidates))
    return rows


class HashMeasurement:
    """Recognition by the bits of a method, each run stored."""

    def __init__(self, store: Store, task: SplitTask, row: HashRow, device: str) -> None:
        self.store, self.task, self.row, self.device = store, task, row, device

    def best(self, bits: int, seed: int) -> dict[str, Any]:
        """The run of the candidate whose codes are best on the validation images."""
        method, split, runs = self.row.method, self.task.split, []
        for candidate in self.row.candidates_for(bits):
            settings, views = candidate.settings, len(self.task.found.views) * candidate.views
            key = self.task.key(method=method, bits=bits, seed=seed, settings=settings)
            key |= {"views": views} if views else {}
            key |= {"transductive": True} if self.row.transductive else {}
            compute = partial(self._measure, bits, seed, candidate)
            run = self.store.measure(f"{method}-{bits}-{seed}-svm", key, compute)
            told = {"split": split.name, "seed": seed, "settings": str(settings), "views": views}
            runs.append(run | told)
        return max(runs, key=lambda run: run["validation"])

    def _measure(self, bits: int, seed: int, candidate: Candidate) -> dict[str, Any]:
        from ddh.hashers import create

        settings = {"random_state": seed, **candidate.settings}
        hasher = create(self.row.method, bits=bits, **settings)
        if "device" in hasher.get_params():
            hasher.set_params(device=self.device)
        rows = slice(None) if self.row.transductive else self.task.split.train
        hasher.fit(self.task.rows(rows, candidate.views))
        return self.task.recognise(hasher.transform(self.task.unit_features))


def real_row(store: Store, tasks: Sequence[SplitTask]) -> Result:
    """A linear SVM on the real-valued features that the codes were made from."""
    runs = []
    for task in tasks:
        compute = partial(task.recognise, task.unit_features)
        run = store.measure("real-svm", task.key(method="real-valued"), compute)
        runs.append({**run, "split": task.split.name})
    return Result(f"real-valued features ({tasks[0].found.features.shape[1]})", runs)
