"""`ddh bench recall`: what codes of 8, 16 and 32 bytes keep of the order of the float features.

Beside mAP by label: R, the share of the ten nearest neighbours by float cosine among the first 100
by the code. Ordering those 100 by the float features would put exactly these neighbours first, so
R is also the recall@10 after re-ranking 100.
"""

from itertools import product
from typing import Any

import click

from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh.bench.options import BenchOptions, numbers_option, shared_options
from ddh.bench.recall_data import COLLECTIONS, collections, task_of
from ddh.bench.recall_measures import Problem, measure
from ddh.bench.recall_tables import Cell, draw, protocol_lines, record_of, table_of
from ddh.bench.results import Outcome, Store
from ddh.bench.retrieval import accelerator, measure_vectors
from ddh.bench.tables import Row, select
from ddh.bench.vector_quantizers import RECIPES

ROWS = (
    Row("DDH", "DDH"),
    Row("ITQ", "ITQ"),
    Row("LSH", "LSH"),
    Row("PQ", "PQ", stochastic=False),
    Row("OPQ + PQ", "OPQ", stochastic=False),
    Row("RaBitQ", "RaBitQ", stochastic=False),
    Row("scalar quantisation", "SQ", stochastic=False),
)


@click.command(short_help="Recall of true neighbours and mAP at 8, 16 and 32 bytes.")
@numbers_option("--bytes", "8,16,32", "Sizes of the codes.")
@click.option(
    "--sets",
    help="Only these collections, separated by commas: "
    f"{', '.join(one.name for one in COLLECTIONS)}.  [default: all, or those of --features]",
)
@shared_options(
    without=("jobs",),
    features=click.option(
        "--features",
        multiple=True,
        metavar="[SET=]FILE",
        help="Precomputed features of a set, or of your own images: an .npz file with features, "
        "labels and query (1 for query rows; a set brings its own split). May be repeated.",
    ),
)
def recall(
    bytes: tuple[int, ...], sets: str | None, features: tuple[str, ...], **shared: Any
) -> None:
    """Rank by codes of the same size and compare with the ranking by float features.

    mAP by label, recall@10 and R (the share of the ten nearest neighbours by float cosine among
    the first 100) of DDH, ITQ and LSH and, where faiss is installed, of its quantisers: ranked
    directly (the query is known by its code alone) and asymmetrically (real-valued query).

    \b
    ddh bench recall --data DIR
    ddh bench recall --data DIR --sets coco17,oxford17 --methods DDH,ITQ
    ddh bench recall --features coco17=coco.npz --features mine.npz
    """
    from ddh.train.graphs import shared_graphs

    options, store = BenchOptions(**shared), Store(shared["output"])
    rows = select(ROWS, options.methods, "recall")
    left_out = "" if _has_faiss() else _leave_out_quantizers(rows)
    cells, floats = [], {}
    for collection, file in collections(sets, features):
        problem = Problem(task_of(collection, file, options, store), accelerator(options.device))
        graphs: dict[Any, Any] = {}
        for row, size in track(list(product(rows, bytes)), collection.title, unit="cell"):
            seeds = options.seeds if row.stochastic else options.seeds[:1]
            with shared_graphs(graphs):
                results = [measure(store, problem, row, size, seed, options) for seed in seeds]
            cell = Cell(collection, row, size, results)
            cells += [cell, *cell.reordered()]
        floats[collection] = measure_vectors(store, problem.task, options.device)
    folder = store.folder("recall")
    chosen = list(floats)
    Outcome(
        bench="recall",
        title="Recall of true neighbours by codes of equal size",
        protocol=[line for one in chosen for line in protocol_lines(one, cells)],
        tables=[table_of(one, cells, floats[one], left_out) for one in chosen],
        records=[record_of(cell) for cell in cells],
        figures=[
            draw(folder, one, cells, floats[one], name) for one in chosen for name in ("mAP", "R")
        ],
    ).publish(store, options.as_json)


def _has_faiss() -> bool:
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


def _leave_out_quantizers(rows: list[Row]) -> str:
    """Remove the rows that need faiss, say so, and give the note of the tables."""
    labels = [row.label for row in rows if row.method in RECIPES]
    if not labels:
        return ""
    note = f'{", ".join(labels)} left out: they need faiss, pip install "ddh[faiss]".'
    rows[:] = [row for row in rows if row.method not in RECIPES]
    if not rows:
        raise InputError(note)
    click.echo(note, err=True)
    return f" {note}"
