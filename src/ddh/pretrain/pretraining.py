"""`pretrain` runs one objective, `pretrain_stages` several in sequence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ddh._core.errors import InputError
from ddh.backbones import Backbone
from ddh.images import Failure, ImageSource
from ddh.pretrain.inputs import PixelCache, ViewInputs, decode
from ddh.pretrain.schedule import PretrainSchedule
from ddh.pretrain.settings import PretrainSettings, pretrain_settings
from ddh.pretrain.task import OnEval, PretrainTask
from ddh.train.device import choose
from ddh.train.identity import images_digest
from ddh.train.trainer import Trainer

CHECKPOINT_SECONDS = 60
MIN_IMAGES = 8

Stages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Pretrained:
    """A trained backbone, the diagnostics along the way, and the images that were left out."""

    backbone: Backbone
    history: list[dict[str, Any]]
    epochs: float
    seconds: float
    failures: list[Failure]


def pretrain(
    backbone: Backbone,
    source: ImageSource,
    settings: PretrainSettings,
    *,
    device: str = "auto",
    seed: int = 0,
    folder: Path | None = None,
    file: str = "pretraining.safetensors",
    resume: bool = False,
    on_eval: OnEval | None = None,
) -> Pretrained:
    """Train a backbone in place on images without labels; unreadable ones are left out.

    Parameters
    ----------
    settings : PretrainSettings
        See `pretrain_settings`.
    folder : Path, optional
        Where decoded images and, every minute, a checkpoint `file` are written.
    resume : bool
        Continue from the checkpoint, if there is one. A time budget counts the minutes of all
        runs together. With `epochs`, a resumed run on a CPU ends with the same weights as an
        uninterrupted one.
    on_eval : callable, optional
        Called with the backbone so far and the diagnostics, twenty times per run and at the end of
        each round.
    """
    where = choose(device)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    pixels, failures = decode(source, backbone.preprocessing, folder)
    n = len(pixels)
    if n < MIN_IMAGES:
        raise InputError(f"pretraining needs at least {MIN_IMAGES} images, there are {n}")
    batch_size = min(settings.batch_size, n)
    schedule = PretrainSchedule(settings, n // batch_size)
    inputs = ViewInputs(PixelCache(pixels, where), backbone, settings)
    task = PretrainTask(inputs, schedule, seed, on_eval)
    torch.backends.cudnn.benchmark |= where.type == "cuda"  # all batches have the same shape
    identity = {
        "data": images_digest(source, **backbone.preprocessing.to_dict()),
        "backbone": backbone.name,
        "settings": settings.to_dict(),
    }
    trainer = Trainer(
        task, inputs, schedule, batch_size=batch_size, seed=seed, device=where,
        label="Pretraining", show=("loss", "instance_accuracy"), identity=identity,
        checkpoint=None if folder is None else folder / file,
        checkpoint_seconds=CHECKPOINT_SECONDS, checkpoint_midway=False,
    )  # fmt: skip
    history = trainer.run(resume)
    epochs = trainer.step / schedule.steps_per_epoch
    return Pretrained(task.export(trainer.step), history, epochs, trainer.seconds, failures)


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
    """Run a pretraining for each of `stages`, settings by name, from the weights of the previous.

    Each stage has its own checkpoint, and `resume` skips completed stages. Epochs, seconds and
    history are those of all stages together.
    """
    history: list[dict[str, Any]] = []
    epochs = seconds = 0.0
    for number, changes in enumerate(stages):
        size, trained = backbone.preprocessing.size, backbone.origin != "random"
        done = pretrain(
            backbone, source, pretrain_settings(size, trained, changes), device=device, seed=seed,
            folder=folder, file=f"stage-{number}.safetensors", resume=resume,
        )  # fmt: skip
        history += [entry | {"seconds": seconds + entry["seconds"]} for entry in done.history]
        epochs, seconds = epochs + done.epochs, seconds + done.seconds
    return replace(done, history=history, epochs=epochs, seconds=seconds)
