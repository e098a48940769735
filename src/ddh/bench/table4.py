"""Table 4 of the paper: hashing on NUS-WIDE, mAP@5000 at 12, 24, 32 and 48 bits."""

from pathlib import Path
from typing import Any

import click

from ddh.bench.multi_label_options import multi_label_options
from ddh.bench.options import BenchOptions, bits_option, shared_options, whole_numbers
from ddh.bench.paper import TABLE4
from ddh.bench.retrieval_measure import Row
from ddh.bench.retrieval_table import RetrievalBench
from ddh.bench.store import Store
from ddh.bench.tasks import multi_label_task

ROWS = [
    Row("CNNH", "CNNH", supervised=True),
    Row("FastH", "FastH", supervised=True),
    Row("SDH", "SDH", supervised=True),
    Row("KSH", "KSH", supervised=True),
    Row("LFH", "LFH", supervised=True),
    Row("ITQ", "ITQ"),
    Row("SH", "SH", chance=False),
    Row("DDH", "DDH"),
]


@click.command(short_help="Table 4: hashing on NUS-WIDE.")
@bits_option("12,24,32,48")
@multi_label_options
@shared_options
def table4(
    bits: str,
    list_file: Path | None,
    concepts: int,
    queries: int,
    training: int,
    **shared: Any,
) -> None:
    """Hashing on NUS-WIDE or any multi-label list: mAP@5000, relevant is one shared concept.

    The paper takes 1,000 queries and 4,000 training images of each concept; most others 100 and
    500, the default here.

    \b
    ddh bench table4 --data NUS-WIDE
    ddh bench table4 --data NUS-WIDE --queries 1000 --training 4000
    ddh bench table4 --list database.txt --data PICTURES
    """
    options = BenchOptions(**shared)
    store = Store(options.output)
    bench = RetrievalBench(
        name="table4",
        title="Table 4: hashing of images with several labels",
        paper=TABLE4,
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
    outcome.show(store.folder("table4"), options.as_json)
