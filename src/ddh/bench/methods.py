"""`ddh bench methods`: every method on the same features and split, and beside faiss."""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.arrays import sgn
from ddh._core.errors import MissingDependency
from ddh._core.output import emit, json_option, quiet_option
from ddh._core.progress import track
from ddh.bench.features import FeatureSet, read_features
from ddh.bench.options import Settings, features_option, numbers_option, set_option
from ddh.bench.results import Record, command_line, table_of
from ddh.bench.retrieval import Task, marked_split
from ddh.bench.timing import timed
from ddh.evaluation import RetrievalSplit, Score, mean_average_precision, over_seeds
from ddh.evaluation.protocol import digest
from ddh.hashers import create, method
from ddh.hashers.registry import MODULES

COLUMNS = {
    "method": "{method}",
    "kind": "{kind}",
    "labels": "{supervised}",
    "mAP": "{mean}",
    "fit s": "{fit seconds:.2f}",
    "CPU s": "{fit CPU seconds:.2f}",
    "encode s": "{encode seconds:.3f}",
    "model KB": "{kilobytes:,.0f}",
}
FAISS_COLUMNS = {
    "method": "{method}",
    "ours": "{mAP:.4f}",
    "faiss": "{faiss mAP:.4f}",
    "difference": "{difference:+.4f} ± {standard error:.4f}",
    "fit CPU s": "{fit CPU seconds:.4f}",
    "faiss fit CPU s": "{faiss fit CPU seconds:.4f}",
}
SUPERVISION = {"none": (False,), "optional": (False, True), "required": (True,)}
FAISS = ("LSH", "PCAH", "ITQ")
HELD_OUT = 1 / 6

Encoder = Callable[[NDArray[Any]], NDArray[np.int8]]


@click.command()
@click.option("--bits", default=32, help="Code length.")
@click.option("--methods", "names", help="Only these, separated by commas. Default: all.")
@features_option
@click.option("--k", default=1000, help="Cut-off of mAP@k.")
@numbers_option("--seeds", "0", "Seeds of the methods.")
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
    seeds: tuple[int, ...],
    settings: Settings,
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
    if against_faiss:
        try:
            import faiss  # noqa: F401
        except ImportError as error:
            message = 'the comparison needs faiss: pip install "ddh[faiss]"'
            raise MissingDependency(message) from error
        rows = [beside(n, task, bits, seeds) for n in track(FAISS, "Methods", unit="method")]
    else:
        rows = [
            measure(name, supervised, task, bits, seeds, settings.get(name, {}))
            for name, supervised in track(chosen_methods(names), "Methods", unit="method")
        ]
    protocol = replace([row.pop("protocol") for row in rows][-1], seeds=seeds)
    table = table_of(
        protocol.title, [_shown(row) for row in rows], FAISS_COLUMNS if against_faiss else COLUMNS
    )
    document = {"command": command_line(), "protocol": protocol.as_dict(), "rows": rows}
    text = f"{table.markdown()}\n{document['command']}\n{protocol.title}: {protocol}"
    emit(document, text, as_json)


def _shown(row: Record) -> Record:
    """A row with its formatted cells."""
    if "kind" not in row:
        return row
    spread = "" if row["deviation"] is None else f" ± {row['deviation']:.3f}"
    cells = {"supervised": "yes" if row["labels"] else "no", "mean": f"{row['mAP']:.4f}{spread}"}
    return row | cells | {"kilobytes": row["model bytes"] / 1024}


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
    query, database = (encode(part) for part in task.pair)
    return mean_average_precision(
        query, database, *task.label_pair, k=task.split.k, protocol=task.protocol
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
    name: str, supervised: bool, task: Task, bits: int, seeds: Iterable[int], settings: Record
) -> Record:
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
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        size = sum(file.stat().st_size for file in (Path(folder) / "model").iterdir())
    clocks = ("fit seconds", "fit CPU seconds", "encode seconds", "encode CPU seconds")
    return {
        "method": name,
        "kind": method(name).kind,
        "labels": supervised,
        "mAP": round(float(mean), 4),
        "deviation": mean.deviation,
        **dict(zip(clocks, np.mean(times, axis=0).round(4).tolist(), strict=True)),
        "model bytes": size,
        "protocol": mean.protocol,
    }


def beside(name: str, task: Task, bits: int, seeds: Iterable[int]) -> Record:
    """Our method and that of faiss: both mAPs, their difference, and fit times."""

    def ours(X: NDArray[np.float32], bits: int, seed: int) -> Encoder:
        settings = {"orthogonal": True} if name == "LSH" else {}  # as faiss has it
        return create(name, bits=bits, random_state=seed, **settings).fit(X).transform

    scores, times = [], []
    for fit in (ours, partial(fit_faiss, name)):
        runs = [timed(fit, task.part("train"), bits, seed) for seed in seeds]
        scores.append([score(task, encode) for encode, _ in runs])
        times.append(min(seconds["cpu"] for _, seconds in runs))
    means = [float(np.mean(values)) for values in scores]
    difference, error = means[0] - means[1], standard_error(*scores)
    return {
        "method": name,
        "mAP": round(means[0], 4),
        "faiss mAP": round(means[1], 4),
        "difference": round(difference, 4),
        "standard error": round(error, 4),
        "within noise": abs(difference) <= 2 * error,
        "fit CPU seconds": round(times[0], 4),
        "faiss fit CPU seconds": round(times[1], 4),
        "protocol": scores[0][0].protocol,
    }


def fit_faiss(name: str, X: NDArray[np.float32], bits: int, seed: int) -> Encoder:
    """A method of faiss: IndexLSH with thresholds at the medians, PCAMatrix or ITQTransform."""
    import faiss

    if name == "LSH":
        model: Any = faiss.IndexLSH(X.shape[1], bits, True, True)
        model.rrot.init(seed + 1)
    elif name == "PCAH":
        model = faiss.PCAMatrix(X.shape[1], bits)
    else:  # learns from at most 10 d rows
        model = faiss.ITQTransform(X.shape[1], bits, True)
        model.itq.seed = seed + 1
    model.train(X)

    def encode(rows: NDArray[Any]) -> NDArray[np.int8]:
        rows = np.ascontiguousarray(rows, np.float32)
        if name != "LSH":
            return sgn(model.apply(rows))
        ones = np.unpackbits(model.sa_encode(rows), axis=1, bitorder="little")[:, :bits]
        return sgn(ones - 0.5)

    return encode


def standard_error(ours: list[Score], theirs: list[Score]) -> float:
    """Of the difference of the means: variance over the queries (paired) and over the seeds."""
    per_query = [np.mean([one.per_query for one in scores], axis=0) for scores in (ours, theirs)]
    paired = per_query[0] - per_query[1]
    variance = paired.var(ddof=1) / len(paired)
    if len(ours) > 1:
        variance += (np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / len(ours)
    return float(np.sqrt(variance))
