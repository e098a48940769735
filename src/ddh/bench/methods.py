"""`ddh bench methods`: every method on the same features and split, and beside faiss."""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import MissingDependency
from ddh._core.output import emit, json_option, quiet_option
from ddh._core.progress import track
from ddh.bench.datasets import marked_split
from ddh.bench.features import FeatureSet, read_features
from ddh.bench.options import features_option, set_option, settings_of, whole_numbers
from ddh.bench.results import Record, command_line
from ddh.bench.retrieval import Task
from ddh.bench.timing import timed
from ddh.evaluation import RetrievalSplit, Score, mean_average_precision, over_seeds
from ddh.evaluation.protocol import digest
from ddh.hashers import create, method
from ddh.hashers.registry import MODULES

HEAD = (
    f"{'method':<17}{'kind':<19}{'labels':<8}{'mAP':>7}{'':<8}{'fit s':>9}{'CPU s':>9}"
    f"{'encode s':>10}{'model':>12}"
)
SUPERVISION = {"none": (False,), "optional": (False, True), "required": (True,)}
HELD_OUT = 1 / 6

Encoder = Callable[[NDArray[Any]], NDArray[np.int8]]


@click.command()
@click.option("--bits", default=32, show_default=True, help="Code length.")
@click.option("--methods", "names", help="Only these, separated by commas. Default: all.")
@features_option
@click.option("--k", default=1000, show_default=True, help="Cut-off of mAP@k.")
@click.option("--seeds", default="0", show_default=True, help="Seeds of the methods.")
@set_option
@click.option(
    "--against-faiss", is_flag=True, help="Compare LSH, PCAH and ITQ with those of faiss instead."
)
@quiet_option
@json_option
def methods(
    bits: int,
    names: str | None,
    features: Path | None,
    k: int,
    seeds: str,
    changes: tuple[str, ...],
    against_faiss: bool,
    as_json: bool,
) -> None:
    """mAP, fit and encoding time, and model size of every method, on held-out queries.

    Without --features, the methods run on scikit-learn's digits: a sixth of them, stratified by
    class, are queries; the others are database and training set.

    \b
    ddh bench methods
    ddh bench methods --methods ITQ,KSH,DDH --bits 64 --seeds 0,1,2
    ddh bench methods --against-faiss --features cifar10.npz
    """
    task = task_of(read_features(features) if features else digits(), k)
    numbers = whole_numbers(seeds, "seeds")
    say = (lambda line: None) if as_json else click.echo
    if against_faiss:
        try:
            from ddh.bench.faiss_methods import compare, comparison_table
        except ImportError as error:
            raise MissingDependency(
                '--against-faiss needs faiss: pip install "ddh[faiss]"'
            ) from error
        rows, protocol = compare(task, bits, numbers)
        say(comparison_table(rows))
    else:
        say(HEAD)
        rows, settings = [], settings_of(changes)
        for name, supervised in track(chosen_methods(names), "Methods", unit="method"):
            row, mean = measure(name, supervised, task, bits, numbers, settings.get(name, {}))
            rows.append(row)
            protocol = mean.protocol
            say(_line(row))
    protocol = replace(protocol, seeds=numbers)
    document = {"command": command_line(), "protocol": protocol.as_dict(), "rows": rows}
    emit(document, f"\n{document['command']}\n{protocol.title}: {protocol}", as_json)


def digits() -> FeatureSet:
    """The 8 x 8 pixels of scikit-learn's digits as features."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    features = bunch.data.astype(np.float32)
    return FeatureSet(features, bunch.target, "digits", "pixels", "nothing", digest(features))


def task_of(found: FeatureSet, k: int) -> Task:
    """The marked query rows, or else a stratified sixth of all rows, against the others."""
    if found.query is not None:
        return Task(found, marked_split(found.query, k), normalise=False)
    from sklearn.model_selection import train_test_split

    classes = found.labels if found.labels.ndim == 1 else None
    others, query = train_test_split(
        np.arange(len(found)), test_size=HELD_OUT, random_state=0, stratify=classes
    )
    others = np.sort(others)
    split = RetrievalSplit("a sixth held out", np.sort(query), others, others, min(k, len(others)))
    return Task(found, split, normalise=False)


def score(task: Task, encode: Encoder) -> Score:
    """mAP of the codes that `encode` gives."""
    return mean_average_precision(
        encode(task.part("query")),
        encode(task.part("database")),
        task.labels("query"),
        task.labels("database"),
        k=task.split.k,
        protocol=task.protocol,
    )


def chosen_methods(names: str | None) -> list[tuple[str, bool]]:
    """(name, supervised) of the named methods or of all, in the order of the registry.

    A method with optional labels is measured without and with them.
    """
    wanted = set(MODULES)
    if names is not None:
        wanted = {method(name.strip()).__name__ for name in names.split(",")}
    return [
        (name, supervised)
        for name in MODULES
        if name in wanted
        for supervised in SUPERVISION[method(name).labels]
    ]


def measure(
    name: str,
    supervised: bool,
    task: Task,
    bits: int,
    seeds: Iterable[int],
    settings: dict[str, Any],
) -> tuple[Record, Score]:
    """Fit with each seed, encode, score; times are means over the seeds."""
    scores, times = [], []
    X, y = task.part("train"), task.labels("train") if supervised else None
    for seed in seeds:
        model = create(name, bits=bits, random_state=seed, **settings)
        _, fit = timed(model.fit, X, y)
        _, encoding = timed(model.encode, X)
        times.append([fit["wall"], fit["cpu"], encoding["wall"], encoding["cpu"]])
        scores.append(score(task, model.transform))
    mean = over_seeds(scores)
    seconds = [round(float(value), 4) for value in np.mean(times, axis=0)]
    clocks = ("fit seconds", "fit CPU seconds", "encode seconds", "encode CPU seconds")
    row = {
        "method": name,
        "kind": method(name).kind,
        "labels": supervised,
        "mAP": round(float(mean), 4),
        "deviation": mean.deviation,
        **dict(zip(clocks, seconds, strict=True)),
        "model bytes": _model_bytes(model),
    }
    return row, mean


def _model_bytes(model: Any) -> int:
    """Size of the saved model."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return sum(file.stat().st_size for file in (Path(folder) / "model").iterdir())


def _line(row: Record) -> str:
    spread = "" if row["deviation"] is None else f" +-{row['deviation']:.3f}"
    return (
        f"{row['method']:<17}{row['kind']:<19}{'yes' if row['labels'] else 'no':<8}"
        f"{row['mAP']:>7.4f}{spread:<8}{row['fit seconds']:>9.2f}{row['fit CPU seconds']:>9.2f}"
        f"{row['encode seconds']:>10.3f}{row['model bytes'] / 1024:>9,.0f} KB"
    )
