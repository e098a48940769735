"""Rows of a recognition table: accuracies over splits and seeds, each measured once and stored."""

from dataclasses import dataclass
from functools import partial
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


def descriptor_rows(store: Store, data: LabelledImages, splits: tuple[Split, ...]) -> list[Result]:
    """The paper's seven hand-crafted rows; vocabularies are learned on training images only."""
    images = digest(np.array(list(data.images.names)))
    kinds = [descriptor(name) for name in DESCRIPTORS]
    local: dict[str, Any] = {}

    def one(name: str, split: Split) -> dict[str, Any]:
        if not local:
            cache = store.root / "features" / f"descriptors-{images}"
            local.update(extract(kinds, data.images, cache=cache))
        words = descriptor(name).words
        vocabulary = Vocabulary(words).fit(local[name], split.train)
        histograms = vocabulary.histograms(local[name])
        return _recognition(histograms, data.labels, split, "chi-square")

    results = []
    with bar("Descriptors", total=len(kinds) * len(splits), unit="run") as progress:
        for kind in kinds:
            runs = []
            for split in splits:
                key = {
                    "version": VERSION,
                    "library": ddh.__version__,
                    "images": images,
                    "descriptor": kind.name,
                }
                key |= {"words": str(kind.words), "split": split_digest(split)}
                run = store.measure(f"{kind.name}-svm", key, partial(one, kind.name, split))
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
    from ddh.hashers import create

    wanted = METHODS
    if options.methods is not None:
        chosen = {name.strip().lower() for name in options.methods.split(",")}
        wanted = tuple(name for name in METHODS if name.lower() in chosen)
        if len(wanted) < len(chosen):
            raise InputError(f"the hashing rows of table6 are {', '.join(METHODS)}")
    features = _unit(found.features)

    def one(method: str, bits: int, seed: int, split: Split) -> dict[str, Any]:
        settings = options.settings.get(method, {})
        hasher = create(method, bits=bits, **{"random_state": seed, **settings})
        if "device" in hasher.get_params():
            hasher.set_params(device=options.device)
        hasher.fit(features[split.train])
        return _recognition(hasher.transform(features), found.labels, split, "linear")

    jobs = [(method, bits) for method in wanted for bits in lengths]
    results = []
    total = len(jobs) * len(splits) * len(options.seed_numbers)
    with bar("Codes", total=total, unit="run") as progress:
        for method, bits in jobs:
            runs = []
            for split in splits:
                for seed in options.seed_numbers:
                    progress.set_postfix_str(f"{method}, {bits} bits")
                    key = {
                        "version": VERSION,
                        "library": ddh.__version__,
                        "features": found.digest,
                        "method": method,
                    }
                    key |= {"bits": bits, "seed": seed, "split": split_digest(split)}
                    key |= {"settings": options.settings.get(method, {})}
                    compute = partial(one, method, bits, seed, split)
                    run = store.measure(f"{method}-{bits}-{seed}-svm", key, compute)
                    runs.append({**run, "split": split.name, "seed": seed})
                    progress.update()
            results.append(Result(f"{method} ({bits} bits)", runs))
    return results


def real_row(store: Store, found: FeatureSet, splits: tuple[Split, ...]) -> Result:
    """A linear SVM on the real-valued features that the codes were made from."""
    features = _unit(found.features)
    runs = []
    for split in splits:
        key = {
            "version": VERSION,
            "library": ddh.__version__,
            "features": found.digest,
            "split": split_digest(split),
        }
        compute = partial(_recognition, features, found.labels, split, "linear")
        run = store.measure("real-svm", {**key, "method": "real-valued"}, compute)
        runs.append({**run, "split": split.name})
    return Result(f"real-valued features ({features.shape[1]})", runs)


def _unit(features: NDArray[Any]) -> NDArray[np.float32]:
    values = np.asarray(features, np.float32)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return (values / np.where(length == 0, 1, length)).astype(np.float32)
