"""`ddh bench scale`: growth of labels and search, to a million images and a hundred million codes.

Each size runs in a fresh process, from a memory-mapped file, so that its peak memory is its own.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

import ddh
from ddh._core.errors import DDHError, InputError
from ddh._core.output import json_option, quiet_option
from ddh._core.progress import track
from ddh._core.threads import cpu_count
from ddh.bench.labels import clustered_features
from ddh.bench.options import numbers_option, output_option, quick_option, seed_option
from ddh.bench.plots import plot_lines
from ddh.bench.results import Outcome, Record, Store, table_of
from ddh.bench.search_data import gaussian
from ddh.bench.timing import run_isolated, timed

QUICK = {"images": (2000, 4000), "dimensions": 32, "codes": 100_000, "milvus": 3000}
MIN_IMAGES = 1000
BLOCK, MILVUS_BLOCK = 1_000_000, 20_000
BATCHES, MILVUS_BATCHES = (1, 64), (1, 16)
NEIGHBOURS = 10


@click.command(short_help="Growth of labels and search, to 1M images and 100M codes.")
@numbers_option("--images", "10000,30000,100000,300000,1000000")
@click.option("--dimensions", default=256)
@click.option("--k1", default=15)
@click.option("--k2", default=6)
@click.option("--recall", default=0.95, help="Of the approximate neighbours.")
@click.option("--codes", default=100_000_000, help="Rows of the code file.")
@click.option("--milvus", default=1_000_000, help="Rows in Milvus Lite, or 0.")
@click.option("--bits", default=64)
@seed_option
@output_option
@quick_option
@json_option
@quiet_option
def scale(quick: bool, output: Path, as_json: bool, **settings: Any) -> None:
    """Labels from features in a memory-mapped file, with their recall; search of codes in a
    memory-mapped file and in Milvus Lite. Temporary files go to the system's temporary folder.

    \b
    ddh bench scale                        the figures of docs/scale.md, about twenty minutes
    ddh bench scale --quick
    """
    settings.update(QUICK if quick else {})
    sizes = settings.pop("images")
    if min(sizes) < MIN_IMAGES:
        raise InputError(f"the numbers of images are {MIN_IMAGES} or more")
    store = Store(output)

    def measured(part: Any, *names: str, **more: int) -> list[Record]:
        """The figures of a part in a fresh process, or those stored by an earlier run."""
        given = {name: settings[name] for name in names} | more
        key = {"bench": "scale", "part": part.__name__, "library": ddh.__version__, **given}
        found = store.measure(f"scale-{part.__name__}", key, lambda: run_isolated(part, given))
        return [{**more, **figures} for figures in found.values()]

    growth = []
    for size in track(sizes, "Labels", unit="size"):
        growth += measured(label_growth, "dimensions", "k1", "k2", "recall", "seed", images=size)
    searches = measured(searched_codes, "codes", "bits", "seed")
    if settings["milvus"]:
        searches += measured(milvus_codes, "milvus", "bits", "seed")
    _outcome(store, growth, searches, settings).publish(store, as_json)


# -- the parts ---------------------------------------------------------------------------------


def label_growth(
    images: int, dimensions: int, k1: int, k2: int, recall: float, seed: int
) -> dict[str, Record]:
    """Time and recall of the labels of `images` features in a memory-mapped file."""
    from ddh.neighbours import approximate_labels

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "features.npy"
        features = open_memmap(file, "w+", np.float32, (images, dimensions))
        clustered_features(images, dimensions, np.random.default_rng(seed), out=features)
        features.flush()
        mapped = np.load(file, mmap_mode="r")
        (S, report), seconds = timed(
            lambda: approximate_labels(mapped, k1, k2, recall=recall, folder=Path(scratch))
        )
    return {
        "labels": {
            "dimensions": dimensions,
            "k1": k1,
            "k2": k2,
            **seconds,
            "cores": cpu_count(),
            "recall": report.recall,
            "label recall": report.label_recall,
            "label precision": report.label_precision,
            "index": report.index,
            "labels per image": S.nnz / images,
            **{f"{stage} seconds": value for stage, value in report.seconds.items()},
        }
    }


def searched_codes(codes: int, bits: int, seed: int) -> dict[str, Record]:
    """Exact search of a memory-mapped file."""
    from ddh.codes import search

    queries = gaussian(max(BATCHES), bits, seed, codes)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "codes.npy"

        def fill() -> None:
            database = open_memmap(file, "w+", np.uint8, (codes, queries.shape[1]))
            for start in track(range(0, codes, BLOCK), "Codes", unit="block"):
                block = gaussian(min(BLOCK, codes - start), bits, seed, start)
                _plant(block, queries, start, codes)
                database[start : start + len(block)] = block
            database.flush()

        def ask(count: int) -> NDArray[np.integer]:
            return search(queries[:count], np.load(file, mmap_mode="r"), NEIGHBOURS).distances

        return _measured("memory-mapped file", codes, BATCHES, fill, ask)


def milvus_codes(milvus: int, bits: int, seed: int) -> dict[str, Record]:
    """Search of the same codes in a Milvus Lite file."""
    import ddh.index

    queries = gaussian(max(MILVUS_BATCHES), bits, seed, milvus)
    rows = gaussian(milvus, bits, seed, 0)
    _plant(rows, queries, 0, milvus)
    with (
        tempfile.TemporaryDirectory() as scratch,
        ddh.index.open(Path(scratch) / "codes.db", bits=bits) as index,
    ):

        def fill() -> None:
            for start in track(range(0, milvus, MILVUS_BLOCK), "Milvus", unit="block"):
                part = rows[start : start + MILVUS_BLOCK]
                index.add([str(start + n) for n in range(len(part))], part)

        def ask(count: int) -> NDArray[np.integer]:
            hits = index.search(queries[:count], NEIGHBOURS)
            return np.array([[hit.distance for hit in one] for one in hits])

        return _measured("Milvus Lite", milvus, MILVUS_BATCHES, fill, ask)


def _plant(block: NDArray[np.uint8], queries: NDArray[np.uint8], start: int, rows: int) -> None:
    """Put a copy of each query into the database: those that fall into this block."""
    planted = np.linspace(0, rows - 1, len(queries)).astype(np.int64)
    inside = (planted >= start) & (planted < start + len(block))
    block[planted[inside] - start] = queries[inside]


def _measured(
    storage: str,
    rows: int,
    batches: tuple[int, ...],
    fill: Callable[[], None],
    ask: Callable[[int], NDArray[np.integer]],
) -> dict[str, Record]:
    """Time of the second call with each batch of queries; the copy of each must be found."""
    filling, found = timed(fill)[1]["wall"], {}
    for count in batches:
        missed = np.flatnonzero(ask(count)[:, 0])
        if missed.size:
            raise DDHError(f"{storage}: the row that equals query {missed[0]} was not found")
        _, seconds = timed(ask, count)
        sizes = {"storage": storage, "rows": rows, "queries": count, "filling seconds": filling}
        found[f"{storage}, {count}"] = sizes | seconds
    return found


def exponent(growth: list[Record], measure: str = "cpu") -> float:
    """b of the power law a N^b through the measured sizes (least squares of logarithms)."""
    logs = np.log([[row["images"], row[measure]] for row in growth])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


LABEL_COLUMNS = {
    "images": "{images:,}",
    "seconds": "{wall:.1f}",
    "CPU seconds": "{cpu:.1f}",
    "CPU µs per image": "{µs:.0f}",
    "peak MB": "{peak MB:,.0f}",
    "recall": "{recall:.3f}",
    "label recall": "{label recall:.3f}",
    "lists probed": "{lists}",
}
SEARCH_COLUMNS = {
    "storage": "{storage}",
    "rows": "{rows:,}",
    "queries per call": "{queries}",
    "seconds": "{wall:.3f}",
    "CPU seconds": "{cpu:.3f}",
    "queries per second": "{rate:,.1f}",
    "peak MB": "{peak MB:,.0f}",
}


def _outcome(
    store: Store, growth: list[Record], searches: list[Record], settings: dict[str, Any]
) -> Outcome:
    power = exponent(growth) if len(growth) > 1 else None
    law = "" if power is None else f"CPU time grows as N^{power:.2f}."
    labels = [
        row | {"µs": 1e6 * row["cpu"] / row["images"], "lists": row["index"].removeprefix("IVF, ")}
        for row in growth
    ]
    rates = [row | {"rate": row["queries"] / row["wall"]} for row in searches]
    filling = {row["storage"]: row["filling seconds"] for row in searches}
    filled = "; ".join(f"{storage}: filled in {value:.0f} s" for storage, value in filling.items())
    sizes = np.array([row["images"] for row in growth], float)
    series = {
        "CPU time": (sizes, [row["cpu"] for row in growth]),
        "elapsed time": (sizes, [row["wall"] for row in growth]),
        "linear": (sizes, growth[0]["cpu"] * sizes / sizes[0]),
    }
    axes: dict[str, Any] = {"xscale": "log", "yscale": "log", "xlabel": "images"}
    axes |= {"ylabel": "seconds to labels", "special": "CPU time", "marker": "o"}
    title = f"Cost of the labels over the number of images. {law}"
    figure = plot_lines(store.folder("scale"), "label-growth", title, series, **axes)
    return Outcome(
        bench="scale",
        title="Growth of labels and search",
        protocol=[
            f"synthetic clustered features, {settings['dimensions']} dimensions, float32 in a "
            f"memory-mapped file, seed {settings['seed']}; K1 = {settings['k1']}, K2 = "
            f"{settings['k2']}; target recall {settings['recall']:g}, measured on a sample; "
            "seconds from the file to S; peak memory of the process, mapped pages included",
            f"synthetic codes of {settings['bits']} bits (signs of projections of a Gaussian of "
            f"16 dimensions), seed {settings['seed']}, k = {NEIGHBOURS}",
        ],
        tables=[
            table_of("Labels from approximate neighbours", labels, LABEL_COLUMNS, law),
            table_of("Search of codes", rates, SEARCH_COLUMNS, f"{filled}."),
        ],
        records=[*growth, *searches],
        figures=[] if power is None else [figure],
        details={"exponent": power},
    )
