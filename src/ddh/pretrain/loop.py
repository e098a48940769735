"""The pretraining run: two views of every picture, one step after another, to the plan's end."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import interpolate

from ddh._core.errors import DDHError, InputError
from ddh._core.progress import bar
from ddh.backbones import Backbone
from ddh.images import Failure, ImageSource
from ddh.pretrain.diagnostics import SAMPLE, Diagnostics, diagnostics, neighbours
from ddh.pretrain.neighbour_positives import NeighbourPositives, find_neighbour_positives
from ddh.pretrain.objective import SelfSupervised
from ddh.pretrain.pixel_cache import PixelCache, open_pixels
from ddh.pretrain.plan import TRIAL_STEPS, Plan
from ddh.pretrain.settings import PretrainSettings, objective_class
from ddh.pretrain.transforms import random_view
from ddh.train import checkpoint_io
from ddh.train.device import choose, supports_bfloat16
from ddh.train.network import freeze

FILE = "pretraining.safetensors"
EVALUATIONS = 20  # at the signs of progress, in a whole run, and one at the end of each round
VIEW_BYTES = 64 << 20  # of the views that are made at once
CHECKPOINT_SECONDS = 60
COMPILED_STEPS = 1000  # from so many steps on a GPU, compiling pays for itself
MIN_IMAGES = 8
FEATURE_BATCH = 512


@dataclass(frozen=True)
class Pretrained:
    """What a pretraining leaves: the backbone is trained in place."""

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
    on_eval: Callable[[Backbone, dict[str, Any]], None] | None = None,
) -> Pretrained:
    """Train `backbone` on the pictures alone.

    With `folder` a checkpoint is written there every minute, to `file`, and `resume` goes on from
    it within the same plan: a time budget counts the minutes of all runs together. With `epochs`,
    a resumed run on a CPU ends with the same weights as one that was never interrupted. `on_eval`
    is called twenty times in a run and at the end of each round, with the network as it would be
    handed over and the signs of that moment.
    """
    where = choose(device)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    pictures = open_pixels(source, backbone.preprocessing, where, folder)
    checkpoint = None if folder is None else folder / file
    run = _Run(backbone, pictures, settings, where, seed, checkpoint, on_eval)
    if resume:
        run.resume()
    run.to_the_end()
    return Pretrained(
        run.export(), run.history, run.step / run.plan.steps_per_epoch, run.seconds,
        pictures.failures,
    )  # fmt: skip


@dataclass
class _Run:
    backbone: Backbone
    pictures: PixelCache
    settings: PretrainSettings
    device: torch.device
    seed: int
    checkpoint: Path | None
    on_eval: Callable[[Backbone, dict[str, Any]], None] | None = None
    step: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.pictures)
        if n < MIN_IMAGES:
            raise InputError(f"pretraining needs at least {MIN_IMAGES} pictures, there are {n}")
        self.batch = min(self.settings.batch_size, n)
        self.plan = Plan(self.settings, n // self.batch)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            objective = objective_class(self.settings.objective)(self.backbone, self.settings, n)
        self.begun_from = self.backbone.origin
        self.backbone.requires_grad_(True)
        self.objective: SelfSupervised = objective.to(  # type: ignore[call-overload]
            self.device, memory_format=torch.channels_last
        ).train()
        self.half = self.device.type == "cuda" and supports_bfloat16(self.device)
        self.optimiser = self._optimiser()
        self.sample = np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.int64)
        self.seen: Tensor | None = None  # the neighbours of the last look
        self.compiled: Any = None
        self.positives: NeighbourPositives | None = None
        self.found_at = 0  # the step at which the partners were found
        self.round = -1  # the last one that has begun
        self.round_seconds = 0.0  # that its beginning took

    def _optimiser(self) -> torch.optim.SGD:
        """SGD; biases and batch norms do not decay."""
        learning = [p for p in self.objective.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": [p for p in learning if p.ndim > 1]},
            {"params": [p for p in learning if p.ndim <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.SGD(
            groups, lr=0.0, momentum=self.settings.momentum, weight_decay=self.settings.weight_decay
        )

    # -- the loop -------------------------------------------------------------------------

    def to_the_end(self) -> None:
        """Run what is left of the plan."""
        self.compiled = self._compiled()
        saved = time.monotonic()
        with bar("Pretraining", total=self.plan.total, unit="step") as progress:
            progress.update(self.step)
            while self.step < self.plan.total:
                loss = self._some_steps(progress)
                if not math.isfinite(loss):
                    raise DDHError(
                        f"the loss is {loss} at step {self.step} of the pretraining; lower the "
                        f"learning rate (it is {self.settings.learning_rate})"
                    )
                if self._evaluation_due() or self.step >= self.plan.total:
                    self._evaluate(loss)
                shown = self.history[-1] if self.history else {}
                progress.set_postfix(
                    loss=f"{loss:.3f}",
                    instance_accuracy=f"{shown.get('instance_accuracy', 0):.2f}",
                    refresh=False,
                )
                if self.checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                    self.save()
                    saved = time.monotonic()
        self.save()

    def _compiled(self) -> Any:
        long = self.plan.timed or self.plan.total - self.step >= COMPILED_STEPS
        if self.device.type == "cuda" and long:
            torch.backends.cudnn.benchmark = True  # batches have one shape: the quickest kernels
            return torch.compile(self.objective)
        return self.objective

    def _some_steps(self, progress: Any) -> float:
        """To the end of the epoch, of the round, or of the trial before the first plan; the mean
        loss."""
        epoch, at = divmod(self.step, self.plan.steps_per_epoch)
        last = min(self.plan.steps_per_epoch, at + self.plan.total - self.step)
        if self.plan.timed and self.step < TRIAL_STEPS:
            last = min(last, at + TRIAL_STEPS - self.step)
        last = min(last, at + self.plan.round_ends(self.step) - self.step)
        self._begin_round()
        self._find_positives()
        parts = self._parts(epoch)[at:last]
        total = torch.zeros((), device=self.device)
        started, halfway = time.monotonic(), len(parts) // 2
        for done, batch in enumerate(self._batches(parts, epoch)):
            if done == halfway:  # the first steps may have compiled the network
                self._wait()
                middle = time.monotonic()
            total += self._one_step(*batch)
            progress.update(1)
        mean = float(total) / len(parts)  # waits for the device
        ended = time.monotonic()
        self.seconds += ended - started
        reserved = self.round_seconds * (self.settings.rounds - 1 - max(0, self.round))
        a_step = (ended - middle) / (len(parts) - halfway)
        self.plan.fit_budget(self.step, self.seconds + reserved, a_step)
        progress.expect(self.plan.total)
        return mean

    def _parts(self, epoch: int) -> list[NDArray[np.int64]]:
        """The batches of an epoch; what is left of the last, smaller one is for another epoch."""
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.pictures))
        whole = self.plan.steps_per_epoch * self.batch
        return np.split(order[:whole], self.plan.steps_per_epoch)

    def _batches(
        self, parts: list[NDArray[np.int64]], epoch: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Two views of each part's pictures, and which ones they are.

        Views of small pictures are made for several steps at once: each is many short operations.
        """
        at_once = max(1, VIEW_BYTES // (12 * self.batch * self.backbone.preprocessing.size**2))
        groups = [np.concatenate(parts[i : i + at_once]) for i in range(0, len(parts), at_once)]
        pairs = [self._with_positives(group, epoch) for group in groups]
        for group, pictures in zip(groups, self.pictures.batches(pairs), strict=True):
            views = self._views(pictures, self._generator(self.step))
            rows = torch.from_numpy(group).to(self.device)
            yield from zip(*(whole.split(self.batch) for whole in (*views, rows)), strict=True)

    def _with_positives(self, part: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """The pictures of a batch, then those that stand for their second views."""
        if self.positives is None:
            return np.concatenate([part, part])
        rng = np.random.default_rng((self.seed, epoch, int(part[0])))
        return np.concatenate([part, self.positives.draw(part, self.settings.neighbours_prob, rng)])

    def _begin_round(self) -> None:
        """What the objective does before a round, where a new one begins; a fresh optimiser."""
        number = self.plan.round(self.step)
        if not self.objective.needs_features or number <= self.round:
            return
        started = time.monotonic()
        self.objective.begin_round(self._features(mirror=True), self.seed + number)
        self.optimiser = self._optimiser()
        self.round = number
        self.round_seconds = time.monotonic() - started
        self.seconds += self.round_seconds

    def _find_positives(self) -> None:
        """Neighbours by the features of now, where it is time for them."""
        share, settings = self.plan.progress(self.step), self.settings
        if share < settings.neighbours_from:
            return
        old = self.plan.progress(self.step - self.found_at)
        if self.positives is None or old >= settings.neighbours_refresh:
            started = time.monotonic()
            on = "cuda" if self.device.type == "cuda" else None
            self.positives = find_neighbour_positives(
                self._features(), settings.k1, settings.min_overlap, on
            )
            self.found_at = self.step
            self.seconds += time.monotonic() - started

    def _one_step(self, first: Tensor, second: Tensor, rows: Tensor) -> Tensor:
        for group in self.optimiser.param_groups:
            group["lr"] = self.plan.rate(self.step)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            loss = self.compiled(first, second, rows)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        self.step += 1
        self.objective.after_step(self.plan.round_progress(self.step))
        return loss.detach()

    def _generator(self, number: int) -> torch.Generator:
        drawn = np.random.SeedSequence((self.seed, number)).generate_state(2, np.uint32)
        seed = int(drawn[0]) << 31 ^ int(drawn[1])
        return torch.Generator(self.device).manual_seed(seed)

    def _views(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Views of the first half of the batch and of their partners in the second."""
        size = self.backbone.preprocessing.size
        first, second = (
            self._normalised(random_view(part, size, view, generator))
            for view, part in zip(self.settings.views, batch.chunk(2), strict=True)
        )
        return first, second

    def _normalised(self, pixels: Tensor) -> Tensor:
        """Of values in [0, 1]."""
        return (255 * pixels - self.backbone.pixel_mean) / self.backbone.pixel_std

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    # -- signs of progress ----------------------------------------------------------------

    def _evaluation_due(self) -> bool:
        if self.plan.round(self.step) > self.plan.round(self.step - 1):
            return True  # the end of a round
        looks = max(1, self.plan.total // EVALUATIONS)
        last = self.history[-1]["step"] if self.history else 0
        return self.step - last >= looks

    def _evaluate(self, loss: float) -> None:
        first, second = self._sample_features()
        seen = neighbours(first.double())
        found = diagnostics(first, second, self.seen)
        self.seen = seen
        entry = {
            "objective": self.settings.objective,
            "step": self.step,
            "progress": self.plan.progress(self.step),
            "round": self.plan.round(self.step - 1),
            "epoch": round(self.step / self.plan.steps_per_epoch, 2),
            "seconds": round(self.seconds, 1),
            "loss": loss,
            "learning_rate": self.plan.rate(self.step),
        }
        self.history.append(entry | found.to_dict() | self.objective.diagnostics())
        if self.on_eval is not None:
            self.objective.result.origin = self._origin()
            self.on_eval(self.objective.result, self.history[-1])
        if found.collapsed:
            raise DDHError(self._collapse(found))

    def _collapse(self, found: Diagnostics) -> str:
        return (
            f"the network has collapsed at step {self.step}: features spread {found.spread:.3f} "
            f"over {found.rank:.1f} dimensions, so pictures can no longer be told apart. Start "
            f"again with a lower learning rate (it is {self.settings.learning_rate}), a larger "
            f"batch (it is {self.batch}), or more pictures (there are {len(self.pictures)})"
        )

    @torch.no_grad()
    def _sample_features(self) -> tuple[Tensor, Tensor]:
        """Features of two fixed views of the sample, by the network as it would be handed over."""
        parts = np.array_split(self.sample, math.ceil(len(self.sample) / 256))
        pairs = []
        for number, batch in enumerate(self.pictures.batches(parts)):
            views = self._views(torch.cat([batch, batch]), self._generator(number))
            pairs.append([self._result_features(view) for view in views])
        first, second = zip(*pairs, strict=True)
        return torch.cat(first), torch.cat(second)

    @torch.no_grad()
    def _features(self, mirror: bool = False) -> NDArray[np.float32]:
        """Features of all pictures as they are, or means of theirs and their mirror images'."""
        n = len(self.pictures)
        parts = np.array_split(np.arange(n), math.ceil(n / FEATURE_BATCH))
        found = []
        for batch in self.pictures.batches(parts):
            x = self.backbone.normalise(self._resized(batch))
            features = self._result_features(x)
            found.append((features + self._result_features(x.flip(3))) / 2 if mirror else features)
        return torch.cat(found).cpu().numpy()

    def _resized(self, batch: Tensor) -> Tensor:
        """Kept pictures are not always of the size of the network's input."""
        size = self.backbone.preprocessing.size
        if batch.shape[1:3] == (size, size):
            return batch
        x = batch.permute(0, 3, 1, 2).float()
        x = interpolate(x, (size, size), mode="bicubic", antialias=True)
        return x.round().clamp(0, 255).byte().permute(0, 2, 3, 1)

    def _result_features(self, pixels: Tensor) -> Tensor:
        """By the network as it would be handed over."""
        network = self.objective.result
        training = network.training
        network.eval()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            features = network(pixels).float()
        network.train(training)
        return features

    # -- checkpoints ----------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        return {
            "images": len(self.pictures),
            "backbone": self.backbone.name,
            "size": self.backbone.preprocessing.size,
            "settings": self.settings.to_dict(),
            "seed": self.seed,
        }

    def save(self) -> None:
        """Write a checkpoint, where there is a place for it."""
        if self.checkpoint is None:
            return
        state = self._identity() | {
            "step": self.step,
            "total": self.plan.total,
            "seconds": self.seconds,
            "history": self.history,
            "found_at": self.found_at,
            "begun": self.round,
            "round_seconds": self.round_seconds,
        }
        tensors = checkpoint_io.collect({"objective": self.objective}, self.optimiser)
        if self.seen is not None:
            tensors["seen"] = self.seen
        if self.positives is not None:
            graph = self.positives.graph
            tensors["positives.starts"] = torch.from_numpy(graph.indptr)
            tensors["positives.rows"] = torch.from_numpy(graph.indices)
        checkpoint_io.write(self.checkpoint, tensors, state)

    def resume(self) -> None:
        """Go on from a checkpoint, where there is one."""
        if self.checkpoint is None:
            return
        found = checkpoint_io.read(self.checkpoint, self._identity())
        if found is None:
            return
        state, tensors = found
        checkpoint_io.restore(tensors, {"objective": self.objective}, self.optimiser)
        self.step, self.seconds = state["step"], state["seconds"]
        self.plan.total, self.history = state["total"], state["history"]
        self.found_at = state["found_at"]
        self.round, self.round_seconds = state["begun"], state["round_seconds"]
        if "seen" in tensors:
            self.seen = tensors["seen"].to(self.device)
        if "positives.rows" in tensors:
            starts, rows = (tensors[f"positives.{name}"].numpy() for name in ("starts", "rows"))
            n = len(self.pictures)
            self.positives = NeighbourPositives(
                sparse.csr_array((np.ones(len(rows), np.int8), rows, starts), shape=(n, n))
            )

    def export(self) -> Backbone:
        """The trained weights in the caller's backbone, on the CPU, ready for features."""
        trained = {k: v.cpu() for k, v in self.objective.result.state_dict().items()}
        self.backbone.cpu().load_state_dict(trained)
        freeze(self.backbone)
        self.backbone.origin = self._origin()
        return self.backbone

    def _origin(self) -> str:
        epochs = self.step / self.plan.steps_per_epoch
        return f"{self.settings.objective} for {epochs:.0f} epochs from {self.begun_from}"
