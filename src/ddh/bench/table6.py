"""Table 6 of the paper: recognition on Oxford-17 with a support vector machine."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import DDHWarning, InputError, MissingDependency
from ddh.bench.features import FeatureSet, compute_features, read_features
from ddh.bench.options import BenchOptions, shared_options
from ddh.bench.plots import INK, drawing, style
from ddh.bench.pretrained import learn
from ddh.bench.recognition import (
    VIEWS,
    Result,
    SplitTask,
    descriptor_rows,
    hash_rows,
    real_row,
    split_digest,
)
from ddh.bench.results import Outcome, Store, Table
from ddh.bench.tables import TABLE6
from ddh.descriptors.opencv import opencv
from ddh.images import LabelledImages, Split, flowers17, flowers17_splits

COLUMNS = ["Descriptor", "paper %", "ours %", "paper fit s", "ours fit s", "ours predict s"]
NOTE = (
    "± is the sample standard deviation over the three splits. Codes and real-valued features: "
    "linear SVM; the others: chi-square kernel SVM on histograms of visual words. C is chosen on "
    "validation images; the SVM is then fitted on training and validation images, and tested once. "
    "Hash functions and vocabularies saw training images only (transductive rows: all images, no "
    "labels); 'with views', DDH beyond 64 bits and DDH transductive also saw random views of them. "
    "The validation images also choose between two values of lambda1 for shorter codes of DDH. "
    "Fit time is that of the last fit, kernel included."
)


@click.command(short_help="Table 6: recognition on Oxford-17.")
@click.option(
    "--descriptors/--no-descriptors",
    "with_descriptors",
    default=True,
    help="Also the seven hand-crafted rows (OpenCV, about ten minutes the first time).",
)
@click.option(
    "--adapt",
    type=int,
    metavar="EPOCHS",
    help="First adapt the network to the training images of each split, without labels.",
)
@shared_options("64,256")
def table6(with_descriptors: bool, adapt: int | None, **shared: Any) -> None:
    """Recognition of 17 flower classes: linear SVMs on codes against chi-square SVMs.

    Three splits of 40/20/20 images per class; C is chosen on validation images. Hash functions and
    vocabularies are learned from training images only, except in the rows called transductive,
    which see all images without labels.

    \b
    ddh bench table6 --data DIR
    ddh bench table6 --data DIR --no-descriptors --methods ITQ,DDH
    ddh bench table6 --data DIR --no-descriptors --adapt 100 --device cuda
    """
    options, store = BenchOptions(**shared), Store(shared["output"])
    if options.subset is not None:
        raise InputError("table6 needs all flowers of each class: leave --subset out")
    if with_descriptors:
        try:
            opencv()  # fail before the work, not during it
        except MissingDependency as error:
            raise MissingDependency(f"{error}, or omit its rows with --no-descriptors") from error
    data, splits, splits_note = _flowers(options)
    tasks = _tasks(options, store, data, splits, adapt)
    results: list[Result] = []
    if with_descriptors and data is not None:
        results += descriptor_rows(store, data, splits)
    results += [*hash_rows(store, tasks, options), real_row(store, tasks)]
    _outcome(store, results, tasks, splits_note, adapt).publish(store, options.as_json)


def _flowers(options: BenchOptions) -> tuple[LabelledImages | None, tuple[Split, ...], str]:
    """(data set, splits, a note about the splits)."""
    if options.features is not None and options.data is None:
        found = read_features(options.features)
        return None, _seeded_splits(found.labels), "three seeded 40/20/20 splits"
    root = options.data_folder("Oxford-17")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DDHWarning)
        splits = flowers17_splits(root)
    said = "; ".join(str(one.message) for one in caught) or "the three official splits"
    if caught:
        click.echo(said, err=True)
    return flowers17(root), splits, said.replace(str(root), "the data folder")


def _seeded_splits(labels: NDArray[Any]) -> tuple[Split, ...]:
    """Half of each class for training, a quarter for validation, a quarter for testing."""
    splits = []
    for number in (1, 2, 3):
        rng = np.random.default_rng((0, number))
        parts: list[list[NDArray[np.int64]]] = []
        for kind in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == kind))
            half, quarter = len(members) // 2, len(members) // 4
            parts.append(np.split(members, [half, half + quarter]))
        joined = [np.sort(np.concatenate(part)) for part in zip(*parts, strict=True)]
        splits.append(Split(f"random {number} (seed 0)", *joined))
    return tuple(splits)


def _tasks(
    options: BenchOptions,
    store: Store,
    data: LabelledImages | None,
    splits: tuple[Split, ...],
    adapt: int | None,
) -> list[SplitTask]:
    """The splits with features of one network or, with `adapt`, of one network per split."""
    if adapt is None:
        found = _features(options, store, data)
        return [SplitTask(found, split) for split in splits]
    if data is None or options.features is not None:
        raise InputError("--adapt needs the pictures: give --data and leave --features out")
    tasks = []
    for split in splits:
        learned = learn(data, split.train, options, store, {"epochs": adapt})
        own = replace(options, backbone="auto", weights=str(learned.weights), size=None)
        tasks.append(SplitTask(compute_features(data, store, own, views=VIEWS), split))
    return tasks


def _features(options: BenchOptions, store: Store, data: LabelledImages | None) -> FeatureSet:
    if options.features is not None:
        found = read_features(options.features)
        if data is not None and len(found) != len(data):
            raise InputError(f"{options.features} has {len(found)} rows, not {len(data)}")
        return found
    assert data is not None
    return compute_features(data, store, options, views=VIEWS)


def _outcome(
    store: Store,
    results: list[Result],
    tasks: list[SplitTask],
    splits_note: str,
    adapt: int | None,
) -> Outcome:
    found = tasks[0].found
    rows, records = [], []
    for result in results:
        printed = TABLE6.get(result.label)
        accuracy = f"{100 * result.mean('accuracy'):.1f} ± {100 * result.deviation():.1f}"
        paper = ("", "") if printed is None else (f"{printed[0]:.1f}", f"{printed[1]:g}")
        seconds = f"{result.mean('fit_seconds'):.2f}", f"{result.mean('predict_seconds'):.3f}"
        rows.append([result.label, paper[0], accuracy, paper[1], *seconds])
        shared = {"row": result.label, "paper": printed[0] if printed else None}
        records += [{**shared, **run} for run in result.runs]
    best = int(np.argmax([result.mean("accuracy") for result in results]))
    names = ", ".join(f"{task.split.name} ({split_digest(task.split)})" for task in tasks)
    protocol = [
        f"data {found.data}: {splits_note}; splits {names}",
        f"features {found.backbone}, L2-normalised, supervised by {found.supervision}",
    ]
    if adapt is not None:
        protocol.append(
            f"each split has a network of its own, adapted to its training images for {adapt} "
            "epochs without labels"
        )
    title = f"Accuracy on {found.data}, beside the paper's Table 6"
    return Outcome(
        bench="table6",
        title="Table 6: recognition on Oxford-17",
        protocol=protocol,
        tables=[Table(title, COLUMNS, rows, NOTE, [(best, 2)])],
        records=records,
        figures=[_draw(store.folder("table6"), results)],
    )


def _draw(folder: Path, results: list[Result]) -> dict[str, str]:
    labels = [result.label for result in results]
    with drawing(folder, "accuracy", width=6.4, height=0.32 * len(results) + 1.1) as axes:
        values = [100 * result.mean("accuracy") for result in results]
        colours = [style(0, label.startswith("DDH"))["color"] for label in labels]
        axes.barh(labels, values, color=colours, height=0.62, label="ours")
        printed = [label for label in labels if label in TABLE6]
        axes.plot([TABLE6[label][0] for label in printed], printed, "x", color=INK, label="paper")
        axes.invert_yaxis()
        axes.set(xlabel="accuracy (%)", xlim=(0, 100))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return {"name": "accuracy", "title": "Accuracy on Oxford-17"}
