"""`ddh bench depths`: the network trained with the hashing layer, against the layer alone."""

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import ddh
from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh.bench.options import BenchOptions, shared_options
from ddh.bench.presets import measure, table_rows
from ddh.bench.results import Outcome, Store, Table
from ddh.bench.retrieval import cifar10_images
from ddh.evaluation.protocol import digest

if TYPE_CHECKING:
    from ddh.train.settings import Depth

VERSION = 1  # of the measurement: a new one invalidates stored results
DEPTHS: dict[str, "Depth"] = {"head": "head", "last-stage": "last stage", "network": "network"}


@click.command(short_help="Depths of training compared, from images to codes.")
@click.option("--depths", "names", default=",".join(DEPTHS), help="Separated by commas.")
@shared_options("64", without=("features", "methods", "jobs"))
def depths(names: str, **shared: Any) -> None:
    """Fit DDH at each depth on the training images of CIFAR-10; its test images are queries.

    Seconds are the total time from images to the fitted model, per code length.

    \b
    ddh bench depths --data DIR --subset 1000
    ddh bench depths --data DIR --backbone auto --weights FILE --device cuda
    ddh bench depths --data DIR --backbone cnn-f --weights random --depths network \\
      --set DDH.label_backbone=efficientnet-lite0 --device cuda
    """
    from ddh.hashers import DDH

    options, store = BenchOptions(**shared), Store(shared["output"])
    chosen = [name.strip() for name in names.split(",")]
    if unknown := [name for name in chosen if name not in DEPTHS]:
        raise InputError(f"there is no depth {unknown[0]}: {', '.join(DEPTHS)}")
    data, split = cifar10_images(options)
    k = min(split.k or len(split.database), len(split.database))
    database, queries = data.take(split.database), data.take(split.query)
    given = {name: getattr(options, name) for name in ("backbone", "weights", "size", "device")}
    given |= options.settings.get("DDH", {})
    fixed = given | {
        "version": VERSION,
        "library": ddh.__version__,
        "images": digest(np.array([*database.images.names, *queries.images.names])),
        "k": k,
    }
    records = []
    jobs = list(product(chosen, options.bits, options.seeds))
    for name, bits, seed in track(jobs, "Depths", unit="fit"):
        own = {"depth": name, "bits": bits, "seed": seed}
        model = DDH(bits=bits, depth=DEPTHS[name], random_state=seed, **given)
        compute = partial(measure, model, database, queries, k)
        records.append(own | store.measure(f"depth-{name}-{bits}-{seed}", fixed | own, compute))
    title = f"{len(database):,} images of CIFAR-10, {options.backbone}, weights {options.weights}"
    seeds = ", ".join(map(str, options.seeds))
    note = f"Legacy mAP@{k}, seeds {seeds}; {len(queries):,} test images are queries."
    columns = ["depth", *[f"{bits} bit" for bits in options.bits], "seconds"]
    Outcome(
        bench="depths",
        title="Depths of training",
        protocol=[split.title],
        tables=[Table(title, columns, table_rows("depth", chosen, options.bits, records), note)],
        records=records,
    ).publish(store, options.as_json)
