"""The training loop: one for the hashing layer, for the deep methods and for pretraining.

A method supplies a `TrainingTask` with its loss; the `Trainer` owns everything else.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ddh._core.bars import Bar
from ddh._core.errors import DDHError
from ddh._core.progress import bar
from ddh.train import checkpoint_io
from ddh.train.distributed import SINGLE, Processes
from ddh.train.inputs import Inputs

CHECKPOINT_SECONDS = 10.0


class Schedule:
    """Number of steps, learning rate at each, and where a segment of the training ends.

    `rate` is the learning rate as a function of the fraction of the training that is done.
    """

    #: Whether the length of the run depends on measured time (see `measured`).
    is_timed = False

    def __init__(self, epochs: int, steps_per_epoch: int, rate: Callable[[float], float]) -> None:
        self.steps_per_epoch, self.total = steps_per_epoch, epochs * steps_per_epoch
        self.rate = rate

    def progress(self, step: int) -> float:
        """Fraction of the training before this step, 0 to 1."""
        return min(1.0, step / self.total)

    def learning_rate(self, step: int) -> float:
        return self.rate(self.progress(step))

    def segment_end(self, step: int) -> int:
        """Step at which the segment that contains `step` ends; by default that of its epoch."""
        return min(self.total, (step // self.steps_per_epoch + 1) * self.steps_per_epoch)

    def measured(self, step: int, seconds: float, seconds_per_step: float) -> None:
        """Called after each segment of a timed run: `step` steps took `seconds` in all."""


class TrainingTask(ABC):
    """What a method supplies to the `Trainer`: its modules, its optimiser and its loss."""

    @abstractmethod
    def modules(self) -> dict[str, nn.Module]:
        """Everything that learns, by name; it is kept in checkpoints."""

    @abstractmethod
    def optimiser(self) -> torch.optim.Optimizer:
        """A new optimiser; "lr_scale" of a parameter group (default 1) multiplies its rate."""

    @abstractmethod
    def loss(self, batch: Any, rows: Tensor, progress: float) -> Tensor | dict[str, Tensor]:
        """Loss of a batch of the images `rows`, after the fraction `progress` of the training.

        A dict holds the loss under "loss", and further terms to be averaged into the history.
        With several processes, the loss is the sum of what they return.
        """

    def begin_segment(self, trainer: "Trainer") -> None:
        """Called before each segment; its time counts as training time."""
        return

    def after_step(self, progress: float) -> None:
        """Called after each step of the optimiser."""
        return

    def end_segment(self, trainer: "Trainer", entry: dict[str, Any]) -> dict[str, Any] | None:
        """The history's entry for a segment, from the means of its losses; None for no entry."""
        return entry

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Plain values and tensors to keep in checkpoints beside the modules."""
        return {}, {}

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Put back what `state` has given."""
        return

    def shard_tensors(self) -> dict[str, Tensor]:
        """Tensors of which each process holds the rows of its shard; restored in place."""
        return {}


class Trainer:
    """Trains a task to the end of its schedule.

    The run is divided into segments (epochs, unless the schedule says otherwise). After each one
    the mean loss is read, checked and entered in the `history`. Batches, augmentation and noise
    are drawn from (seed, epoch, step), so a resumed run continues as if it had not been
    interrupted: on a CPU it ends with the same weights, bit for bit.

    Parameters
    ----------
    batch_size : int
        Images per step; an epoch is `schedule.steps_per_epoch` slices of a random order.
    label : str
        Name of the progress bar.
    checkpoint : Path, optional
        File that is written after the first step, then every `checkpoint_seconds` (only between
        segments without `checkpoint_midway`), and at the end.
    identity : mapping
        Values that tell this run from another; a checkpoint with other values is refused.
    processes : Processes
        Those that take every step together, each with the rows of the batch in its shard.
    show : sequence of str
        Figures of the newest history entry to show beside the progress bar.
    """

    def __init__(
        self,
        task: TrainingTask,
        inputs: Inputs,
        schedule: Schedule,
        *,
        batch_size: int,
        seed: int,
        device: torch.device,
        label: str = "Training",
        checkpoint: Path | None = None,
        identity: Mapping[str, Any] | None = None,
        checkpoint_seconds: float | None = None,
        checkpoint_midway: bool = True,
        processes: Processes = SINGLE,
        show: Sequence[str] = ("loss",),
    ) -> None:
        self.task, self.inputs, self.schedule = task, inputs, schedule
        self.batch_size, self.seed, self.device = batch_size, seed, device
        self.label, self.show, self.processes = label, show, processes
        self.checkpoint, self.checkpoint_midway = checkpoint, checkpoint_midway
        every = CHECKPOINT_SECONDS if checkpoint_seconds is None else checkpoint_seconds
        self.checkpoint_seconds = every
        self.identity = {"seed": seed, "images": len(inputs), **(identity or {})}
        self.optimiser = task.optimiser()
        self.step, self.seconds = 0, 0.0
        self.history: list[dict[str, Any]] = []
        self._sums: dict[str, Tensor | float] = {}  # of the segment's losses
        self._summed = 0
        self._saved_at = -math.inf

    def run(self, resume: bool = False) -> list[dict[str, Any]]:
        """Train to the end, from the checkpoint if `resume` and there is one; the history."""
        if resume and self.checkpoint is not None:
            self._resume(self.checkpoint)
        devices = [self.device] if self.device.type == "cuda" else []
        with (
            torch.random.fork_rng(devices=devices),
            bar(self.label, total=self.schedule.total, unit="step") as progress,
        ):
            progress.update(self.step)
            while self.step < self.schedule.total:
                try:
                    self._segment(progress)
                except torch.cuda.OutOfMemoryError:
                    raise DDHError(
                        f"{self.label}: the GPU's memory is too small for batches of "
                        f"{self.batch_size} images; lower batch_size, or the size of the images"
                    ) from None
        if self.checkpoint is not None:
            self._save(self.checkpoint)
        return self.history

    def _segment(self, progress: Bar) -> None:
        started = middle = time.monotonic()
        epoch, at = divmod(self.step, self.schedule.steps_per_epoch)
        end = self.schedule.segment_end(self.step)
        self.task.begin_segment(self)
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.inputs))
        parts, seeds = [], []
        for place in range(at, at + end - self.step):
            parts.append(order[place * self.batch_size : (place + 1) * self.batch_size])
            drawn = np.random.SeedSequence((self.seed, epoch, place)).generate_state(1)
            seeds.append(int(drawn[0]))
        batches = self.inputs.batches(parts, seeds)
        halfway = self.step + len(parts) // 2
        # For GPUs that are not in use yet, torch.manual_seed formats its call stack: 0.5 ms a step.
        on_cpu = self.device.type == "cpu"
        set_seed = torch.default_generator.manual_seed if on_cpu else torch.manual_seed
        for seed in seeds:
            if self.step == halfway and self.schedule.is_timed:
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
                middle = time.monotonic()  # the first steps may have compiled the network
            set_seed(seed)
            rows, batch = next(batches)
            self._step(batch, rows)
            progress.update(1)
            if self.step == end:
                self._end_segment(progress, started, (middle, end - halfway))
            if self.checkpoint is not None and (self.checkpoint_midway or self.step == end):
                due = time.monotonic() - self._saved_at > self.checkpoint_seconds
                if self.processes.agree(due, self.device):  # the main process has the clock
                    self._save(self.checkpoint)
                    self._saved_at = time.monotonic()

    def _step(self, batch: Any, rows: Tensor) -> None:
        done, self.step = self.step, self.step + 1
        if self.processes.is_single and not len(rows):
            return  # none of these images could be read
        rate = self.schedule.learning_rate(done)
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        losses = self.task.loss(batch, rows, self.schedule.progress(done))
        terms = losses if isinstance(losses, dict) else {"loss": losses}
        self.optimiser.zero_grad(set_to_none=True)
        # DDP averages the gradients, of which the sum is wanted
        (terms["loss"] * self.processes.size).backward()
        self.optimiser.step()
        # sums stay on the device: no waiting; Apple's GPUs have no float64
        wide = torch.float32 if self.device.type == "mps" else torch.float64
        for name, value in terms.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.detach().to(wide)
        self._summed += 1
        self.task.after_step(self.schedule.progress(self.step))

    def _end_segment(self, progress: Bar, started: float, second_half: tuple[float, int]) -> None:
        """Read the losses (which waits for the device), check them and extend the history."""
        means = {name: value / self._summed for name, value in self._total_sums().items()}
        self._sums, self._summed = {}, 0
        ended = time.monotonic()
        self.seconds += ended - started
        if self.schedule.is_timed:
            middle, steps = second_half
            self.schedule.measured(self.step, self.seconds, (ended - middle) / steps)
            progress.expect(self.schedule.total)
        epoch: float = self.step / self.schedule.steps_per_epoch
        epoch = int(epoch) if epoch.is_integer() else round(epoch, 2)
        rate = self.schedule.learning_rate(self.step - 1)
        if not math.isfinite(means.get("loss", 0.0)):
            raise DDHError(
                f"{self.label}: the loss is {means['loss']} in epoch {math.ceil(epoch)}; "
                f"lower learning_rate (it is {rate:.3g} there)"
            )
        entry = self.task.end_segment(self, {"epoch": epoch, **means, "learning_rate": rate})
        if entry is not None:
            self.history.append(entry)
        newest = (self.history[-1] if self.history else {}) | means
        shown = {name: f"{newest[name]:.4f}" for name in self.show if name in newest}
        progress.set_postfix(refresh=False, **shown)  # by name: the job keeps them as curves

    def _total_sums(self) -> dict[str, float]:
        """Sums of the segment's losses over its steps and over the processes."""
        sums = self.processes.sums([float(value) for value in self._sums.values()], self.device)
        return dict(zip(self._sums, sums, strict=True))

    def _save(self, path: Path) -> None:
        values, tensors = self.task.state()
        state = self.identity | {
            "step": self.step,
            "total": self.schedule.total,
            "seconds": self.seconds,
            "history": self.history,
            "sums": self._total_sums(),
            "summed": self._summed,
            "task": values,
        }
        tensors = {f"task.{name}": tensor for name, tensor in tensors.items()}
        tensors |= checkpoint_io.collect(self.task.modules(), self.optimiser)
        sharded = self.task.shard_tensors()
        checkpoint_io.save(path, tensors, state, sharded, self.inputs.total, self.processes)

    def _resume(self, path: Path) -> None:
        """Continue from the checkpoint, where there is one."""
        sharded = self.task.shard_tensors()
        found = checkpoint_io.load(path, self.identity, sharded, self.inputs.total, self.processes)
        if found is None:
            return
        state, tensors = found
        checkpoint_io.restore(tensors, self.task.modules(), self.optimiser)
        self.step, self.seconds = state["step"], state["seconds"]
        self.history, self.schedule.total = state["history"], state["total"]
        self._summed = state["summed"]
        # they are sums over the processes
        self._sums = {k: v if self.processes.is_main else 0.0 for k, v in state["sums"].items()}
        self.task.load_state(state["task"], checkpoint_io.below(tensors, "task."))
