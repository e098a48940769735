"""Networks that a bench pretrains on its training images, cached in the results folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.atomic import write_atomic
from ddh.bench.options import BenchOptions
from ddh.bench.results import Store, key_digest
from ddh.evaluation.protocol import digest
from ddh.images import LabelledImages


@dataclass(frozen=True)
class Learned:
    """Weights of a pretraining: the final ones, and those after some minutes."""

    weights: Path
    history: list[dict[str, Any]]
    moments: list[tuple[float, Path]]


def learn(
    data: LabelledImages,
    rows: NDArray[np.int64],
    options: BenchOptions,
    store: Store,
    changes: dict[str, Any],
    moments: int = 0,
    start: Path | None = None,
    seed: int = 0,
) -> Learned:
    """Pretrain on some of the images, starting from the weights of `start` or of `options`.

    A finished run is reused, an interrupted one resumes. `changes` are settings of the
    pretraining; `moments` is the number of times that the weights are saved on the way, the last
    time at the end (with several rounds: at the end of each); `seed` is that of random weights,
    batches and views.
    """
    import torch

    from ddh.backbones import Backbone, create, save
    from ddh.pretrain import pretrain, pretrain_settings
    from ddh.pretrain.pretraining import EVALUATIONS

    torch.manual_seed(seed)
    named = (options.backbone, options.weights) if start is None else ("auto", str(start))
    network = create(*named, options.size)
    trained = network.origin != "random"
    settings = pretrain_settings(network.preprocessing.size, trained, changes, len(rows))
    key = {
        "data": data.name,
        "images": digest(np.array(list(data.images.names)), rows),
        "backbone": network.name,
        "weights": network.origin,
        "size": network.preprocessing.size,
        "settings": settings.to_dict(),
        "seed": seed,
    }
    folder = store.root / "pretraining" / key_digest(key)
    weights, history = folder / "weights.safetensors", folder / "history.json"

    def moment(entry: dict[str, Any]) -> Path:
        """The weights after a round, or after a fraction of a single round; the latest counts."""
        if settings.rounds > 1:
            return folder / f"round-{entry['round']:02d}.safetensors"
        return folder / f"moment-{round(entry['progress'] * EVALUATIONS):02d}.safetensors"

    def keep(network: Backbone, entry: dict[str, Any]) -> None:
        number = round(entry["progress"] * EVALUATIONS)
        if moments and (settings.rounds > 1 or number % max(1, EVALUATIONS // moments) == 0):
            save(network, moment(entry))

    if not weights.is_file():
        done = pretrain(
            network, data.images.take(rows), settings, device=options.device, seed=seed,
            folder=folder / "work", resume=True, on_eval=keep,
        )  # fmt: skip
        write_atomic(history, json.dumps(done.history).encode())
        save(done.backbone, weights)
    told = json.loads(history.read_text())
    kept = {moment(entry): entry["seconds"] / 60 for entry in told}
    return Learned(weights, told, [(at, path) for path, at in kept.items() if path.is_file()])
