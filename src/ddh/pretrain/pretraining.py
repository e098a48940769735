"""`pretrain` runs one objective, `pretrain_stages` several in sequence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ddh._core.errors import InputError
from ddh.backbones import Backbone
from ddh.images import Failure, ImageSource
from ddh.pretrain.pixel_cache import open_pixels
from ddh.pretrain.schedule import PretrainSchedule
from ddh.pretrain.settings import PretrainSettings, pretrain_settings
from ddh.pretrain.task import OnEval, PretrainTask
from ddh.pretrain.view_inputs import ViewInputs
from ddh.train.device import choose
from ddh.train.identity import images_digest
from ddh.train.trainer import Trainer

FILE = "pretraining.safetensors"
CHECKPOINT_SECONDS = 60
MIN_IMAGES = 8

Stages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Pretrained:
    """Result of a pretraining.

    Attributes
    ----------
    backbone : Backbone
        The caller's backbone, trained in place.
    history : list of dict
        Loss and diagnostics at each evaluation.
    epochs, seconds : float
        Length of the training.
    failures : list of Failure
        Images that could not be read.
    """

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
    file: str = FILE,
    resume: bool = False,
    on_eval: OnEval | None = None,
) -> Pretrained:
    """Train a backbone on images without labels.

    Parameters
    ----------
    backbone : Backbone
        Trained in place.
    source : ImageSource
        The images; those that cannot be read are left out.
    settings : PretrainSettings
        See `pretrain_settings`.
    device : str
        "auto", "cpu", "cuda" or "mps".
    seed : int
        Seed of all random draws.
    folder : Path, optional
        Where decoded images and, every minute, a checkpoint `file` are written.
    resume : bool
        Continue from the checkpoint, if there is one. A time budget counts the minutes of all
        runs together. With `epochs`, a resumed run on a CPU ends with the same weights as an
        uninterrupted one.
    on_eval : callable, optional
        Called with the backbone so far and the diagnostics, twenty times per run and at the end of
        each round.

    Returns
    -------
    Pretrained
    """
    where = choose(device)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    pixels = open_pixels(source, backbone.preprocessing, where, folder)
    n = len(pixels)
    if n < MIN_IMAGES:
        raise InputError(f"pretraining needs at least {MIN_IMAGES} images, there are {n}")
    batch_size = min(settings.batch_size, n)
    schedule = PretrainSchedule(settings, n // batch_size)
    inputs = ViewInputs(pixels, backbone, settings)
    task = PretrainTask(inputs, schedule, seed, on_eval)
    torch.backends.cudnn.benchmark |= where.type == "cuda"  # all batches have the same shape
    trainer = Trainer(
        task, inputs, schedule, batch_size=batch_size, seed=seed, device=where,
        label="Pretraining",
        checkpoint=None if folder is None else folder / file,
        identity={
            "data": images_digest(source, **backbone.preprocessing.to_dict()),
            "backbone": backbone.name,
            "settings": settings.to_dict(),
        },
        checkpoint_seconds=CHECKPOINT_SECONDS, checkpoint_midway=False,
        show=("loss", "instance_accuracy"),
    )  # fmt: skip
    history = trainer.run(resume)
    epochs = trainer.step / schedule.steps_per_epoch
    return Pretrained(task.export(trainer.step), history, epochs, trainer.seconds, pixels.failures)


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
    """Run several pretrainings in sequence, each from the weights of the previous one.

    Parameters
    ----------
    stages : sequence of mappings
        Settings of each stage by name, see `pretrain_settings`.
    backbone, source, device, seed, folder, resume
        As in `pretrain`; each stage has its own checkpoint, and `resume` skips completed stages.

    Returns
    -------
    Pretrained
        Epochs, seconds and history of all stages together.
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
