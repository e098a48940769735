"""`ddh bench presets`: what each preset is worth and takes, from pictures to codes."""

import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from ddh._core.errors import InputError
from ddh._core.output import json_option, quiet_option
from ddh._core.progress import bar
from ddh.bench.options import output_option, whole_numbers
from ddh.bench.results import Outcome, Store, Table
from ddh.codes import pack
from ddh.evaluation import mean_average_precision
from ddh.images import LabelledImages, cifar10

DEPTH = 100  # of the ranking that is scored
QUERIES = 4  # one query for so many images


@click.command(short_help="Presets compared, from pictures to codes.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="DDH_DATA",
    show_envvar=True,
    required=True,
    help="Folder of CIFAR-10.",
)
@click.option("--images", default=2000, show_default=True, help="Pictures to learn from.")
@click.option("--bits", default="64", show_default=True, help="Code lengths.")
@click.option("--presets", "names", default="fast,quality", show_default=True)
@click.option("--seeds", default="0", show_default=True)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, ...")
@output_option
@json_option
@quiet_option
def presets(
    data: Path, images: int, bits: str, names: str, seeds: str, device: str, output: Path,
    as_json: bool,
) -> None:  # fmt: skip
    """Fit each preset on some training pictures of CIFAR-10, and let others of them ask.

    Seconds are of the whole way, from pictures to the fitted model, for one length.

    \b
    ddh bench presets --data DIR
    ddh bench presets --data DIR --images 40000 --device cuda
    """
    store = Store(output)
    lengths, numbers = whole_numbers(bits, "bits"), whole_numbers(seeds, "seeds")
    chosen = [name.strip() for name in names.split(",")]
    learned, asking = _parts(cifar10(data, "train"), images)
    rows, records = [], []
    with bar("Presets", total=len(chosen) * len(lengths) * len(numbers), unit="fit") as progress:
        for preset in chosen:
            runs: dict[int, list[dict[str, Any]]] = {}
            for length in lengths:
                for seed in numbers:
                    progress.set_postfix_str(f"{preset}, {length} bits")
                    run = _measure(store, preset, length, seed, device, learned, asking)
                    runs.setdefault(length, []).append(run)
                    records.append({"preset": preset, "bits": length, "seed": seed, **run})
                    progress.update()
            seconds = np.mean([run["seconds"] for those in runs.values() for run in those])
            rows.append([preset, *[_cell(those) for those in runs.values()], f"{seconds:.0f}"])
    columns = ["preset", *[f"{length} bit" for length in lengths], "seconds"]
    note = (
        f"mAP@{DEPTH} as published tables count, seeds {seeds}; "
        f"{len(asking):,} other training pictures ask {len(learned):,}."
    )
    outcome = Outcome(
        bench="presets",
        title="Presets",
        protocol=["CIFAR-10, training pictures alone, drawn with seed 0"],
        tables=[Table(f"{len(learned):,} pictures of CIFAR-10", columns, rows, note)],
        records=records,
    )
    outcome.publish(store, as_json)


def _parts(data: LabelledImages, images: int) -> tuple[LabelledImages, LabelledImages]:
    """The pictures to learn from, and those that ask."""
    asking = max(1, images // QUERIES)
    if not 10 <= images <= len(data) - asking:
        raise InputError(f"--images is 10 to {len(data) * QUERIES // (QUERIES + 1)}, not {images}")
    order = np.random.default_rng(0).permutation(len(data))
    return data.take(order[:images]), data.take(order[images : images + asking])


def _measure(
    store: Store,
    preset: str,
    bits: int,
    seed: int,
    device: str,
    learned: LabelledImages,
    asking: LabelledImages,
) -> dict[str, Any]:
    from ddh.hashers import DDH

    model = DDH(bits=bits, preset=preset, random_state=seed, device=device)

    def compute() -> dict[str, Any]:
        start = time.perf_counter()
        model.fit(learned.images)
        seconds = time.perf_counter() - start
        query, database = (pack(model.transform(part.images)) for part in (asking, learned))
        score = mean_average_precision(
            query, database, asking.labels, learned.labels, k=min(DEPTH, len(learned)),
            ties="legacy", bits=bits,
        )  # fmt: skip
        return {"mAP": float(score), "seconds": seconds}

    settings = model.chosen_settings().to_dict()
    key = {"preset": preset, "settings": settings, "bits": bits, "seed": seed, "device": device}
    return store.measure(f"preset-{preset}-{bits}", key | {"images": len(learned)}, compute)


def _cell(runs: list[dict[str, Any]]) -> str:
    values = [run["mAP"] for run in runs]
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"
