"""`ddh bench quality`: features learned from the collection itself, then codes, on CIFAR-10.

A network is pretrained on the 50,000 training pictures alone, by BYOL, then by codes of confident
neighbourhoods; what it is worth after so many minutes is told by training images that are held out
as queries; the final table is that of the test queries.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from ddh._core.errors import InputError
from ddh.bench.features import compute_features
from ddh.bench.options import BenchOptions, bits_option, shared_options, whole_numbers
from ddh.bench.paper import TABLE2
from ddh.bench.plots import drawing, style
from ddh.bench.pretrained import Learned, learn
from ddh.bench.retrieval_measure import Row, Task, measure_row
from ddh.bench.retrieval_table import RetrievalBench
from ddh.bench.store import Store
from ddh.bench.tasks import cifar10_images
from ddh.bench.writing import Table
from ddh.evaluation import RetrievalSplit
from ddh.images import LabelledImages

ROWS = [Row("PCA-ITQ", "ITQ"), Row("DDH", "DDH")]
HELD_OUT = 10  # one training image in so many asks, for the curve over time
CURVE_BITS = (16, 64)


@click.command(
    context_settings={"default_map": {"backbone": "resnet18-tiny", "weights": "random"}},
    short_help="Features from the collection itself, then codes, on CIFAR-10.",
)
@bits_option("16,32,64")
@click.option("--minutes", type=float, help="Of BYOL; 0: none.  [default: 16]")
@click.option("--epochs", type=int, help="Of BYOL, in place of --minutes.")
@click.option("--codes-minutes", type=float, help="Of codes after it; 0: none.  [default: 4]")
@click.option("--codes-epochs", type=int, help="Of codes, in place of --codes-minutes.")
@click.option(
    "--neighbours-from",
    type=float,
    help="Share of BYOL after which neighbours stand for views too.  [default: 0.8]",
)
@click.option(
    "--moments", default=5, show_default=True, help="Points of BYOL's curve; codes: one a round."
)
@shared_options
def quality(
    bits: str,
    minutes: float | None,
    epochs: int | None,
    codes_minutes: float | None,
    codes_epochs: int | None,
    neighbours_from: float | None,
    moments: int,
    **shared: Any,
) -> None:
    """Pretrain a network on the training pictures of CIFAR-10, then learn codes from its features.

    No label is used, and with the default weights nothing but these pictures. The training is
    that of the preset "quality"; its settings are changed by --set byol.NAME=VALUE and --set
    codes.NAME=VALUE.

    \b
    ddh bench quality --data DIR --device cuda
    ddh bench quality --data DIR --backbone efficientnet-lite0 --weights auto --size 128 --minutes 0
    ddh bench quality --data DIR --set codes.rounds=3 --set codes.consistency=0
    """
    from ddh.pretrain.recipe import STAGES

    options = BenchOptions(**shared)
    store = Store(options.output)
    data, split = cifar10_images(options)
    settings = options.settings
    byol, codes = STAGES
    stages = [
        _stage(byol, minutes, epochs, neighbours_from=neighbours_from, **settings.pop("byol", {})),
        _stage(codes, codes_minutes, codes_epochs, **settings.pop("codes", {})),
    ]
    learned = _learn(data, split, options, store, stages, moments)
    asked = held_out(split)
    curve = [
        {"minutes": minutes}
        | _scores(store, Task(_features(data, store, path, options), asked), settings, options)
        for minutes, path in learned.moments
    ]
    bench = RetrievalBench(
        name="quality",
        title="Features from the collection itself",
        paper=TABLE2,
        rows=ROWS,
        bits=whole_numbers(bits, "bits"),
        seeds=options.seed_numbers,
        settings=settings,
        note="The network was pretrained on the training pictures without labels.",
    ).only(options.methods)
    task = Task(_features(data, store, learned.weights, options), split)
    outcome = bench.run(task, store, options.device)
    folder = store.folder("quality")
    outcome.details["pretraining"] = learned.history
    outcome.tables.append(_curve_table(curve))
    outcome.figures.append(_draw(folder, curve))
    outcome.write(folder)
    outcome.show(folder, options.as_json)


def _stage(
    preset: Mapping[str, Any], minutes: float | None, epochs: int | None, **changes: Any
) -> dict[str, Any]:
    """A stage of the preset, of another length or with other settings where they are given."""
    if minutes is None and epochs is None:
        minutes = preset["minutes"]
    given = {name: value for name, value in changes.items() if value is not None}
    return {**preset, "minutes": minutes, "epochs": epochs, **given}


def _learn(
    data: LabelledImages,
    split: RetrievalSplit,
    options: BenchOptions,
    store: Store,
    stages: list[dict[str, Any]],
    moments: int,
) -> Learned:
    """One stage after another, as one; a stage of no length is left out."""
    stages = [stage for stage in stages if stage["minutes"] or stage["epochs"]]
    if not stages:
        raise InputError("nothing is learned: give --minutes or --codes-minutes")
    parts: list[Learned] = []
    for stage in stages:
        start = parts[-1].weights if parts else None
        parts.append(learn(data, split.train, options, store, stage, moments, start))
    history, points, before = [], [], 0.0
    for part in parts:
        history += part.history
        points += [(before + minutes, path) for minutes, path in part.moments]
        before += part.history[-1]["seconds"] / 60
    return Learned(parts[-1].weights, history, points)


def _features(data: LabelledImages, store: Store, weights: Path, options: BenchOptions) -> Any:
    return compute_features(
        data, store, backbone="auto", weights=str(weights), device=options.device
    )


def held_out(split: RetrievalSplit) -> RetrievalSplit:
    """Some training images ask the others: what settings may be chosen by."""
    asks = np.zeros(len(split.train), bool)
    asks[np.random.default_rng(0).permutation(len(asks))[: len(asks) // HELD_OUT]] = True
    others = split.train[~asks]
    k = min(split.k or len(others), len(others))
    return RetrievalSplit(
        f"{split.name}, held-out training images ask", split.train[asks], others, others, k
    )


def _scores(
    store: Store, task: Task, settings: dict[str, Any], options: BenchOptions
) -> dict[str, float]:
    """mAP of DDH at the lengths of the curve, seed 0."""
    row, scores = ROWS[-1], {}
    for bits in CURVE_BITS:
        chosen = settings.get(row.method, {})
        result = measure_row(store, task, row, bits, 0, chosen, options.device)
        scores[f"{bits} bit"] = result["scores"]["legacy"]["value"]
    return scores


def _curve_table(curve: list[dict[str, Any]]) -> Table:
    rows = [
        [f"{point['minutes']:.1f}", *[f"{point[f'{bits} bit']:.3f}" for bits in CURVE_BITS]]
        for point in curve
    ]
    note = "mAP as published tables count, held-out training images against the other ones, DDH."
    columns = ["minutes of pretraining", *[f"{bits} bit" for bits in CURVE_BITS]]
    return Table("Quality over time", columns, rows, note)


def _draw(folder: Path, curve: list[dict[str, Any]]) -> dict[str, str]:
    with drawing(folder, "quality-over-time") as axes:
        for place, bits in enumerate(CURVE_BITS):
            minutes = [point["minutes"] for point in curve]
            values = [point[f"{bits} bit"] for point in curve]
            axes.plot(minutes, values, marker="o", label=f"{bits} bits", **style(place))
        axes.set(xlabel="minutes of pretraining", ylabel="mAP, held-out training images")
        axes.set_xlim(left=0)
        axes.legend(loc="lower right")
    return {"name": "quality-over-time", "title": "Quality over time"}
