"""One training loop for the deep methods: seeded batches, AdamW, a cosine schedule, checkpoints.

A method states what it minimises as an `Objective`. Whether a batch of features is ready or comes
out of a backbone that learns too is the business of `ddh.train.inputs`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ddh._core.errors import DDHError, ModelError
from ddh._core.progress import bar
from ddh.train import checkpoint_io
from ddh.train.inputs import Inputs


class HashLayers(nn.Module):
    """Hidden layers with an activation, then `bits` linear outputs whose sign is the code.

    With `skip` the last layer reads the input beside the last hidden layer.
    """

    def __init__(
        self, sizes: Sequence[int], activation: type[nn.Module] = nn.ReLU, *, skip: bool = False
    ) -> None:
        super().__init__()
        self.skip = skip and len(sizes) > 2
        inputs = list(sizes[:-1])
        if self.skip:
            inputs[-1] += sizes[0]
        self.layers = nn.ModuleList(map(nn.Linear, inputs, sizes[1:]))
        self.activation = activation()

    @property
    def linear(self) -> list[nn.Linear]:
        """The linear layers; the last one is the hash layer."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    @torch.no_grad()
    def apply_to_all(self, features: Tensor, rows: int = 8192) -> Tensor:
        """Outputs of many rows, `rows` of them at a time."""
        return torch.cat([self(part) for part in features.split(rows)])

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for layer in self.layers[:-1]:
            h = self.activation(layer(h))
        return self.layers[-1](torch.cat((x, h), dim=1) if self.skip else h)


class Objective(nn.Module, ABC):
    """What a method minimises; it may own parameters (bit weights) and buffers (a memory)."""

    @abstractmethod
    def forward(self, outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
        """The loss of a batch: real outputs (b, bits), their row numbers, and the share of the
        training that is done (0 to 1), which continuation methods anneal by."""


@dataclass
class Run:
    """What a training run is made of; `train` moves it to its end.

    `backbone` and its `backbone_parameters` are there when it learns too, at `backbone_lr_scale`
    times the learning rate of the layers. `checkpoint` is the file that is written after every
    epoch, and taken up when `resume` is set.
    """

    inputs: Inputs
    layers: HashLayers
    objective: Objective
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    seed: int
    label: str
    backbone: nn.Module | None = None
    backbone_parameters: list[nn.Parameter] = field(default_factory=list)
    backbone_lr_scale: float = 0.1
    checkpoint: Path | None = None
    resume: bool = False

    def optimiser(self) -> torch.optim.Optimizer:
        rate, decay = self.learning_rate, self.weight_decay
        learning = [p for p in self.layers.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": learning, "weight_decay": decay},
            {"params": list(self.objective.parameters()), "weight_decay": 0.0},
            {
                "params": self.backbone_parameters,
                "weight_decay": decay,
                "lr": rate * self.backbone_lr_scale,
            },
        ]
        return torch.optim.AdamW([group for group in groups if group["params"]], lr=rate)

    def modules(self) -> dict[str, nn.Module]:
        modules: dict[str, nn.Module] = {"layers": self.layers, "objective": self.objective}
        return modules if self.backbone is None else modules | {"backbone": self.backbone}


def train(run: Run) -> NDArray[np.float64]:
    """Minimise the objective; the mean loss of each epoch.

    The learning rate falls to zero along a cosine. Order, augmentation and noise of an epoch
    are drawn from (seed, epoch), so a run that is taken up again ends where it would have ended.
    """
    rows = len(run.inputs)
    steps = math.ceil(rows / run.batch_size)
    optimiser = run.optimiser()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, run.epochs * steps)
    losses = _take_up(run, optimiser, schedule)
    with bar(run.label, total=run.epochs, unit="epoch") as progress:
        progress.update(len(losses))
        while len(losses) < run.epochs:
            losses.append(_epoch(run, optimiser, schedule, len(losses), steps))
            if not math.isfinite(losses[-1]):
                raise DDHError(
                    f"{run.label}: the loss is {losses[-1]} in epoch {len(losses)}; "
                    f"lower learning_rate (it is {run.learning_rate})"
                )
            if run.checkpoint is not None:
                _write(run, optimiser, schedule, losses)
            progress.update(1)
            progress.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
    return np.array(losses)


def _epoch(
    run: Run,
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    epoch: int,
    steps: int,
) -> float:
    rows = len(run.inputs)
    rng = np.random.default_rng((run.seed, epoch))
    torch.manual_seed(int(rng.integers(2**63)))
    seeds = iter(rng.integers(2**31, size=steps).tolist())
    # Batches of equal size: a last one of a few rows would be all noise.
    size = math.ceil(rows / steps)
    total, done = torch.zeros(()), 0
    for batch, features in run.inputs.batches(rng.permutation(rows), size, seeds):
        progress = (epoch + done / rows) / run.epochs
        loss = run.objective(run.layers(features), batch, progress)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
        total = total.to(loss.device) + loss.detach() * len(batch)  # stays there: no waiting
        done += len(batch)
    return float(total) / max(done, 1)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from `seed` inside, and leave torch's own generators as they were outside."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


# -- checkpoints --------------------------------------------------------------------------


def _write(
    run: Run,
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    losses: list[float],
) -> None:
    assert run.checkpoint is not None
    run.checkpoint.parent.mkdir(parents=True, exist_ok=True)
    checkpoint_io.write(
        run.checkpoint,
        checkpoint_io.collect(run.modules(), optimiser),
        {"schedule": schedule.state_dict(), "losses": losses, "identity": _identity(run)},
    )


def _take_up(
    run: Run,
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> list[float]:
    """Put a checkpoint back into the run, where there is one to resume; the losses so far."""
    found = checkpoint_io.read(run.checkpoint, {}) if run.checkpoint and run.resume else None
    if found is None:
        return []
    state, tensors = found
    if state["identity"] != _identity(run):
        raise ModelError(
            f"{run.checkpoint} was made with other images or settings; resume with the same "
            "ones, or delete the folder to start again"
        )
    checkpoint_io.restore(tensors, run.modules(), optimiser)
    schedule.load_state_dict(state["schedule"])
    for group, rate in zip(optimiser.param_groups, schedule.get_last_lr(), strict=True):
        group["lr"] = rate  # the next one is computed from it
    return list(state["losses"])


def _identity(run: Run) -> list[Any]:
    """What must agree between a checkpoint and the run that takes it up."""
    shapes = [list(parameter.shape) for parameter in run.layers.parameters()]
    settings = [run.epochs, run.batch_size, run.learning_rate, run.weight_decay]
    return [run.label, run.seed, len(run.inputs), shapes, settings]


# -- labels -------------------------------------------------------------------------------


def shared_labels(first: Tensor, second: Tensor) -> Tensor:
    """How many labels row i of `first` and row j of `second` share, float (n, m).

    Labels are a vector of classes or a 0/1 matrix.
    """
    if first.ndim == 1:
        return (first[:, None] == second[None, :]).float()
    return first.float() @ second.float().T


def triplets(relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(anchor (p,), better (p,), worse (p, b)): every triplet of a batch of b rows in which the
    anchor shares more with `better` than with any row that the mask `worse` marks.

    An anchor is never its own `better` or `worse`. p is the number of pairs that share a label,
    so memory is O(p b) and not O(b^3).
    """
    relevance = relevance.clone().fill_diagonal_(0)
    anchor, better = relevance.nonzero(as_tuple=True)
    worse = relevance[anchor] < relevance[anchor, better][:, None]
    worse[torch.arange(len(anchor), device=worse.device), anchor] = False
    return anchor, better, worse
