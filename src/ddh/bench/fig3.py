"""Figure 3 of the paper: precision-recall curves of unsupervised hashing on CIFAR-10."""

from typing import Any

import click
import numpy as np

from ddh.bench.options import (
    BenchOptions,
    bits_option,
    command_line,
    shared_options,
    whole_numbers,
)
from ddh.bench.paper import TABLE2
from ddh.bench.plots import drawing, style
from ddh.bench.retrieval_table import Cell, RetrievalBench
from ddh.bench.store import Store
from ddh.bench.table2 import ROWS
from ddh.bench.tasks import cifar10_task
from ddh.bench.writing import Outcome, Table
from ddh.evaluation import Protocol

KINDS = {"rank": "by rank, mean over queries", "radius": "by Hamming radius, all pairs pooled"}


@click.command(short_help="Figure 3: precision-recall curves on CIFAR-10.")
@bits_option("16,32,64")
@shared_options
def fig3(bits: str, **shared: Any) -> None:
    """Precision-recall curves of the methods of table 2, by rank and by Hamming radius.

    What `ddh bench table2` has measured with the same options is used again.

    \b
    ddh bench fig3 --data DIR
    """
    options = BenchOptions(**shared)
    store = Store(options.output)
    bench = RetrievalBench(
        name="fig3",
        title="Figure 3: precision and recall",
        paper=TABLE2,
        rows=list(ROWS),
        bits=whole_numbers(bits, "bits"),
        seeds=options.seed_numbers,
        settings=options.settings,
    ).only(options.methods)
    cells = bench.measure(cifar10_task(options, store), store, options.device)
    folder = store.folder("fig3")
    protocol = Protocol.from_dict(cells[0].results[0]["scores"]["expected"]["protocol"])
    said = protocol.but(measure="precision and recall", k=None, denominator=None, bits=0, seeds=())
    outcome = Outcome(
        bench="fig3",
        title=bench.title,
        command=command_line(),
        protocol=[f"{said.title}: {said}", "curves are of the first seed of each method"],
        tables=[_table(cells)],
        records=[record for cell in cells for record in _records(cell)],
        figures=[_draw(folder, cells, one, kind) for kind in KINDS for one in bench.bits],
    )
    outcome.write(folder)
    outcome.show(folder, options.as_json)


def _draw(folder: Any, cells: list[Cell], bits: int, kind: str) -> dict[str, str]:
    name = f"precision-recall-{bits}-{kind}"
    with drawing(folder, name) as axes:
        chosen = [cell for cell in cells if cell.bits == bits]
        for place, cell in enumerate(chosen):
            curve = cell.results[0]["curves"][kind]
            look = style(place, cell.row.label == "DDH")
            axes.plot(curve["recall"], curve["precision"], label=cell.row.label, **look)
        axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1))
        axes.legend(loc="upper right", ncols=2)
    return {"name": name, "title": f"{bits} bits, {KINDS[kind]}"}


def _table(cells: list[Cell]) -> Table:
    """Precision at some recalls, read off the curves by rank."""
    levels = (0.01, 0.05, 0.1, 0.2, 0.5)
    rows = []
    for cell in cells:
        curve = cell.results[0]["curves"]["rank"]
        values = np.interp(levels, curve["recall"], curve["precision"])
        rows.append([cell.row.label, str(cell.bits), *[f"{value:.3f}" for value in values]])
    columns = ["Method", "bits", *[f"at recall {level}" for level in levels]]
    return Table("Precision at some recalls, by rank", columns, rows)


def _records(cell: Cell) -> list[dict[str, Any]]:
    return [
        {
            "row": cell.row.label,
            "bits": cell.bits,
            "seed": cell.seeds[0],
            "by": kind,
            "at": at,
            "precision": precision,
            "recall": recall,
        }
        for kind, curve in cell.results[0]["curves"].items()
        for at, precision, recall in zip(
            curve["at"], curve["precision"], curve["recall"], strict=True
        )
    ]
