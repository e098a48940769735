"""Pretraining as a task of the `Trainer`: objective, rounds, neighbours, evaluation."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ddh._core.errors import DDHError
from ddh.backbones import Backbone
from ddh.pretrain.diagnostics import SAMPLE, diagnostics, neighbours
from ddh.pretrain.inputs import ViewInputs, Views
from ddh.pretrain.neighbour_positives import NeighbourPositives, find_neighbour_positives
from ddh.pretrain.objective import SelfSupervised
from ddh.pretrain.schedule import PretrainSchedule
from ddh.pretrain.settings import objective_class
from ddh.train.device import compiled, supports_bfloat16
from ddh.train.network import freeze
from ddh.train.trainer import Trainer, TrainingTask

EVALUATIONS = 20  # per run, and one at the end of each round
FEATURE_BATCH = 512

OnEval = Callable[[Backbone, dict[str, Any]], None]


class PretrainTask(TrainingTask):
    """Trains a backbone by the objective of the settings."""

    def __init__(
        self, inputs: ViewInputs, schedule: PretrainSchedule, seed: int, on_eval: OnEval | None
    ) -> None:
        self.inputs, self.schedule, self.seed, self.on_eval = inputs, schedule, seed, on_eval
        self.settings, self.backbone = inputs.settings, inputs.backbone
        self.device = inputs.pixels.device
        self.initial_origin = self.backbone.origin
        make = objective_class(self.settings.objective)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = make(self.backbone, self.settings, len(inputs))
        self.backbone.requires_grad_(True)
        self.objective: SelfSupervised = made.to(  # type: ignore[call-overload]
            self.device, memory_format=torch.channels_last
        ).train()
        steps = math.inf if schedule.is_timed else schedule.total
        self.forward = compiled(self.objective, self.device, steps)
        self.half = self.device.type == "cuda" and supports_bfloat16(self.device)
        self.step = 0
        self.round = -1  # the last one that has begun
        self.round_seconds = 0.0  # that its preparation took
        self.positives_step = 0  # at which the neighbours were found
        self.neighbours: Tensor | None = None  # of the sample, at the last evaluation

    def modules(self) -> dict[str, nn.Module]:
        return {"objective": self.objective}

    def optimiser(self) -> torch.optim.Optimizer:
        """SGD; biases and batch norms are not decayed."""
        learning = [p for p in self.objective.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": [p for p in learning if p.ndim > 1]},
            {"params": [p for p in learning if p.ndim <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.SGD(
            groups, lr=0.0, momentum=self.settings.momentum, weight_decay=self.settings.weight_decay
        )

    def loss(self, batch: Views, rows: Tensor, progress: float) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            loss: Tensor = self.forward(*batch, rows)
        return loss

    def after_step(self, progress: float) -> None:
        self.step += 1
        self.objective.after_step(self.schedule.round_progress(self.step))

    def begin_segment(self, trainer: Trainer) -> None:
        """Begin a new round, and find neighbours, when it is time."""
        schedule, settings, self.step = self.schedule, self.settings, trainer.step
        number = schedule.round(self.step)
        if self.objective.needs_features and number > self.round:
            started = time.monotonic()
            self.objective.begin_round(self._features(mirror=True), self.seed + number)
            trainer.reset_optimiser()
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

    @torch.no_grad()
    def _sample_features(self) -> tuple[Tensor, Tensor]:
        """Features of two fixed views of a sample."""
        n = len(self.inputs)
        sample = np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.int64)
        pairs = []
        for number, batch in enumerate(self._batches(sample)):
            views = self.inputs.views(torch.cat([batch, batch]), number)
            pairs.append([self._result_features(view) for view in views])
        first, second = zip(*pairs, strict=True)
        return torch.cat(first), torch.cat(second)

    @torch.no_grad()
    def _features(self, mirror: bool = False) -> NDArray[np.float32]:
        """Features of all images, or the mean of these and of their mirror images'."""
        found, size = [], self.backbone.preprocessing.size
        for batch in self._batches(np.arange(len(self.inputs))):
            x = batch.permute(0, 3, 1, 2).float()
            if x.shape[2] != size:  # cached images may be larger than the network's input
                x = interpolate(x, (size, size), mode="bicubic", antialias=True).clamp(0, 255)
            x = self.inputs.normalised(x).contiguous(memory_format=torch.channels_last)
            features = self._result_features(x)
            found.append((features + self._result_features(x.flip(3))) / 2 if mirror else features)
        values: NDArray[np.float32] = torch.cat(found).cpu().numpy()
        return values

    def _batches(self, rows: NDArray[np.int64]) -> Iterator[Tensor]:
        parts = np.array_split(rows, math.ceil(len(rows) / FEATURE_BATCH))
        return self.inputs.pixels.batches(parts)

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
        names = ("round", "round_seconds", "positives_step")
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
        trained = {k: v.cpu() for k, v in self.objective.result.state_dict().items()}
        self.backbone.cpu().load_state_dict(trained)
        freeze(self.backbone)
        self.backbone.origin = self._origin()
        return self.backbone

    def _origin(self) -> str:
        epochs = self.step / self.schedule.steps_per_epoch
        return f"{self.settings.objective} for {epochs:.0f} epochs from {self.initial_origin}"
