"""Figure 2 of the paper: precision of the constructed labels over K, first and second stage."""

from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from ddh._core.progress import track
from ddh.bench.options import BenchOptions, numbers_option, shared_options
from ddh.bench.plots import plot_lines, series_of
from ddh.bench.results import Outcome, Record, Store, Table
from ddh.bench.retrieval import Task, cifar10_task

SPECIAL = "second stage, K2 = 6"
OVER = {"k1": "K1", "degree": "labels per image (mean)"}


@click.command(short_help="Figure 2: precision of the pairwise labels.")
@numbers_option("--k", "5,10,15,20,30,50,75,100", "Values of K1.")
@numbers_option("--k2", "3,6,15", "Values of K2.")
@shared_options(without=("methods", "jobs"))
def fig2(k: tuple[int, ...], k2: tuple[int, ...], **shared: Any) -> None:
    """Precision of DDH's pairwise labels, measured against the true classes.

    First stage: image j is among the K1 nearest neighbours of image i. Second stage: Algorithm 1
    with expansion. Both are drawn over K1 and, for a fair comparison, over the number of labels
    per image.

    \b
    ddh bench fig2 --data DIR
    """
    options, store = BenchOptions(**shared), Store(shared["output"])
    task = cifar10_task(options, store)
    points = measure_labels(store, task, k, k2, options.device)
    Outcome(
        bench="fig2",
        title="Figure 2: precision of the constructed labels",
        protocol=[
            f"data {task.found.data}, split {task.split.title}; {len(task.split.train):,} training "
            f"images; cosine of {task.found.backbone}, supervised by {task.found.supervision}; an "
            "ordered pair is right when both images share a class"
        ],
        tables=[_table(points)],
        records=points,
        figures=[_draw(store.folder("fig2"), points, over) for over in OVER],
    ).publish(store, options.as_json)


def measure_labels(
    store: Store, task: Task, sizes: tuple[int, ...], expansions: tuple[int, ...], device: str
) -> list[Record]:
    """Points of both stages, from one computation of the neighbour lists for the largest K1."""
    from ddh.neighbours import expand, knn, label_groups, statistics
    from ddh.neighbours.statistics import graph_of
    from ddh.train.device import choose

    features, labels = task.part("train"), task.labels("train")
    sizes = tuple(size for size in sorted(set(sizes)) if size < len(labels))
    # Ordered pairs of different images that share a label: the denominator of recall.
    possible = int(label_groups(labels).degree().sum())
    lists = cache(lambda: knn(features, max(sizes), device=choose(device)))

    def measure(k1: int, k2: int | None) -> dict[str, Any]:
        chosen = lists()[:, :k1]
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
        points.append({"stage": stage, "k1": k1, "k2": k2, **found})
    return points


def _table(points: list[Record]) -> Table:
    stages = dict.fromkeys(point["stage"] for point in points)
    lines: dict[int, list[str]] = {}
    for point in points:
        line = lines.setdefault(point["k1"], [str(point["k1"])])
        line += [f"{point['precision']:.3f}", f"{point['degree']:.1f}"]
    columns = ["K1", *(name for s in stages for name in (f"{s}: precision", "labels per image"))]
    note = "The paper shows this as a plot only; its labels come from a ResNet's features."
    return Table("Precision of the pairwise labels", columns, list(lines.values()), note)


def _draw(folder: Path, points: list[Record], over: str) -> dict[str, str]:
    """Precision over K1, or over the number of labels per image."""
    series = series_of((point["stage"], point[over], point["precision"]) for point in points)
    axes: dict[str, Any] = {"xlabel": OVER[over], "ylabel": "precision of the labels"}
    axes |= {"xscale": "log" if over == "degree" else "linear", "special": SPECIAL, "marker": "o"}
    title = f"Precision of the labels over {OVER[over]}"
    return plot_lines(folder, f"labels-over-{over}", title, series, **axes)
