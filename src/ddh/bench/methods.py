"""`ddh bench methods`: every method on the same features, split and measure, and against faiss."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np

from ddh._core.output import emit, json_option, quiet_option
from ddh._core.progress import track
from ddh.bench.faiss_methods import compare, comparison_table
from ddh.bench.features import read_features
from ddh.bench.method_task import Task, digits
from ddh.bench.options import command_line, settings_of, whole_numbers
from ddh.bench.timing import timed
from ddh.evaluation import over_seeds
from ddh.hashers import create, method
from ddh.hashers.registry import MODULES

HEAD = (
    f"{'method':<17}{'kind':<19}{'labels':<8}{'mAP':>7}{'':<8}{'fit s':>9}{'CPU s':>9}"
    f"{'encode s':>10}{'model':>12}"
)
WAYS = {"none": (False,), "optional": (False, True), "required": (True,)}


@click.command()
@click.option("--bits", default=32, show_default=True, help="Code length.")
@click.option("--methods", "names", help="Only these, separated by commas. Default: all.")
@click.option(
    "--features",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Ready features: an .npz with features, labels, and query (which rows ask). "
    "Default: the digits of scikit-learn.",
)
@click.option("--k", default=1000, show_default=True, help="mAP of the k nearest.")
@click.option("--seeds", default="0", show_default=True, help="Seeds of the methods.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="METHOD.NAME=VALUE",
    help="A setting of a method, for example FastH.trees=50. May be repeated.",
)
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
    """mAP, seconds to fit and to encode, and model size of every method, on held-out queries.

    The digits: a sixth of them, drawn evenly over the classes, asks; all others are searched and
    learnt from.

    \b
    ddh bench methods
    ddh bench methods --methods ITQ,KSH,DDH --bits 64 --seeds 0,1,2
    ddh bench methods --against-faiss --features cifar10.npz
    """
    task = Task.of(read_features(features) if features else digits(), bits, k)
    numbers = whole_numbers(seeds, "seeds")
    say = (lambda line: None) if as_json else click.echo
    if against_faiss:
        rows = compare(task, numbers)
        say(comparison_table(rows))
    else:
        say(HEAD)
        rows = []
        for name, labelled in track(chosen_ways(names), "Methods", unit="method"):
            rows.append(measure(name, labelled, task, numbers, settings_of(changes).get(name, {})))
            say(_line(rows[-1]))
    protocol = task.protocol.but(seeds=numbers)
    document = {"command": command_line(), "protocol": protocol.as_dict(), "rows": rows}
    emit(document, f"\n{document['command']}\n{protocol.title}: {protocol}", as_json)


def chosen_ways(names: str | None) -> list[tuple[str, bool]]:
    """(name, with labels?) in the order of the registry; all methods where none are named.

    A method that takes labels if given is measured both ways.
    """
    wanted = set(MODULES)
    if names is not None:
        wanted = {method(name.strip()).__name__ for name in names.split(",")}
    return [
        (name, labelled)
        for name in MODULES
        if name in wanted
        for labelled in WAYS[method(name).labels]
    ]


def measure(
    name: str, labelled: bool, task: Task, seeds: Iterable[int], settings: dict[str, Any]
) -> dict[str, Any]:
    """Fit with each seed, encode, score; times are means over the seeds."""
    scores, fits, encodings = [], [], []
    for seed in seeds:
        model = create(name, bits=task.bits, random_state=seed, **settings)
        _, fit = timed(model.fit, task.database, task.database_labels if labelled else None)
        _, encoding = timed(model.encode, task.database)
        scores.append(task.score(model.transform))
        fits.append(fit)
        encodings.append(encoding)
    score = over_seeds(scores)
    return {
        "method": name,
        "kind": method(name).kind,
        "labels": labelled,
        "mAP": round(float(score), 4),
        "deviation": score.deviation,
        "fit seconds": mean_of(fits, "wall"),
        "fit CPU seconds": mean_of(fits, "cpu"),
        "encode seconds": mean_of(encodings, "wall"),
        "encode CPU seconds": mean_of(encodings, "cpu"),
        "model bytes": model_bytes(model),
    }


def mean_of(times: list[dict[str, float]], clock: str) -> float:
    """Mean seconds of one clock."""
    return round(float(np.mean([entry[clock] for entry in times])), 4)


def model_bytes(model: Any) -> int:
    """Size of the saved model."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return sum(file.stat().st_size for file in (Path(folder) / "model").iterdir())


def _line(row: dict[str, Any]) -> str:
    spread = "" if row["deviation"] is None else f" +-{row['deviation']:.3f}"
    return (
        f"{row['method']:<17}{row['kind']:<19}{'yes' if row['labels'] else 'no':<8}"
        f"{row['mAP']:>7.4f}{spread:<8}{row['fit seconds']:>9.2f}{row['fit CPU seconds']:>9.2f}"
        f"{row['encode seconds']:>10.3f}{row['model bytes'] / 1024:>9,.0f} KB"
    )
