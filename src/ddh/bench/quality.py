"""`ddh bench quality`: features learned from the collection itself, then codes, on CIFAR-10.

A network is pretrained on the 50,000 training images alone, by BYOL, then by pseudo-codes of
confident neighbourhoods. Held-out training images serve as queries for the curve over time; the
final table uses the test queries.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.bench.features import compute_features
from ddh.bench.options import BenchOptions, shared_options
from ddh.bench.plots import plot_lines
from ddh.bench.pretrained import Learned, learn
from ddh.bench.results import Store, Table
from ddh.bench.retrieval import Task, cifar10_images, measure_row
from ddh.bench.retrieval_table import run
from ddh.bench.tables import TABLE2
from ddh.evaluation import RetrievalSplit
from ddh.images import LabelledImages

TABLE = replace(
    TABLE2.only("PCA-ITQ,DDH"),
    name="quality",
    title="Features from the collection itself",
    note="The network was pretrained on the training images without labels.",
)
HELD_OUT = 10  # one training image in this many is a query of the curve over time
CURVE_BITS = (16, 64)
STAGES: dict[str, dict[str, Any]] = {
    "byol": {"minutes": 16.0, "neighbours_from": 0.8},
    "pseudo-codes": {"objective": "pseudo-codes", "minutes": 4.0},
}


@click.command(
    context_settings={"default_map": {"backbone": "resnet18-tiny", "weights": "random"}},
    short_help="Features from the collection itself, then codes, on CIFAR-10.",
)
@click.option("--minutes", type=float, help="Minutes of BYOL; 0 skips it.  [default: 16]")
@click.option("--epochs", type=int, help="Epochs of BYOL, instead of --minutes.")
@click.option(
    "--pseudo-codes-minutes",
    type=float,
    help="Minutes of pseudo-codes; 0 skips them.  [default: 4]",
)
@click.option("--pseudo-codes-epochs", type=int, help="Epochs of pseudo-codes, instead of minutes.")
@click.option(
    "--neighbours-from",
    type=float,
    help="Fraction of BYOL after which a confident neighbour may replace the second view.  "
    "[default: 0.8]",
)
@click.option(
    "--moments", default=5, help="Points on the curve of BYOL; pseudo-codes have one per round."
)
@click.option(
    "--unseen", is_flag=True, help="Pretrain without the held-out images, to choose its settings."
)
@click.option(
    "--pretrain-seed",
    default=0,
    help="Seed of the pretraining; --seeds are those of the hashing stage.",
)
@shared_options("16,32,64", without=("features",))
def quality(
    minutes: float | None,
    epochs: int | None,
    pseudo_codes_minutes: float | None,
    pseudo_codes_epochs: int | None,
    neighbours_from: float | None,
    moments: int,
    unseen: bool,
    pretrain_seed: int,
    **shared: Any,
) -> None:
    """Pretrain a network on the training images of CIFAR-10, then learn codes from its features.

    No labels are used, and with the default weights no other images. Change settings of the
    training with --set byol.NAME=VALUE and --set pseudo-codes.NAME=VALUE.

    \b
    ddh bench quality --data DIR --device cuda
    ddh bench quality --data DIR --backbone efficientnet-lite0 --weights auto --minutes 0 \\
      --set pseudo-codes.steps=3600
    ddh bench quality --data DIR --set pseudo-codes.rounds=3 --set pseudo-codes.consistency=0
    """
    options, store = BenchOptions(**shared), Store(shared["output"])
    table = TABLE.only(options.methods)
    data, split = cifar10_images(options)
    byol, pseudo_codes = (minutes, epochs), (pseudo_codes_minutes, pseudo_codes_epochs)
    stages = []
    for (name, stage), given in zip(STAGES.items(), (byol, pseudo_codes), strict=True):
        changes = options.settings.get(name, {})
        length = (stage["minutes"], None) if given == (None, None) else given
        if "steps" in changes:
            length = (None, None)
        stages.append({**stage, "minutes": length[0], "epochs": length[1], **changes})
    if neighbours_from is not None:
        stages[0]["neighbours_from"] = neighbours_from
    trained = (held_out(split) if unseen else split).train
    learned = _learn(data, trained, options, store, stages, moments, pretrain_seed)

    def task(weights: Path, split: RetrievalSplit) -> Task:
        own = replace(options, backbone="auto", weights=str(weights), size=None)
        return Task(compute_features(data, store, own), split)

    curve = []
    for at, path in learned.moments:
        held = task(path, held_out(split))
        results = [measure_row(store, held, TABLE.rows[-1], b, 0, options) for b in CURVE_BITS]
        curve.append((at, [result["scores"]["legacy"]["value"] for result in results]))
    outcome = run(table, task(learned.weights, split), store, options)
    outcome.details["pretraining"] = learned.history
    rows = [[f"{at:.1f}", *(f"{value:.3f}" for value in values)] for at, values in curve]
    columns = ["minutes of pretraining", *[f"{bits} bit" for bits in CURVE_BITS]]
    note = "Legacy mAP of DDH; held-out training images are queries against the others."
    outcome.tables.append(Table("Quality over time", columns, rows, note))
    times, scores = [at for at, _ in curve], np.array([values for _, values in curve]).T
    series = {f"{bits} bits": (times, own) for bits, own in zip(CURVE_BITS, scores, strict=True)}
    axes: dict[str, Any] = {"ylabel": "mAP, held-out training images", "xlim": (0, None)}
    axes |= {"xlabel": "minutes of pretraining", "marker": "o", "legend": {"loc": "lower right"}}
    folder, title = store.folder("quality"), "Quality over time"
    outcome.figures.append(plot_lines(folder, "quality-over-time", title, series, **axes))
    outcome.publish(store, options.as_json)


def _learn(
    data: LabelledImages,
    trained: NDArray[np.int64],
    options: BenchOptions,
    store: Store,
    stages: list[dict[str, Any]],
    moments: int,
    seed: int,
) -> Learned:
    """Run the stages one after another; a stage of zero length is skipped."""
    learned, before = None, 0.0
    history: list[dict[str, Any]] = []
    points: list[tuple[float, Path]] = []
    for stage in stages:
        if stage["minutes"] or stage["epochs"] or stage.get("steps"):
            start = None if learned is None else learned.weights
            learned = learn(data, trained, options, store, stage, moments, start, seed)
            history += learned.history
            points += [(before + minutes, path) for minutes, path in learned.moments]
            before += learned.history[-1]["seconds"] / 60
    if learned is None:
        raise InputError("nothing is learned: give --minutes or --pseudo-codes-minutes")
    return Learned(learned.weights, history, points)


def held_out(split: RetrievalSplit) -> RetrievalSplit:
    """Some training images as queries against the others, for choosing settings."""
    asks = np.zeros(len(split.train), bool)
    asks[np.random.default_rng(0).permutation(len(asks))[: len(asks) // HELD_OUT]] = True
    others = split.train[~asks]
    k = min(split.k or len(others), len(others))
    name = f"{split.name}, held-out training images ask"
    return RetrievalSplit(name, split.train[asks], others, others, k)
