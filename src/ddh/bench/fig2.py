"""Figure 2 of the paper: precision of the constructed labels over K, first and second stage."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.progress import track
from ddh.bench.options import BenchOptions, command_line, shared_options, whole_numbers
from ddh.bench.plots import drawing, style
from ddh.bench.retrieval_measure import Task
from ddh.bench.store import Store
from ddh.bench.tasks import cifar10_task
from ddh.bench.writing import Outcome, Table
from ddh.evaluation.inputs import Relevance
from ddh.neighbours import expand, knn, statistics
from ddh.neighbours.statistics import graph_of
from ddh.train.device import choose

OVER = {"k1": "K1", "degree": "labels of an image (mean)"}


@dataclass(frozen=True)
class Point:
    """Quality of one set of labels: pairs that are right, and how many there are an image."""

    stage: str
    k1: int
    k2: int | None
    precision: float
    recall: float
    degree: float


@click.command(short_help="Figure 2: precision of the pairwise labels.")
@click.option(
    "--k",
    "sizes",
    default="5,10,15,20,30,50,75,100",
    show_default=True,
    help="Values of K1.",
)
@click.option("--k2", "expansions", default="3,6,15", show_default=True, help="Values of K2.")
@shared_options
def fig2(sizes: str, expansions: str, **shared: Any) -> None:
    """Precision of the labels that DDH makes itself, against the true classes.

    First stage: image j is among the K1 nearest of image i. Second stage: Alg. 1 with expansion.
    Both are drawn over K and, for a fair comparison, over the number of labels an image gets.

    \b
    ddh bench fig2 --data DIR
    """
    options = BenchOptions(**shared)
    store = Store(options.output)
    task = cifar10_task(options, store)
    points = measure_labels(
        store,
        task,
        whole_numbers(sizes, "values of K1"),
        whole_numbers(expansions, "values of K2"),
        options.device,
    )
    folder = store.folder("fig2")
    images = len(task.split.train)
    outcome = Outcome(
        bench="fig2",
        title="Figure 2: precision of the constructed labels",
        command=command_line(),
        protocol=[
            f"data {task.found.data}, split {task.split.title}; {images:,} training images; cosine "
            f"of {task.found.backbone}, supervised by {task.found.supervision}; an ordered pair is "
            "right when both images share a class"
        ],
        tables=[_table(points)],
        records=[vars(point) for point in points],
        figures=[_draw(folder, points, over) for over in OVER],
    )
    outcome.write(folder)
    outcome.show(folder, options.as_json)


def measure_labels(
    store: Store, task: Task, sizes: tuple[int, ...], expansions: tuple[int, ...], device: str
) -> list[Point]:
    """Points of both stages; the neighbour lists are made once, for the largest K1."""
    features, labels = task.parts["train"], task.labels("train")
    sizes = tuple(size for size in sorted(set(sizes)) if size < len(labels))
    # Ordered pairs of different images that share a label: what recall is a share of.
    possible = Relevance.of(labels, labels, len(labels), len(labels)).total() - len(labels)
    lists: list[NDArray[np.int32]] = []

    def measure(k1: int, k2: int | None) -> dict[str, Any]:
        if not lists:
            lists.append(knn(features, max(sizes), device=choose(device)))
        chosen = lists[0][:, :k1]
        graph = graph_of(chosen) if k2 is None else expand(chosen, k2, features)
        precision = statistics(graph, labels).precision or 0.0
        recall = precision * graph.nnz / max(possible, 1)
        return {"precision": precision, "recall": recall, "degree": graph.nnz / len(labels)}

    points = []
    jobs = [(k1, k2) for k2 in (None, *expansions) for k1 in sizes]
    for k1, k2 in track(jobs, "Labels", unit="setting"):
        key = {**task.key, "labels of": "Alg. 1", "k1": k1, "k2": k2}
        found = store.measure(f"labels-{k1}-{k2 or 0}", key, partial(measure, k1, k2))
        stage = "first stage" if k2 is None else f"second stage, K2 = {k2}"
        points.append(Point(stage, k1, k2, **found))
    return points


def _table(points: list[Point]) -> Table:
    stages = list(dict.fromkeys(point.stage for point in points))
    sizes = sorted({point.k1 for point in points})
    columns = ["K1"]
    for stage in stages:
        columns += [f"{stage}: precision", "labels an image"]
    found = {(point.stage, point.k1): point for point in points}
    rows = []
    for size in sizes:
        line = [str(size)]
        for stage in stages:
            point = found[stage, size]
            line += [f"{point.precision:.3f}", f"{point.degree:.1f}"]
        rows.append(line)
    note = "The paper shows this as a drawing only; its labels come from a ResNet's features."
    return Table("Precision of the pairwise labels", columns, rows, note)


def _draw(folder: Path, points: list[Point], over: str) -> dict[str, str]:
    """Precision over K1, or over the number of labels that an image gets."""
    stages = list(dict.fromkeys(point.stage for point in points))
    name = f"labels-over-{over}"
    with drawing(folder, name) as axes:
        for place, stage in enumerate(stages):
            chosen = [point for point in points if point.stage == stage]
            look = {**style(place, "K2 = 6" in stage), "marker": "o", "ms": 3.5}
            places = [getattr(point, over) for point in chosen]
            axes.plot(places, [point.precision for point in chosen], label=stage, **look)
        if over == "degree":
            axes.set_xscale("log")
        axes.set(xlabel=OVER[over], ylabel="precision of the labels")
        axes.legend()
    return {"name": name, "title": f"Precision of the labels over {OVER[over]}"}
