"""Figure 3 of the paper: precision-recall curves of unsupervised hashing on CIFAR-10."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from ddh.bench.datasets import cifar10_task
from ddh.bench.options import BenchOptions, shared_options
from ddh.bench.plots import drawing, style
from ddh.bench.results import Outcome, Record, Store, Table
from ddh.bench.retrieval_table import Cell, measure
from ddh.bench.tables import TABLE2
from ddh.evaluation import Protocol

KINDS = {"rank": "by rank, mean over queries", "radius": "by Hamming radius, pooled over queries"}


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
    folder = store.folder("fig3")
    protocol = replace(
        Protocol.from_dict(cells[0].results[0]["scores"]["expected"]["protocol"]),
        measure="precision and recall",
        k=None,
        denominator=None,
        bits=0,
        seeds=(),
    )
    Outcome(
        bench="fig3",
        title="Figure 3: precision and recall",
        protocol=[f"{protocol.title}: {protocol}", "curves are of the first seed of each method"],
        tables=[_table(cells)],
        records=[record for cell in cells for record in _records(cell)],
        figures=[_draw(folder, cells, one, kind) for kind in KINDS for one in options.bits],
    ).publish(store, options.as_json)


def _draw(folder: Path, cells: list[Cell], bits: int, kind: str) -> dict[str, str]:
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
    """Precision at some recalls, interpolated from the curves by rank."""
    levels = (0.01, 0.05, 0.1, 0.2, 0.5)
    rows = []
    for cell in cells:
        curve = cell.results[0]["curves"]["rank"]
        values = np.interp(levels, curve["recall"], curve["precision"])
        rows.append([cell.row.label, str(cell.bits), *[f"{value:.3f}" for value in values]])
    columns = ["Method", "bits", *[f"at recall {level}" for level in levels]]
    return Table("Precision at some recalls, by rank", columns, rows)


def _records(cell: Cell) -> list[Record]:
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
