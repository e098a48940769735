"""Tables 2 to 5 and Figure 3 of the paper: rows x code lengths x seeds, beside the printed mAP."""

import base64
import io
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image

from ddh._core.labels import shares_label
from ddh._core.progress import bar
from ddh.bench.options import BenchOptions, compose, shared_options
from ddh.bench.plots import drawing, plot_lines, series_of, style
from ddh.bench.results import Outcome, Record, Store, Table, figure
from ddh.bench.retrieval import (
    CUTS,
    Task,
    cifar10_task,
    measure_row,
    measure_vectors,
    multi_label_task,
    protocol_task,
)
from ddh.bench.tables import TABLE2, TABLES, PaperTable, Row
from ddh.evaluation import PROTOCOLS, Protocol
from ddh.images.nus import MOST_FREQUENT


@dataclass(frozen=True)
class Cell:
    """All seeds of one method at one code length."""

    row: Row
    bits: int
    seeds: tuple[int, ...]
    results: list[dict[str, Any]]

    def values(self, score: str) -> list[float]:
        """One value per seed."""
        return [result["scores"][score]["value"] for result in self.results]

    def mean(self, name: str) -> float:
        """Mean of a score or of a time over the seeds."""
        times = name.endswith("_seconds")
        return float(np.mean([r[name] for r in self.results] if times else self.values(name)))


_labelled_option = click.option(
    "--labelled", default=500, help="Labelled training images per class for rows with labels."
)
_protocol_option = click.option(
    "--protocol",
    type=click.Choice(sorted(PROTOCOLS)),
    help="Another data set and split than the paper's; --features then holds all of its images.",
)
MULTI_LABEL = ("list_file", "concepts", "queries", "training")
_multi_label_options = compose(
    click.option(
        "--list",
        "list_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help='Instead of NUS-WIDE: a file of lines "path 0 1 0 ...", paths relative to --data.',
    ),
    click.option("--concepts", default=MOST_FREQUENT, help="Most frequent concepts used."),
    click.option("--queries", default=100, help="Queries per concept."),
    click.option("--training", default=500, help="Training images per concept."),
)


def _command(table: PaperTable) -> click.Command:
    """`ddh bench tableN`."""

    def command(protocol: str | None, labelled: int = 0, **shared: Any) -> None:
        own = {name: shared.pop(name) for name in MULTI_LABEL if name in shared}
        options, store = BenchOptions(**shared), Store(shared["output"])
        rows = [
            replace(row, labelled_per_class=labelled)
            if row.labelled_per_class and labelled
            else row
            for row in table.rows
        ]
        chosen = replace(table, rows=tuple(rows), note=table.note.format(labelled=labelled))
        chosen = chosen.only(options.methods)
        if protocol is not None:
            task = protocol_task(options, store, protocol, table.k)
        else:
            task = multi_label_task(options, store, **own) if own else cifar10_task(options, store)
        run(chosen, task, store, options).publish(store, options.as_json)

    if table.data == "NUS-WIDE":
        command = _multi_label_options(command)
    elif "{labelled}" in table.note:
        command = _labelled_option(command)
    decorated = shared_options(",".join(map(str, table.bits)))(_protocol_option(command))
    return click.command(table.name, short_help=table.short_help, help=table.help)(decorated)


table2, table3, table4, table5 = map(_command, TABLES)


# -- measuring ---------------------------------------------------------------------------------


Job = tuple[Row, int, int]  # row, bits, seed


def measure(table: PaperTable, task: Task, store: Store, options: BenchOptions) -> list[Cell]:
    """All cells of a table; measurements that the store holds cost nothing."""
    seeds = options.seeds
    pairs = product(table.rows, options.bits)
    cells = [Cell(row, bits, seeds if row.stochastic else seeds[:1], []) for row, bits in pairs]
    jobs: list[Job] = [(cell.row, cell.bits, seed) for cell in cells for seed in cell.seeds]
    with bar(table.name, total=len(jobs), unit="run") as progress:
        if options.jobs > 1:
            with _workers(task, store, options) as pool:
                for _ in pool.map(_measure_job, _longest_first(jobs)):
                    progress.update()
        for cell in cells:
            for seed in cell.seeds:
                progress.set_postfix_str(f"{cell.row.label}, {cell.bits} bits, seed {seed}")
                cell.results.append(measure_row(store, task, cell.row, cell.bits, seed, options))
                if options.jobs <= 1:
                    progress.update()
    return cells


def _longest_first(jobs: Sequence[Job]) -> list[Job]:
    """Long codes take longest; a run of them must not be the last."""
    return sorted(jobs, key=lambda job: -job[1])


@contextmanager
def _workers(task: Task, store: Store, options: BenchOptions) -> Iterator[ProcessPoolExecutor]:
    """Processes that hold the task and write their measurements into the store."""
    threads = str(max(1, (os.cpu_count() or 1) // options.jobs))
    changed = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)  # read when a process starts
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            options.jobs, context, initializer=_start_worker, initargs=(task, store, options)
        ) as pool:
            yield pool
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start_worker(*state: Any) -> None:
    global _worker_state
    _worker_state = state


_worker_state: tuple[Any, ...] = ()


def _measure_job(job: Job) -> None:
    task, store, options = _worker_state
    measure_row(store, task, *job, options)


def run(table: PaperTable, task: Task, store: Store, options: BenchOptions) -> Outcome:
    """Measure a table and draw its figures."""
    cells = measure(table, task, store, options)
    vectors = measure_vectors(store, task, options.device)
    folder = store.folder(table.name)
    longest = [cell for cell in cells if cell.bits == max(options.bits)]
    last = cells[-1]
    return Outcome(
        bench=table.name,
        title=table.title,
        protocol=_protocol(cells),
        tables=[paper_table(table, cells, task, vectors), measures_table(cells, task)],
        records=[_record(cell, table) for cell in cells],
        figures=[
            _draw_lengths(folder, cells, table, task),
            _draw_balance(folder, longest),
            _draw_entropy(folder, longest),
        ],
        details={
            "examples": example_pictures(task, last.results[0]["examples"]),
            "examples_of": f"{last.row.label}, {last.bits} bits",
        },
    )


def _protocol(cells: list[Cell]) -> list[str]:
    scores = cells[0].results[0]["scores"]
    protocols = [
        replace(Protocol.from_dict(scores[name]["protocol"]), seeds=(), bits=0)
        for name in ("legacy", "expected")
    ]
    seeds = {cell.row.label: cell.seeds for cell in cells}
    said = "; ".join(f"{label} {', '.join(map(str, own))}" for label, own in seeds.items())
    return [*(f"{protocol.title}: {protocol}" for protocol in protocols), f"seeds: {said}"]


# -- tables ------------------------------------------------------------------------------------


def paper_table(table: PaperTable, cells: list[Cell], task: Task, vectors: dict[str, Any]) -> Table:
    """The paper's value, the legacy value and the tie-aware value per code length."""
    by_row: dict[str, list[Cell]] = {}
    for cell in cells:
        by_row.setdefault(cell.row.label, []).append(cell)
    columns, rows = ["Method"], []
    for own in by_row.values():
        line = [own[0].row.label + (" (labels)" if own[0].row.supervised else "")]
        for cell in own:
            printed = table.printed(cell.row, cell.bits)
            line.append("" if printed is None else f"{printed:.3f}")
            line += [figure(cell.values("legacy")), figure(cell.values("expected"))]
        rows.append(line)
    best = []
    for place, cell in enumerate(next(iter(by_row.values()))):
        columns += [f"{cell.bits} bit, {kind}" for kind in ("paper", "legacy", "expected")]
        means = [own[place].mean("legacy") for own in by_row.values()]
        best.append((int(np.argmax(means)), 3 * place + 2))
    cosine = vectors["scores"]["legacy"]["value"]
    note = (
        "paper: as printed. legacy: ties in a seeded order, AP divided by the relevant items "
        "in the top k, as published tables do. expected: the mean over all orders of ties. "
        "± is the sample standard deviation over seeds. Rows with (labels) learn from class "
        f"labels. Ranking by the cosine of the raw features gives {cosine:.3f} (legacy). "
    )
    printed_on = f"beside the paper's Table {table.number} ({table.data})"
    title = f"{_measure_name(task)} on {task.found.data}, {printed_on}"
    return Table(title, columns, rows, (note + table.note).strip(), best)


def _measure_name(task: Task) -> str:
    return "mAP over the whole ranking" if task.split.k is None else f"mAP@{task.split.k}"


def measures_table(cells: list[Cell], task: Task) -> Table:
    """All other scores, one line per method and code length."""
    first = cells[0].results[0]["scores"]
    titles = {
        "expected, min(R, k)": f"{_measure_name(task)} / min(R, k)",
        "whole": "mAP, whole ranking",
        "precision": f"precision@{first['precision']['protocol']['k']}",
        "recall": f"recall@{first['recall']['protocol']['k']}",
        "radius 2": "precision, radius 2",
    }
    if "ndcg" in first:
        titles["ndcg"] = f"NDCG@{first['ndcg']['protocol']['k']}"
    titles |= {name: f"{name} (legacy)" for cut in CUTS if (name := f"mAP@{cut}") in first}
    rows = []
    for cell in cells:
        unique = np.mean([result["diagnostics"]["unique_ratio"] for result in cell.results])
        scores = [figure(cell.values(name)) for name in titles]
        seconds = [f"{cell.mean(name):.2f}" for name in ("fit_seconds", "encode_seconds")]
        rows.append([cell.row.label, str(cell.bits), *scores, f"{unique:.1%}", *seconds])
    columns = ["Method", "bits", *titles.values(), "distinct codes", "fit s", "encode s"]
    note = "All values are expected values over the orders of ties; times are of this machine."
    return Table("Other measures", columns, rows, note)


def _record(cell: Cell, table: PaperTable) -> Record:
    record: Record = {
        "row": cell.row.label,
        "method": cell.row.method,
        "labels": cell.row.supervised,
        "bits": cell.bits,
        "seeds": " ".join(map(str, cell.seeds)),
        "paper": table.printed(cell.row, cell.bits),
    }
    for name in cell.results[0]["scores"]:
        values = cell.values(name)
        record[name] = cell.mean(name)
        record[f"{name} deviation"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    record["fit seconds"] = cell.mean("fit_seconds")
    record["encode seconds"] = cell.mean("encode_seconds")
    record["settings"] = str(cell.results[0]["settings"])
    return record


# -- figures -----------------------------------------------------------------------------------


def _draw_lengths(folder: Path, cells: list[Cell], table: PaperTable, task: Task) -> dict[str, str]:
    """mAP over the code length: measured as lines, the paper's DDH as crosses."""
    lengths = sorted({cell.bits for cell in cells})
    ddh = TABLES[table.number - 2].rows[-1]  # the paper's, even if its row is left out here
    paper = {bits: value for bits in lengths if (value := table.printed(ddh, bits)) is not None}
    series = series_of((cell.row.label, cell.bits, cell.mean("legacy")) for cell in cells)
    highest = max(*paper.values(), *(cell.mean("legacy") for cell in cells), 0.0)
    axes: dict[str, Any] = {"xlabel": "bits", "ylabel": f"{_measure_name(task)} (legacy)"}
    axes |= {"ylim": (0, 1.4 * highest), "legend": {"loc": "upper left", "ncols": 3}}
    axes |= {"crosses": {"DDH, paper": (list(paper), list(paper.values()))}, "marker": "o"}
    title = "mAP over the code length"
    return plot_lines(folder, "map", title, series, ticks=lengths, xscale="log", **axes)


def _draw_balance(folder: Path, cells: list[Cell]) -> dict[str, str]:
    """How balanced the bits of the longest codes are."""
    bits = range(1, cells[0].bits + 1)
    balance = {c.row.label: np.abs(c.results[0]["diagnostics"]["balance"]) for c in cells}
    series = {label: (bits, np.sort(values)) for label, values in balance.items()}
    axes: dict[str, Any] = {"xlabel": "bit, most balanced first", "ylabel": "|mean of the bit|"}
    axes |= {"ylim": (0, 1), "legend": {"ncols": 2}}
    return plot_lines(folder, "balance", f"Balance of the bits, {len(bits)} bits", series, **axes)


def _draw_entropy(folder: Path, cells: list[Cell]) -> dict[str, str]:
    """Number of distinct codes in the database, and their entropy."""
    names = [cell.row.label for cell in cells]
    shown = [cell.results[0]["diagnostics"] for cell in cells]
    with drawing(folder, "entropy") as axes:
        colours = [style(i, name == "DDH")["color"] for i, name in enumerate(names)]
        bars = axes.barh(names, [one["code_entropy"] for one in shown], 0.62, color=colours)
        texts = [f"{one['unique_ratio']:.0%} distinct" for one in shown]
        axes.bar_label(bars, texts, padding=4, fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.3)
        axes.set(xlabel="entropy of the database's codes (bits)")
    return {"name": "entropy", "title": f"Distinct codes, {cells[0].bits} bits"}


def example_pictures(task: Task, examples: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Queries with their nearest images as data URLs, and whether each is right.

    Empty if there are no images (ready features).
    """
    images, labels = task.found.images, task.found.labels
    if images is None:
        return []
    return [
        {
            "query": _picture_url(images.read(query)),
            "found": [_picture_url(images.read(row)) for row in nearest],
            "right": shares_label(labels[[query]], labels[nearest])[0].tolist(),
        }
        for query, nearest in zip(examples["query"], examples["nearest"], strict=True)
    ]


def _picture_url(image: Image.Image) -> str:
    """A small JPEG as a data URL, one to four kilobytes."""
    small = image.convert("RGB")
    small.thumbnail((88, 88), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=78, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()


CURVES = {"rank": "by rank, mean over queries", "radius": "by Hamming radius, pooled over queries"}


@click.command(short_help="Figure 3: precision-recall curves on CIFAR-10.")
@shared_options("16,32,64")
def fig3(**shared: Any) -> None:
    """Precision-recall curves of the methods of Table 2, by rank and by Hamming radius.

    Reuses the measurements of `ddh bench table2` with the same options.

    \b
    ddh bench fig3 --data DIR
    """
    options, store = BenchOptions(**shared), Store(shared["output"])
    table = replace(TABLE2, name="fig3").only(options.methods)
    cells = measure(table, cifar10_task(options, store), store, options)
    protocol = replace(
        Protocol.from_dict(cells[0].results[0]["scores"]["expected"]["protocol"]),
        measure="precision and recall",
        k=None,
        denominator=None,
        bits=0,
        seeds=(),
    )
    levels = (0.01, 0.05, 0.1, 0.2, 0.5)
    rows, records = [], []
    for cell in cells:
        curves = cell.results[0]["curves"]
        values = np.interp(levels, curves["rank"]["recall"], curves["rank"]["precision"])
        rows.append([cell.row.label, str(cell.bits), *[f"{value:.3f}" for value in values]])
        for kind, curve in curves.items():
            first = {"row": cell.row.label, "bits": cell.bits, "seed": cell.seeds[0], "by": kind}
            points = zip(*curve.values(), strict=True)
            records += [first | dict(zip(curve, point, strict=True)) for point in points]
    columns = ["Method", "bits", *[f"at recall {level}" for level in levels]]
    Outcome(
        bench="fig3",
        title="Figure 3: precision and recall",
        protocol=[f"{protocol.title}: {protocol}", "curves are of the first seed of each method"],
        tables=[Table("Precision at some recalls, by rank", columns, rows)],
        records=records,
        figures=[
            _draw_curves(store.folder("fig3"), cells, bits, kind)
            for kind in CURVES
            for bits in options.bits
        ],
    ).publish(store, options.as_json)


def _draw_curves(folder: Path, cells: list[Cell], bits: int, kind: str) -> dict[str, str]:
    curves = {c.row.label: c.results[0]["curves"][kind] for c in cells if c.bits == bits}
    series = {label: (curve["recall"], curve["precision"]) for label, curve in curves.items()}
    axes: dict[str, Any] = {"xlabel": "recall", "ylabel": "precision", "xlim": (0, 1)}
    axes |= {"ylim": (0, 1), "legend": {"loc": "upper right", "ncols": 2}}
    title = f"{bits} bits, {CURVES[kind]}"
    return plot_lines(folder, f"precision-recall-{bits}-{kind}", title, series, **axes)
