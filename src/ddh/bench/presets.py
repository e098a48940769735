"""`ddh bench presets`: mAP and training time of each preset, from images to codes."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

import ddh
from ddh._core.errors import InputError
from ddh._core.output import json_option, quiet_option
from ddh._core.progress import track
from ddh.bench.options import data_option, device_option, numbers_option, output_option
from ddh.bench.results import Outcome, Record, Store, Table, figure
from ddh.bench.timing import timed
from ddh.evaluation import mean_average_precision
from ddh.evaluation.protocol import digest
from ddh.images import LabelledImages, cifar10

VERSION = 1  # of the measurement: a new one invalidates stored results
DEPTH = 100  # k of mAP@k
IMAGES_PER_QUERY = 4


@click.command(short_help="Presets compared, from images to codes.")
@data_option
@click.option("--images", default=2000, help="Training images.")
@numbers_option("--bits", "64", "Code lengths.")
@click.option("--presets", "names", default="fast,quality")
@numbers_option("--seeds", "0")
@device_option
@output_option
@json_option
@quiet_option
def presets(
    data: Path | None,
    images: int,
    bits: tuple[int, ...],
    names: str,
    seeds: tuple[int, ...],
    device: str,
    output: Path,
    as_json: bool,
) -> None:
    """Fit each preset on some training images of CIFAR-10, with others of them as queries.

    Seconds are the total time from images to the fitted model, per code length.

    \b
    ddh bench presets --data DIR
    ddh bench presets --data DIR --images 40000 --device cuda
    """
    from ddh.hashers import DDH
    from ddh.pretrain.recipe import preset_stages
    from ddh.train import settings as preset_settings
    from ddh.train.device import choose

    if data is None:
        raise InputError("where is CIFAR-10? Give its folder with --data DIR, or in DDH_DATA")
    store = Store(output)
    chosen = [name.strip() for name in names.split(",")]
    database, queries = _parts(cifar10(data, "train"), images)
    jobs = list(product(chosen, bits, seeds))
    records = []
    shared = {
        "version": VERSION,
        "library": ddh.__version__,
        "images": digest(np.array([*database.images.names, *queries.images.names])),
    }
    for preset, length, seed in track(jobs, "Presets", unit="fit"):
        own = {"preset": preset, "bits": length, "seed": seed}
        stages = preset_stages(preset, len(database), choose(device).type == "cuda")
        settings = {"settings": preset_settings(preset).to_dict(), "pretrain": stages}
        key = {**shared, **own, **settings, "device": device}
        model = DDH(bits=length, preset=preset, random_state=seed, device=device)
        compute = partial(measure, model, database, queries, min(DEPTH, images))
        records.append(own | store.measure(f"preset-{preset}-{length}", key, compute))
    note = (
        f"Legacy mAP@{DEPTH}, seeds {', '.join(map(str, seeds))}; {len(queries):,} other training "
        f"images are queries against these {len(database):,}."
    )
    columns = ["preset", *[f"{length} bit" for length in bits], "seconds"]
    rows = table_rows("preset", chosen, bits, records)
    Outcome(
        bench="presets",
        title="Presets",
        protocol=["CIFAR-10, training images only, drawn with seed 0"],
        tables=[Table(f"{len(database):,} images of CIFAR-10", columns, rows, note)],
        records=records,
    ).publish(store, as_json)


def _parts(data: LabelledImages, images: int) -> tuple[LabelledImages, LabelledImages]:
    """Training images (also the database), and queries."""
    queries = max(1, images // IMAGES_PER_QUERY)
    if not 10 <= images <= len(data) - queries:
        most = len(data) * IMAGES_PER_QUERY // (IMAGES_PER_QUERY + 1)
        raise InputError(f"--images is 10 to {most}, not {images}")
    order = np.random.default_rng(0).permutation(len(data))
    return data.take(order[:images]), data.take(order[images : images + queries])


def measure(model: Any, database: LabelledImages, queries: LabelledImages, k: int) -> Record:
    """Fit a model on the images of the database: legacy mAP@k, seconds, what the training tells."""
    _, seconds = timed(model.fit, database.images)
    score = mean_average_precision(
        model.transform(queries.images),
        model.transform(database.images),
        queries.labels,
        database.labels,
        k=k,
        ties="legacy",
    )
    return {"mAP": float(score), "seconds": seconds["wall"], "history": model.history_}


def table_rows(
    key: str, names: Sequence[str], lengths: tuple[int, ...], records: list[Record]
) -> list[list[str]]:
    """For each name its mAP by code length, and the mean of the seconds."""
    rows = []
    for name in names:
        own = [record for record in records if record[key] == name]
        values = [[run["mAP"] for run in own if run["bits"] == length] for length in lengths]
        seconds = np.mean([run["seconds"] for run in own])
        rows.append([name, *map(figure, values), f"{seconds:.0f}"])
    return rows
