"""Several pretraining stages in sequence, each starting from the result of the previous one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddh.backbones import Backbone
from ddh.images import ImageSource
from ddh.pretrain.loop import Pretrained, pretrain
from ddh.pretrain.settings import pretrain_settings

Stages = Sequence[Mapping[str, Any]]


def pretrain_stages(
    backbone: Backbone,
    source: ImageSource,
    stages: Stages,
    *,
    device: str = "auto",
    seed: int = 0,
    folder: Path | None = None,
    resume: bool = False,
) -> Pretrained:
    """Train `backbone` by the settings of each stage in turn; epochs and seconds are those of all.

    With `folder` every stage has a checkpoint of its own, so `resume` passes over those at their
    end.
    """
    history: list[dict[str, Any]] = []
    epochs = seconds = 0.0
    for number, changes in enumerate(stages):
        trained = backbone.origin != "random"
        done = pretrain(
            backbone,
            source,
            pretrain_settings(backbone.preprocessing.size, trained, changes),
            device=device,
            seed=seed,
            folder=folder,
            file=f"stage-{number}.safetensors",
            resume=resume,
        )
        history += [entry | {"seconds": seconds + entry["seconds"]} for entry in done.history]
        epochs, seconds = epochs + done.epochs, seconds + done.seconds
    return replace(done, history=history, epochs=epochs, seconds=seconds)
