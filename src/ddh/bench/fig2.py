"""Figure 2 of the paper: precision of the constructed labels over K, first and second stage."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ddh.bench.options import BenchOptions, command_line, shared_options, whole_numbers
from ddh.bench.plots import drawing, style
from ddh.bench.retrieval_measure import Task
from ddh.bench.store import Store
from ddh.bench.tasks import cifar10_task
from ddh.bench.writing import Outcome, Table
from ddh.evaluation.inputs import Relevance
from ddh.neighbours import expand, knn
from ddh.progress import track

PAIRS = 1 << 20
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
        store, task, whole_numbers(sizes, "values of K1"), whole_numbers(expansions, "values of K2")
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
    store: Store, task: Task, sizes: tuple[int, ...], expansions: tuple[int, ...]
) -> list[Point]:
    """Points of both stages; the neighbour lists are made once, for the largest K1."""
    features, labels = task.parts["train"], task.labels("train")
    relevance = Relevance.of(labels, labels, len(labels), len(labels))
    sizes = tuple(size for size in sorted(set(sizes)) if size < len(labels))
    lists: list[NDArray[np.int32]] = []

    def point(k1: int, k2: int | None) -> dict[str, Any]:
        if not lists:
            lists.append(knn(features, max(sizes)))
        chosen = lists[0][:, :k1]
        graph = _lists_as_graph(chosen) if k2 is None else expand(chosen, k2, features)
        return _quality(graph, relevance)

    points = []
    jobs = [(k1, k2) for k2 in (None, *expansions) for k1 in sizes]
    for k1, k2 in track(jobs, "Labels", unit="setting"):
        key = {**task.key, "labels of": "Alg. 1", "k1": k1, "k2": k2}
        found = store.measure(f"labels-{k1}-{k2 or 0}", key, lambda k1=k1, k2=k2: point(k1, k2))  # type: ignore[misc]
        stage = "first stage" if k2 is None else f"second stage, K2 = {k2}"
        points.append(Point(stage, k1, k2, **found))
    return points


def _lists_as_graph(lists: NDArray[np.int32]) -> sparse.csr_array:
    images, k1 = lists.shape
    starts = np.arange(0, lists.size + 1, k1)
    return sparse.csr_array((np.ones(lists.size, np.int8), lists.ravel(), starts), (images, images))


def _quality(graph: sparse.csr_array, relevance: Relevance) -> dict[str, float]:
    """Precision, recall and mean number of labels of the pairs in a graph, in blocks of pairs."""
    images, right = graph.shape[0], 0
    owner = np.repeat(np.arange(images, dtype=np.int32), np.diff(graph.indptr))
    for start in range(0, graph.nnz, PAIRS):
        part = slice(start, start + PAIRS)
        right += relevance.count_pairs(owner[part], graph.indices[part])
    possible = relevance.total() - images
    return {
        "precision": right / max(graph.nnz, 1),
        "recall": right / max(possible, 1),
        "degree": graph.nnz / images,
    }


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
