"""Table 2 of the paper: unsupervised hashing on CIFAR-10, mAP@1000 at 16, 32 and 64 bits."""

from typing import Any

import click

from ddh.bench.options import BenchOptions, bits_option, shared_options, whole_numbers
from ddh.bench.paper import TABLE2
from ddh.bench.retrieval_measure import Row
from ddh.bench.retrieval_table import RetrievalBench
from ddh.bench.store import Store
from ddh.bench.tasks import cifar10_task

# The paper's Table 2 in its order. KMH (up to 100,000 images), SH and PCAH have no random part.
ROWS = [
    Row("KMH", "KMH", chance=False),
    Row("SphH", "SphH"),
    Row("SH", "SH", chance=False),
    Row("PCAH", "PCAH", chance=False),
    Row("LSH", "LSH"),
    Row("PCA-ITQ", "ITQ"),
    Row("DH", "DH"),
    Row("DeepBit", "DeepBit"),
    Row("DDH", "DDH"),
]


@click.command(short_help="Table 2: unsupervised hashing on CIFAR-10.")
@bits_option("16,32,64")
@shared_options
def table2(bits: str, **shared: Any) -> None:
    """Unsupervised hashing on CIFAR-10: mAP@1000, 10,000 queries against 50,000 images.

    Every method gets the same deep features, while the paper's other rows had hand-crafted ones.

    \b
    ddh bench table2 --data DIR                     the full table
    ddh bench table2 --data DIR --subset 5000       the same order of methods, quickly
    """
    options = BenchOptions(**shared)
    store = Store(options.output)
    bench = RetrievalBench(
        name="table2",
        title="Table 2: unsupervised hashing",
        paper=TABLE2,
        rows=list(ROWS),
        bits=whole_numbers(bits, "bits"),
        seeds=options.seed_numbers,
        settings=options.settings,
        note="Here all rows use the same deep features; in the paper KMH to DH had hand-crafted "
        "ones.",
    ).only(options.methods)
    outcome = bench.run(cifar10_task(options, store), store, options.device)
    outcome.show(store.folder("table2"), options.as_json)
