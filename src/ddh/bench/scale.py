"""`ddh bench scale`: how labels and search grow, to a million images and a hundred million codes.

Every size runs in a process of its own, from a mapped file, so that its peak memory is its own.
"""

import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.lib.format import open_memmap

import ddh
from ddh._core.errors import InputError
from ddh._core.output import json_option, quiet_option
from ddh._core.progress import track
from ddh._core.threads import cpu_count
from ddh.bench.isolated_process import run_isolated
from ddh.bench.labels import clustered_features
from ddh.bench.options import output_option, whole_numbers
from ddh.bench.plots import drawing, style
from ddh.bench.results import Outcome, Store, Table
from ddh.bench.scale_codes import milvus_codes, searched_codes
from ddh.bench.timing import timed

QUICK = {"images": "2000,4000", "dimensions": 32, "codes": 100_000, "milvus": 3000}
LEAST_IMAGES = 1000


@click.command(short_help="Growth of labels and search, to 1M images and 100M codes.")
@click.option("--images", default="10000,30000,100000,300000,1000000", show_default=True)
@click.option("--dimensions", default=256, show_default=True)
@click.option("--k1", default=15, show_default=True)
@click.option("--k2", default=6, show_default=True)
@click.option("--recall", default=0.95, show_default=True, help="Of the approximate neighbours.")
@click.option("--codes", default=100_000_000, show_default=True, help="Rows of the mapped file.")
@click.option("--milvus", default=1_000_000, show_default=True, help="Rows of Milvus Lite; or 0.")
@click.option("--bits", default=64, show_default=True)
@click.option("--seed", default=0, show_default=True)
@output_option
@click.option("--quick", is_flag=True, help="Small sizes, to see that all is well.")
@json_option
@quiet_option
def scale(quick: bool, output: Path, as_json: bool, **settings: Any) -> None:
    """Labels from features in a mapped file, with their recall; search of codes in a mapped file
    and in Milvus Lite. Files that it needs are made in the system's temporary folder.

    \b
    ddh bench scale                        the figures of docs/scale.md, some twenty minutes
    ddh bench scale --quick
    """
    settings.update(QUICK if quick else {})
    sizes = whole_numbers(settings.pop("images"), "numbers of images")
    if min(sizes) < LEAST_IMAGES:
        raise InputError(f"the numbers of images are {LEAST_IMAGES} or more")
    store = Store(output)
    folder = store.folder("scale")
    growth = []
    for size in track(sizes, "Labels", unit="size"):
        wanted = _chosen(settings, "dimensions", "k1", "k2", "recall", "seed") | {"images": size}
        growth.append(wanted | _measured(store, label_growth, wanted)["labels"])
    wanted = _chosen(settings, "codes", "bits", "seed")
    searches = list(_measured(store, searched_codes, wanted).values())
    if settings["milvus"]:
        wanted = _chosen(settings, "milvus", "bits", "seed")
        searches += _measured(store, milvus_codes, wanted).values()
    outcome = _outcome(growth, searches, settings)
    if len(growth) > 1:
        outcome.figures.append(_draw(folder, growth))
    outcome.publish(store, as_json)


def _chosen(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: settings[name] for name in names}


def _measured(store: Store, part: Any, wanted: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The figures of a part in a process of its own; a second run takes up those that are there."""
    key = {"bench": "scale", "part": part.__name__, "library": ddh.__version__, **wanted}
    return store.measure(f"scale-{part.__name__}", key, lambda: run_isolated(part, wanted))


def label_growth(
    images: int, dimensions: int, k1: int, k2: int, recall: float, seed: int
) -> dict[str, dict[str, Any]]:
    """Seconds and recall of the labels of `images` features in a mapped file."""
    from ddh.neighbours import approximate_labels

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "features.npy"
        _write_features(file, images, dimensions, seed)
        features = np.load(file, mmap_mode="r")

        def labels() -> Any:
            return approximate_labels(features, k1, k2, recall=recall, folder=Path(scratch))

        (S, report), seconds = timed(labels)
    return {
        "labels": {
            **seconds,
            "cores": cpu_count(),
            "recall": report.recall,
            "label recall": report.label_recall,
            "label precision": report.label_precision,
            "index": report.index,
            "labels an image": S.nnz / images,
            **{f"{stage} seconds": value for stage, value in report.seconds.items()},
        }
    }


def _write_features(file: Path, images: int, dimensions: int, seed: int) -> None:
    features = open_memmap(file, "w+", np.float32, (images, dimensions))
    clustered_features(images, dimensions, np.random.default_rng(seed), out=features)
    features.flush()


def exponent(growth: list[dict[str, Any]], measure: str = "cpu") -> float:
    """b of the power law a N^b through the measured sizes (least squares of logarithms)."""
    logs = np.log([[row["images"], row[measure]] for row in growth])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


# -- what it tells ------------------------------------------------------------------------


def _outcome(
    growth: list[dict[str, Any]], searches: list[dict[str, Any]], settings: dict[str, Any]
) -> Outcome:
    law = f" Processor time grows as N^{exponent(growth):.2f}." if len(growth) > 1 else ""
    return Outcome(
        bench="scale",
        title="Growth of labels and search",
        protocol=[
            f"synthetic clustered features, {settings['dimensions']} dimensions, float32 in a "
            f"mapped file, seed {settings['seed']}; K1 = {settings['k1']}, K2 = {settings['k2']}; "
            f"recall asked for {settings['recall']:g}, measured on a sample; seconds from the "
            "mapped file to S; peak memory of the process, mapped pages included",
            f"synthetic codes of {settings['bits']} bits (signs of projections of a Gaussian of "
            f"16 dimensions), seed {settings['seed']}, k = 10",
        ],
        tables=[_growth_table(growth, law), _search_table(searches)],
        records=[*growth, *searches],
        details={"exponent": exponent(growth) if len(growth) > 1 else None},
    )


def _growth_table(growth: list[dict[str, Any]], law: str) -> Table:
    columns = ["images", "seconds", "cpu seconds", "cpu µs an image", "peak MB", "recall",
               "exact labels there", "cells searched"]  # fmt: skip
    rows = [
        [
            f"{row['images']:,}",
            f"{row['wall']:.1f}",
            f"{row['cpu']:.1f}",
            f"{1e6 * row['cpu'] / row['images']:.0f}",
            f"{row['peak MB']:,.0f}" if row["peak MB"] else "-",
            f"{row['recall']:.3f}",
            f"{row['label recall']:.3f}",
            row["index"].removeprefix("IVF, "),
        ]
        for row in growth
    ]
    return Table("Labels from approximate neighbours", columns, rows, law.strip())


def _search_table(searches: list[dict[str, Any]]) -> Table:
    columns = ["where", "rows", "queries at once", "seconds", "cpu seconds", "queries a second",
               "peak MB"]  # fmt: skip
    rows = [
        [
            row["where"],
            f"{row['rows']:,}",
            f"{row['queries']}",
            f"{row['wall']:.3f}",
            f"{row['cpu']:.3f}",
            f"{row['queries'] / row['wall']:,.1f}",
            f"{row['peak MB']:,.0f}" if row["peak MB"] else "-",
        ]
        for row in searches
    ]
    making = {row["where"]: row["making seconds"] for row in searches}
    note = "; ".join(f"{where}: filled in {seconds:.0f} s" for where, seconds in making.items())
    return Table("Search of codes", columns, rows, note + ".")


def _draw(folder: Path, growth: list[dict[str, Any]]) -> dict[str, str]:
    name = "label-growth"
    sizes = np.array([row["images"] for row in growth], float)
    with drawing(folder, name) as axes:
        for place, measure in enumerate(("cpu", "wall")):
            seconds = [row[measure] for row in growth]
            label = {"cpu": "processor time", "wall": "time"}[measure]
            axes.loglog(sizes, seconds, "o", label=label, **style(place, special=place == 0))
        linear = growth[0]["cpu"] * sizes / sizes[0]
        axes.loglog(sizes, linear, color="#7f7f7f", linestyle=":", label="linear")
        axes.set_xlabel("images")
        axes.set_ylabel("seconds to labels")
        axes.legend()
    law = f"Processor time grows as N^{exponent(growth):.2f}."
    return {"name": name, "title": f"Cost of the labels over the number of images. {law}"}
