"""Table 3 of the paper: hashing with deep features on CIFAR-10 at 12, 24, 32 and 48 bits."""

from dataclasses import replace
from typing import Any

import click

from ddh.bench.options import BenchOptions, bits_option, shared_options, whole_numbers
from ddh.bench.paper import TABLE3
from ddh.bench.retrieval_measure import Row
from ddh.bench.retrieval_table import RetrievalBench
from ddh.bench.store import Store
from ddh.bench.tasks import cifar10_task

ROWS = [
    Row("ITQ + CNN", "ITQ"),
    Row("SH + CNN", "SH", chance=False),
    Row("SPLH + CNN", "SPLH", supervised=True),
    Row("LFH + CNN", "LFH", supervised=True),
    Row("DDH", "DDH"),
]


@click.command(short_help="Table 3: methods on deep features of CIFAR-10.")
@bits_option("12,24,32,48")
@click.option(
    "--labelled",
    default=500,
    show_default=True,
    help="Labelled training images of each class for SPLH and LFH.",
)
@shared_options
def table3(bits: str, labelled: int, **shared: Any) -> None:
    """Shallow methods and DDH on the same deep features of CIFAR-10: mAP@1000.

    SPLH and LFH learn from class labels (of 500 training images a class, as is usual for them);
    the other rows see no label.

    \b
    ddh bench table3 --data DIR
    """
    options = BenchOptions(**shared)
    store = Store(options.output)
    rows = [replace(row, labelled_per_class=labelled) if row.supervised else row for row in ROWS]
    bench = RetrievalBench(
        name="table3",
        title="Table 3: hashing with deep features",
        paper=TABLE3,
        rows=rows,
        bits=whole_numbers(bits, "bits"),
        seeds=options.seed_numbers,
        settings=options.settings,
        note=f"SPLH and LFH saw the labels of {labelled} training images a class; the paper does "
        "not say how many its rows saw.",
    ).only(options.methods)
    outcome = bench.run(cifar10_task(options, store), store, options.device)
    outcome.show(store.folder("table3"), options.as_json)
