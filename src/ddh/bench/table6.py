"""Table 6 of the paper: recognition on Oxford-17 with a support vector machine."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

import ddh
from ddh._core.arrays import l2_normalize
from ddh._core.errors import DDHWarning, InputError, MissingDependency
from ddh._core.progress import bar
from ddh.bench.features import FeatureSet, compute_features, read_features
from ddh.bench.options import BenchOptions, shared_options
from ddh.bench.plots import INK, drawing, style
from ddh.bench.pretrained import learn
from ddh.bench.results import Outcome, Record, Store, Table
from ddh.bench.retrieval import hasher
from ddh.bench.tables import TABLE6, select
from ddh.descriptors import DESCRIPTORS, LocalDescriptor, Vocabulary, extract
from ddh.descriptors.opencv import opencv
from ddh.evaluation import recognise
from ddh.evaluation.protocol import digest
from ddh.images import LabelledImages, Split, flowers17, flowers17_splits
from ddh.images.flowers import seeded_splits

VERSION = 1
VIEWS = 7
SHORT = 64  # bits

# A collection of 680 images needs small neighbourhoods and few, small steps. Long codes overfit
# such a collection, which views prevent: most of an image's neighbourhood is then its own views.
# All chosen on training and validation images alone.
_SMALL = {"alpha": 3.0, "learning_rate": 1e-3, "final_learning_rate": 1e-5, "batch_size": 256}
_PLAIN = {**_SMALL, "k1": 5, "k2": 3, "epochs": 60}
_VIEWS = {**_SMALL, "epochs": 20, "lambda1": 0.02}


@dataclass(frozen=True)
class Candidate:
    """Settings of a method, and whether it also learns from random views of the images."""

    settings: dict[str, Any] = field(default_factory=dict)
    views: bool = False


@dataclass(frozen=True)
class HashRow:
    """A row of codes; the validation images of a split choose the candidate, as they choose C.

    If only some candidates have views, those are for long codes. The hash functions of a
    `transductive` row also see validation and test images, without labels, like those of a
    collection that is searched.
    """

    label: str
    method: str
    candidates: tuple[Candidate, ...] = (Candidate(),)
    transductive: bool = False

    def candidates_for(self, bits: int) -> list[Candidate]:
        """The candidates for codes of this length."""
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
    """A row of the table, with one run per split and seed."""

    label: str
    runs: list[Record]

    def mean(self, name: str) -> float:
        """Mean over splits and seeds."""
        return float(np.mean([run[name] for run in self.runs]))

    def deviation(self) -> float:
        """Standard deviation of the accuracy over splits, each the mean of its seeds."""
        splits: dict[str, list[float]] = {}
        for run in self.runs:
            splits.setdefault(run["split"], []).append(run["accuracy"])
        means = [np.mean(values) for values in splits.values()]
        return float(np.std(means, ddof=1)) if len(means) > 1 else 0.0


def split_digest(split: Split) -> str:
    """Identifies the images of a split."""
    return digest(split.train, split.validation, split.test)


def _recognition(features: NDArray[Any], labels: NDArray[Any], split: Split, kernel: Any) -> Record:
    parts = (split.train, split.validation, split.test)
    found = recognise(*((features[rows], labels[rows]) for rows in parts), kernel=kernel)
    values = asdict(found)
    del values["predicted"]
    return {"validation": values.pop("validation_accuracy"), **values}


def _key(split: Split, **parts: Any) -> Record:
    return {"version": VERSION, "library": ddh.__version__, "split": split_digest(split), **parts}


@dataclass(frozen=True)
class SplitTask:
    """A split and the features that its rows are measured on."""

    found: FeatureSet
    split: Split

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """L2-normalised."""
        return l2_normalize(self.found.features)

    def measure(
        self, store: Store, name: str, features: Callable[[], NDArray[Any]], **key: Any
    ) -> Record:
        """A linear SVM on `features()`, real values or bits of all images."""

        def compute() -> Record:
            return _recognition(features(), self.found.labels, self.split, "linear")

        key = _key(self.split, features=self.found.digest, **key)
        return store.measure(name, key, compute) | {"split": self.split.name}


# -- the rows: a label, and one function per run -----------------------------------------------

Rows = Iterator[tuple[str, list[Callable[[], Record]]]]


def descriptor_rows(store: Store, data: LabelledImages, splits: tuple[Split, ...]) -> Rows:
    """The paper's seven hand-crafted rows; vocabularies are learned on training images only."""
    images = digest(np.array(list(data.images.names)))
    kinds = list(DESCRIPTORS.values())
    folder = store.root / "features" / f"descriptors-{images}"
    local = cache(lambda: extract(kinds, data.images, cache=folder))

    def measure(kind: LocalDescriptor, split: Split) -> Record:
        vectors = local()[kind.name]
        histograms = Vocabulary(kind.words).fit(vectors, split.train).histograms(vectors)
        return _recognition(histograms, data.labels, split, "chi-square")

    def run(kind: LocalDescriptor, split: Split) -> Record:
        key = _key(split, images=images, descriptor=kind.name, words=kind.words)
        found = store.measure(f"{kind.name}-svm", key, partial(measure, kind, split))
        return found | {"split": split.name}

    for kind in kinds:
        yield kind.name, [partial(run, kind, split) for split in splits]


def hash_rows(store: Store, tasks: Sequence[SplitTask], options: BenchOptions) -> Rows:
    """Linear SVMs on the codes of each method; the hash functions saw training images only."""
    device = options.device
    for row, bits in product(_wanted(options, views=bool(tasks[0].found.views)), options.bits):
        runs = product(tasks, options.seeds)
        yield (
            f"{row.label} ({bits} bits)",
            [partial(best_run, store, task, row, bits, seed, device) for task, seed in runs],
        )


def real_row(store: Store, tasks: Sequence[SplitTask]) -> Rows:
    """A linear SVM on the real-valued features that the codes are made from."""

    def run(task: SplitTask) -> Record:
        return task.measure(store, "real-svm", lambda: task.features, method="real-valued")

    label = f"real-valued features ({tasks[0].found.features.shape[1]})"
    yield label, [partial(run, task) for task in tasks]


def _wanted(options: BenchOptions, views: bool) -> Iterator[HashRow]:
    """The requested rows; views need images, and given settings replace all candidates."""
    for row in select(ROWS, options.methods, "table6"):
        candidates = [one for one in row.candidates if views or not one.views]
        if (given := options.settings.get(row.method)) is not None:
            candidates = [Candidate(given, kind) for kind in sorted({c.views for c in candidates})]
        if candidates:
            yield replace(row, candidates=tuple(candidates))


def best_run(
    store: Store, task: SplitTask, row: HashRow, bits: int, seed: int, device: str
) -> Record:
    """The run of the candidate whose codes are best on the validation images."""

    def codes(candidate: Candidate) -> NDArray[Any]:
        rows = slice(None) if row.transductive else task.split.train
        views = task.found.views if candidate.views else ()
        learned = [task.features[rows], *(l2_normalize(values[rows]) for values in views)]
        model = hasher(row.method, bits, seed, candidate.settings, device)
        return np.asarray(model.fit(np.concatenate(learned)).transform(task.features))

    runs = []
    for candidate in row.candidates_for(bits):
        settings, views = candidate.settings, len(task.found.views) * candidate.views
        key = {"method": row.method, "bits": bits, "seed": seed, "settings": settings}
        key |= {"views": views} if views else {}
        key |= {"transductive": True} if row.transductive else {}
        name = f"{row.method}-{bits}-{seed}-svm"
        run = task.measure(store, name, partial(codes, candidate), **key)
        runs.append(run | {"seed": seed, "settings": str(settings), "views": views})
    return max(runs, key=lambda run: run["validation"])


# -- the command and its report ----------------------------------------------------------------

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
@shared_options("64,256", without=("jobs",))
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
    rows = [*hash_rows(store, tasks, options), *real_row(store, tasks)]
    if with_descriptors and data is not None:
        rows = [*descriptor_rows(store, data, splits), *rows]
    results = []
    with bar("table6", total=sum(len(runs) for _, runs in rows), unit="run") as progress:
        for label, runs in rows:
            progress.set_postfix_str(label)
            results.append(Result(label, []))
            for run in runs:
                results[-1].runs.append(run())
                progress.update()
    _outcome(store, results, tasks, splits_note, adapt).publish(store, options.as_json)


def _flowers(options: BenchOptions) -> tuple[LabelledImages | None, tuple[Split, ...], str]:
    """(data set, splits, a note about the splits)."""
    if options.features is not None and options.data is None:
        splits = seeded_splits(read_features(options.features).labels)
        return None, splits, "three seeded 40/20/20 splits"
    root = options.data_folder("Oxford-17")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DDHWarning)
        splits = flowers17_splits(root)
    said = "; ".join(str(one.message) for one in caught) or "the three official splits"
    if caught:
        click.echo(said, err=True)
    return flowers17(root), splits, said.replace(str(root), "the data folder")


def _tasks(
    options: BenchOptions,
    store: Store,
    data: LabelledImages | None,
    splits: tuple[Split, ...],
    adapt: int | None,
) -> list[SplitTask]:
    """The splits with features of one network or, with `adapt`, of one network per split."""
    if data is None or options.features is not None:
        if adapt is not None:
            raise InputError("--adapt needs the pictures: give --data and leave --features out")
        assert options.features is not None
        found = read_features(options.features)
        if data is not None and len(found) != len(data):
            raise InputError(f"{options.features} has {len(found)} rows, not {len(data)}")
    elif adapt is None:
        found = compute_features(data, store, options, views=VIEWS)
    else:
        tasks = []
        for split in splits:
            learned = learn(data, split.train, options, store, {"epochs": adapt})
            own = replace(options, backbone="auto", weights=str(learned.weights), size=None)
            tasks.append(SplitTask(compute_features(data, store, own, views=VIEWS), split))
        return tasks
    return [SplitTask(found, split) for split in splits]


def _outcome(
    store: Store, results: list[Result], tasks: list[SplitTask], splits_note: str, adapt: int | None
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
