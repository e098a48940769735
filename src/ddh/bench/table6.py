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
from ddh.bench.recognition_rows import (
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


@click.command(short_help="Table 6: recognition on Oxford-17.")
@click.option(
    "--descriptors/--no-descriptors",
    "with_descriptors",
    default=True,
    help="Also the seven hand-crafted rows (OpenCV, some ten minutes the first time).",
)
@click.option(
    "--adapt",
    type=int,
    metavar="EPOCHS",
    help="First adapt the network to the training images of each split, without their labels.",
)
@shared_options("64,256")
def table6(with_descriptors: bool, adapt: int | None, **shared: Any) -> None:
    """Recognition of 17 kinds of flowers: a linear SVM on bits against chi-square SVMs.

    Three splits of 40/20/20 images a class; C is chosen on validation images. Hash functions and
    vocabularies are learned from the training images only, but for the rows called transductive,
    which see all images without labels.

    \b
    ddh bench table6 --data DIR
    ddh bench table6 --data DIR --no-descriptors --methods ITQ,DDH
    ddh bench table6 --data DIR --no-descriptors --adapt 100 --device cuda
    """
    options = BenchOptions(**shared)
    if options.subset is not None:
        raise InputError("table6 needs all flowers of each class: leave --subset out")
    if with_descriptors:
        _need_opencv()
    store = Store(options.output)
    data, splits, warning = _flowers(options)
    tasks = _tasks(options, store, data, splits, adapt)
    results: list[Result] = []
    if with_descriptors and data is not None:
        results += descriptor_rows(store, data, splits)
    results += hash_rows(store, tasks, options.lengths, options)
    results.append(real_row(store, tasks))
    outcome = _outcome(store, results, tasks, warning, adapt)
    outcome.publish(store, options.as_json)


def _need_opencv() -> None:
    """Fail before the work, not in the middle of it."""
    try:
        opencv()
    except MissingDependency as error:
        raise MissingDependency(f"{error}, or leave its rows out with --no-descriptors") from error


def _flowers(options: BenchOptions) -> tuple[LabelledImages | None, tuple[Split, ...], str]:
    """(data set, splits, what to say about the splits)."""
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
    return flowers17(root), splits, _without_folders(said, root)


def _without_folders(text: str, root: Path) -> str:
    return text.replace(str(root), "the data folder")


def _seeded_splits(labels: NDArray[Any]) -> tuple[Split, ...]:
    """Half of each class for training, a quarter for validation, a quarter for testing."""
    splits = []
    for number in (1, 2, 3):
        rng = np.random.default_rng((0, number))
        parts: list[list[NDArray[np.int64]]] = [[], [], []]
        for kind in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == kind))
            half, quarter = len(members) // 2, len(members) // 4
            for part, rows in zip(parts, np.split(members, [half, half + quarter]), strict=True):
                part.append(rows)
        joined = [np.sort(np.concatenate(part)) for part in parts]
        splits.append(Split(f"random {number} (seed 0)", *joined))
    return tuple(splits)


def _tasks(
    options: BenchOptions,
    store: Store,
    data: LabelledImages | None,
    splits: tuple[Split, ...],
    adapt: int | None,
) -> list[SplitTask]:
    """The splits with the features of one network, or each with those of a network of its own."""
    if adapt is None:
        found = _features(options, store, data)
        return [SplitTask(found, split) for split in splits]
    if data is None or options.features is not None:
        raise InputError("--adapt needs the pictures: give --data and leave --features out")
    tasks = []
    for split in splits:
        learned = learn(data, split.train, options, store, {"epochs": adapt})
        own = replace(options, backbone="auto", weights=str(learned.weights), size=None)
        found = compute_features(data, store, own, views=VIEWS)
        tasks.append(SplitTask(found, split))
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
    warning: str,
    adapt: int | None,
) -> Outcome:
    found = tasks[0].found
    rows, records = [], []
    for result in results:
        printed = TABLE6.get(result.label)
        accuracy = 100 * result.mean("accuracy")
        rows.append(
            [
                result.label,
                "" if printed is None else f"{printed[0]:.1f}",
                f"{accuracy:.1f} ± {100 * result.deviation():.1f}",
                "" if printed is None else f"{printed[1]:g}",
                f"{result.mean('fit_seconds'):.2f}",
                f"{result.mean('predict_seconds'):.3f}",
            ]
        )
        records += [
            {"row": result.label, "paper": printed[0] if printed else None, **run}
            for run in result.runs
        ]
    best = max(range(len(results)), key=lambda row: results[row].mean("accuracy"))
    columns = ["Descriptor", "paper %", "ours %", "paper fit s", "ours fit s", "ours predict s"]
    note = (
        "± is the sample deviation over the three splits. Bits and real-valued features: linear "
        "SVM; the others: chi-square kernel SVM on histograms of visual words. C by validation, "
        "fitted on training and validation images, tested once. Hash functions and vocabularies "
        "saw training images only (transductive rows: all images, no labels), 'with views', DDH "
        "beyond 64 bits and DDH transductive also random views of them; "
        "the validation images also choose the lambda1 of shorter codes of DDH out of two values. "
        "Fit time is that of the last fit, kernel included."
    )
    title = "Table 6: recognition on Oxford-17"
    said = ", ".join(f"{task.split.name} ({split_digest(task.split)})" for task in tasks)
    protocol = [
        f"data {found.data}: {warning}; splits {said}",
        f"features {found.backbone}, L2-normalised, supervised by {found.supervision}",
    ]
    if adapt is not None:
        protocol.append(
            f"each split has a network of its own, adapted to its training images for {adapt} "
            "epochs without labels"
        )
    outcome = Outcome(
        bench="table6",
        title=title,
        protocol=protocol,
        tables=[
            Table(
                f"Accuracy on {found.data}, beside the paper's Table 6",
                columns,
                rows,
                note,
                [(best, 2)],
            )
        ],
        records=records,
    )
    outcome.figures.append(_draw(store.folder("table6"), results))
    return outcome


def _draw(folder: Path, results: list[Result]) -> dict[str, str]:
    with drawing(folder, "accuracy", width=6.4, height=0.32 * len(results) + 1.1) as axes:
        places = np.arange(len(results))
        values = [100 * result.mean("accuracy") for result in results]
        colours = [style(0, result.label.startswith("DDH"))["color"] for result in results]
        axes.barh(places, values, color=colours, height=0.62, label="ours")
        printed = [
            (row, TABLE6[result.label][0])
            for row, result in enumerate(results)
            if result.label in TABLE6
        ]
        axes.plot(
            [value for _, value in printed],
            [row for row, _ in printed],
            "x",
            color=INK,
            label="paper",
        )
        axes.set_yticks(places, [result.label for result in results])
        axes.invert_yaxis()
        axes.set(xlabel="accuracy (%)", xlim=(0, 100))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return {"name": "accuracy", "title": "Accuracy on Oxford-17"}
