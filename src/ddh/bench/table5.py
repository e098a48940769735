"""Table 5 of the paper: deep supervised hashing on NUS-WIDE, mAP@5000 at 16 to 48 bits."""

from pathlib import Path
from typing import Any

import click

from ddh.bench.multi_label_options import multi_label_options
from ddh.bench.options import BenchOptions, bits_option, shared_options, whole_numbers
from ddh.bench.paper import TABLE5
from ddh.bench.retrieval_measure import Row
from ddh.bench.retrieval_table import RetrievalBench
from ddh.bench.store import Store
from ddh.bench.tasks import multi_label_task

# DDH's neighbourhood comes from the labels here (the paper, end of 3.2).
ROWS = [
    Row("DRSCH", "DRSCH", supervised=True),
    Row("DSCH", "DSCH", supervised=True),
    Row("DSRH", "DSRH", supervised=True),
    Row("DDH", "DDH", supervised=True),
]


@click.command(short_help="Table 5: deep supervised hashing on NUS-WIDE.")
@bits_option("16,24,32,48")
@multi_label_options
@shared_options
def table5(
    bits: str,
    list_file: Path | None,
    concepts: int,
    queries: int,
    training: int,
    **shared: Any,
) -> None:
    """Deep methods that learn from labels, on NUS-WIDE or any multi-label list: mAP@5000.

    \b
    ddh bench table5 --data NUS-WIDE
    ddh bench table5 --list database.txt --data PICTURES
    """
    options = BenchOptions(**shared)
    store = Store(options.output)
    bench = RetrievalBench(
        name="table5",
        title="Table 5: deep supervised hashing",
        paper=TABLE5,
        rows=list(ROWS),
        bits=whole_numbers(bits, "bits"),
        seeds=options.seed_numbers,
        settings=options.settings,
    ).only(options.methods)
    task = multi_label_task(
        options,
        store,
        list_file=list_file,
        concepts=concepts,
        queries=queries,
        training=training,
    )
    outcome = bench.run(task, store, options.device)
    outcome.show(store.folder("table5"), options.as_json)
