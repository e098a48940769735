"""`pretrain` trains a backbone by one objective, `pretrain_stages` by several in sequence."""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ddh._core.errors import DDHError, DDHWarning, InputError
from ddh.backbones import Backbone
from ddh.images import Failure, ImageSource
from ddh.pretrain.diagnostics import SAMPLE, agreement, diagnostics, neighbours
from ddh.pretrain.inputs import ViewInputs, Views, decode
from ddh.pretrain.muon import Muon, scale_random_weights
from ddh.pretrain.neighbour_positives import NeighbourPositives, find_neighbour_positives
from ddh.pretrain.recipe import TINY, Stages
from ddh.pretrain.schedule import PretrainSchedule
from ddh.pretrain.settings import (
    PretrainSettings,
    SelfSupervised,
    objective_class,
    pretrain_settings,
)
from ddh.pretrain.transforms import ViewSettings
from ddh.train.device import choose, compiled, largest_batch, supports_bfloat16
from ddh.train.identity import RunIdentity
from ddh.train.network import freeze
from ddh.train.trainer import Trainer, TrainingTask

EVALUATIONS = 20  # per run, and one at the end of each round
FEATURE_BATCH = 512
CHECKPOINT_SECONDS = 60
COMPILED_MINUTES = 5  # from which compiling a network for photographs, a minute, pays for itself
MIN_IMAGES = 8
# where a run is counted in steps:
STEPS_PER_EPOCH = 5  # or more
LEAST_SAMPLE, VISITS = 10_000, 20  # images it draws at least; how often each of more is seen
MODERATE = ViewSettings(min_scale=0.35, jitter=0.3)  # by which neighbours are judged

OnEval = Callable[[Backbone, dict[str, Any]], None]


@dataclass(frozen=True)
class Pretrained:
    """A trained backbone, the diagnostics along the way, and the images that were left out.

    `improved` is False if the backbone has its initial weights, which training has not improved;
    `images` is the number of images that it was trained on.
    """

    backbone: Backbone
    improved: bool
    history: list[dict[str, Any]]
    epochs: float
    seconds: float
    images: int
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

    A run that is counted in steps draws a sample of a large collection, so that each image of it
    is seen ten times or more.

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
    source = _sample(source, settings, seed)
    pixels, failures = decode(source, backbone.preprocessing, folder)
    n = len(pixels)
    if n < MIN_IMAGES:
        raise InputError(f"pretraining needs at least {MIN_IMAGES} images, there are {n}")
    batch_size = min(settings.batch_size, n)
    if settings.steps is not None:
        batch_size = min(batch_size, max(2, n // STEPS_PER_EPOCH))
    torch.backends.cudnn.benchmark |= where.type == "cuda"  # all batches have the same shape
    inputs = ViewInputs(pixels, backbone, settings, where)
    task = PretrainTask(inputs, _schedule(settings, batch_size, n), seed, on_eval)
    fitting = batch_size
    if where.type == "cuda":
        fitting = task.fitting_batch(batch_size)
    if fitting < batch_size:
        warnings.warn(
            f"the GPU's memory is too small for {batch_size} images at once: {fitting} are taken",
            DDHWarning,
            stacklevel=2,
        )
        batch_size, task.schedule = fitting, _schedule(settings, fitting, n)
    schedule = task.schedule
    identity = RunIdentity.of_images(source, backbone, settings=settings.to_dict()).values
    trainer = Trainer(
        task, inputs, schedule, batch_size=batch_size, seed=seed, device=where,
        label="Pretraining", show=("loss", "instance_accuracy"), identity=identity,
        checkpoint=None if folder is None else folder / file,
        checkpoint_seconds=CHECKPOINT_SECONDS, checkpoint_midway=False,
    )  # fmt: skip
    history = trainer.run(resume)
    epochs = trainer.step / schedule.steps_per_epoch
    improved = task.is_better()
    network = task.export(trainer.step) if improved else task.restore()
    return Pretrained(network, improved, history, epochs, trainer.seconds, n, failures)


def _sample(source: ImageSource, settings: PretrainSettings, seed: int) -> ImageSource:
    """As many images as a run that is counted in steps can see often enough, or all."""
    if settings.steps is None:
        return source
    most = max(LEAST_SAMPLE, settings.steps * settings.batch_size // VISITS)
    if len(source) <= most:
        return source
    return source.take(np.sort(np.random.default_rng(seed).permutation(len(source))[:most]))


def _schedule(settings: PretrainSettings, batch_size: int, images: int) -> PretrainSchedule:
    return PretrainSchedule(replace(settings, batch_size=batch_size), images // batch_size)


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
    epochs, seconds, improved = 0.0, 0.0, False
    size, trained = backbone.preprocessing.size, backbone.origin != "random"
    plans = [
        pretrain_settings(size, trained or number > 0, stage, len(source))
        for number, stage in enumerate(stages)
    ]
    for number, plan in enumerate(plans):
        done = pretrain(
            backbone, source, plan, device=device, seed=seed,
            folder=folder, file=f"stage-{number}.safetensors", resume=resume,
        )  # fmt: skip
        history += [entry | {"seconds": seconds + entry["seconds"]} for entry in done.history]
        epochs, seconds = epochs + done.epochs, seconds + done.seconds
        improved |= done.improved
    return replace(done, improved=improved, history=history, epochs=epochs, seconds=seconds)


class PretrainTask(TrainingTask):
    """Trains a backbone by the objective of the settings."""

    def __init__(
        self, inputs: ViewInputs, schedule: PretrainSchedule, seed: int, on_eval: OnEval | None
    ) -> None:
        self.inputs, self.schedule, self.seed, self.on_eval = inputs, schedule, seed, on_eval
        self.settings, self.backbone = inputs.settings, inputs.backbone
        self.device = inputs.device
        self.initial_origin = self.backbone.origin
        if self.settings.muon_step and self.initial_origin == "random":
            scale_random_weights(self.backbone)
        make = objective_class(self.settings.objective)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = make(self.backbone, self.settings, len(inputs))
        self.backbone.requires_grad_(True)
        self.objective: SelfSupervised = made.to(  # type: ignore[call-overload]
            self.device, memory_format=torch.channels_last
        ).train()
        steps: float = schedule.total
        if (minutes := self.settings.minutes) is not None:
            steps = math.inf if inputs.size <= TINY or minutes >= COMPILED_MINUTES else 0
        self.forward = compiled(self.objective, self.device, steps)
        self.half = self.device.type == "cuda" and supports_bfloat16(self.device)
        self.feature_batch = FEATURE_BATCH
        self.step = 0
        self.initial = copy.deepcopy(self.backbone).cpu() if self.settings.keep_better else None
        self.initial_agreement: float | None = None
        self.round = -1  # the last one that has begun
        self.round_seconds = 0.0  # that its preparation took
        self.positives_step = 0  # at which the neighbours were found
        self.neighbours: Tensor | None = None  # of the sample, at the last evaluation

    def modules(self) -> dict[str, nn.Module]:
        return {"objective": self.objective}

    def optimiser(self) -> torch.optim.Optimizer:
        """SGD for all, or Muon for matrices."""
        settings, momentum = self.settings, self.settings.momentum
        learning = [p for p in self.objective.parameters() if p.requires_grad]
        matrices, others = [p for p in learning if p.ndim > 1], [p for p in learning if p.ndim <= 1]
        if settings.muon_step:
            scale = settings.muon_step / self.schedule.peak
            return Muon(matrices, others, step_scale=scale, momentum=momentum)
        groups: list[dict[str, Any]] = [
            {"params": matrices},
            {"params": others, "weight_decay": settings.weight_decay * settings.decay_all},
        ]
        return torch.optim.SGD(
            groups, lr=0.0, momentum=momentum, weight_decay=settings.weight_decay
        )

    def loss(self, batch: Views, rows: Tensor, progress: float) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            return self.forward(*batch, rows)

    def try_batch(self, size: int) -> None:
        """Gradients of a batch, to see whether it fits the memory."""
        rows, views = next(self.inputs.batches([np.arange(size)], [self.seed]))
        self.loss(views, rows, 0.0).backward()

    def fitting_batch(self, size: int) -> int:
        """`size` images, or as many as fit the memory, of which features are then extracted too."""
        fitting = largest_batch(size, self.try_batch, self.objective)
        if fitting < size:
            self.feature_batch = min(self.feature_batch, fitting)
        return fitting

    def after_step(self, progress: float) -> None:
        self.step += 1
        self.objective.after_step(self.schedule.round_progress(self.step))

    def begin_segment(self, trainer: Trainer) -> None:
        """Begin a new round, and find neighbours, when it is time."""
        schedule, settings, self.step = self.schedule, self.settings, trainer.step
        if settings.keep_better and self.initial_agreement is None:
            self.initial_agreement = self._agreement()
        number = schedule.round(self.step)
        if self.objective.needs_features and number > self.round:
            started = time.monotonic()
            self.objective.begin_round(self._features(mirror=True), self.seed + number)
            trainer.optimiser = self.optimiser()  # without momentum
            self.round, self.round_seconds = number, time.monotonic() - started
        schedule.reserved = self.round_seconds * (schedule.rounds - 1 - max(0, self.round))
        age = schedule.progress(self.step - self.positives_step)
        stale = self.inputs.positives is None or age >= settings.neighbours_refresh
        if stale and schedule.progress(self.step) >= settings.neighbours_from:
            device = "cuda" if self.device.type == "cuda" else None
            self.inputs.positives = find_neighbour_positives(
                self._features(), settings.k1, settings.min_overlap, device
            )
            self.positives_step = self.step

    def end_segment(self, trainer: Trainer, entry: dict[str, Any]) -> dict[str, Any] | None:
        """Measure the features without labels, twenty times per run and after each round."""
        schedule, step = self.schedule, trainer.step
        last = trainer.history[-1]["step"] if trainer.history else 0
        if not (
            step >= schedule.total
            or schedule.round(step) > schedule.round(step - 1)
            or step - last >= max(1, schedule.total // EVALUATIONS)
        ):
            return None
        first, second = self._sample_features()
        found = diagnostics(first, second, self.neighbours)
        self.neighbours = neighbours(first.double())
        entry |= {
            "objective": self.settings.objective,
            "step": step,
            "progress": schedule.progress(step),
            "round": schedule.round(step - 1),
            "seconds": round(trainer.seconds, 1),
            "learning_rate": schedule.learning_rate(step),
        }
        entry |= asdict(found) | self.objective.diagnostics()
        if self.on_eval is not None:
            self.objective.result.origin = self._origin()
            self.on_eval(self.objective.result, entry)
        if found.collapsed:
            raise DDHError(
                f"the network has collapsed at step {step}: its features have a standard deviation "
                f"of {found.spread:.3f} over {found.rank:.1f} dimensions, so images can no longer "
                "be told apart. Start again with a lower learning rate (it is "
                f"{self.settings.learning_rate}), a larger batch (it is {trainer.batch_size}), or "
                f"more images (there are {len(self.inputs)})"
            )
        return entry

    def is_better(self) -> bool:
        """Whether the result is to be preferred to the initial weights; says so if it is not."""
        if not self.settings.keep_better or self.initial_agreement is None:
            return True
        before, after = self.initial_agreement, self._agreement()
        if after > before:
            return True
        warnings.warn(
            "the initial weights are kept: after training, the neighbours of images by one view "
            f"and by another agree no better ({after:.3f}) than before ({before:.3f}). Train for "
            "longer, or take the new weights all the same with keep_better=False",
            DDHWarning,
            stacklevel=3,
        )
        return False

    def _agreement(self) -> float:
        return agreement(*self._sample_features((MODERATE, MODERATE)))

    @torch.no_grad()
    def _sample_features(
        self, transforms: tuple[ViewSettings, ViewSettings] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Features of two fixed views of a sample, those of the objective by default."""
        n = len(self.inputs)
        sample = np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.int64)
        pairs = []
        for number, batch in enumerate(self._batches(sample)):
            views = self.inputs.views(torch.cat([batch, batch]), number, transforms)
            pairs.append([self._result_features(view) for view in views])
        first, second = zip(*pairs, strict=True)
        return torch.cat(first), torch.cat(second)

    @torch.no_grad()
    def _features(self, mirror: bool = False) -> NDArray[np.float32]:
        """Features of all images, or the mean of these and of their mirror images'."""
        found, size = [], self.inputs.size
        for batch in self._batches(np.arange(len(self.inputs))):
            x = batch.permute(0, 3, 1, 2).float()
            if x.shape[2] != size:  # cached images may be larger than the network's input
                x = interpolate(x, (size, size), mode="bicubic", antialias=True).clamp(0, 255)
            x = self.inputs.normalised(x).contiguous(memory_format=torch.channels_last)
            features = self._result_features(x)
            found.append((features + self._result_features(x.flip(3))) / 2 if mirror else features)
        return torch.cat(found).cpu().numpy()

    def _batches(self, rows: NDArray[np.int64]) -> Iterator[Tensor]:
        parts = np.array_split(rows, math.ceil(len(rows) / self.feature_batch))
        return self.inputs.images(parts)

    def _result_features(self, x: Tensor) -> Tensor:
        """Features by the network that would be exported now."""
        network = self.objective.result
        training = network.training
        network.eval()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            features: Tensor = network(x).float()
        network.train(training)
        return features

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        names = ("round", "round_seconds", "positives_step", "initial_agreement")
        tensors = {} if self.neighbours is None else {"neighbours": self.neighbours}
        if self.inputs.positives is not None:
            graph = self.inputs.positives.graph
            tensors["indptr"] = torch.from_numpy(graph.indptr)
            tensors["indices"] = torch.from_numpy(graph.indices)
        return {name: getattr(self, name) for name in names}, tensors

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        if "neighbours" in tensors:
            self.neighbours = tensors["neighbours"].to(self.device)
        if "indptr" in tensors:
            indptr, indices = tensors["indptr"].numpy(), tensors["indices"].numpy()
            n = len(self.inputs)
            graph = sparse.csr_array((np.ones(len(indices), bool), indices, indptr), (n, n))
            self.inputs.positives = NeighbourPositives(graph)

    def export(self, steps: int) -> Backbone:
        """The trained weights in the caller's backbone, on the CPU, ready to extract features."""
        self.step = steps
        self.backbone.origin = self._origin()
        return self._finished(self.objective.result)

    def restore(self) -> Backbone:
        """The initial weights in the caller's backbone, likewise."""
        assert self.initial is not None
        return self._finished(self.initial)

    def _finished(self, network: Backbone) -> Backbone:
        weights = {name: value.cpu() for name, value in network.state_dict().items()}
        self.backbone.cpu().load_state_dict(weights)
        freeze(self.backbone)
        return self.backbone

    def _origin(self) -> str:
        epochs = self.step / self.schedule.steps_per_epoch
        return f"{self.settings.objective} for {epochs:.0f} epochs from {self.initial_origin}"
