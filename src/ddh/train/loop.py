"""The training loop (2.4): stochastic gradient steps on the objective, with a memory of codes."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ddh._core.errors import DDHError
from ddh._core.progress import bar
from ddh.objective import (
    PairMemory,
    Positives,
    Terms,
    all_pairs,
    in_batch,
    quantisation,
    regulariser,
)
from ddh.train import checkpoint
from ddh.train.distributed import ALONE, Processes
from ddh.train.inputs import Inputs
from ddh.train.settings import Settings

STEP_SIZE, LEAST_SIZE = 10.0, 1e-3  # of Adam on a network, and the least size of its weights
CHECKPOINT_SECONDS = 10.0


@dataclass
class Run:
    """What a training run is made of; `train` moves it to its end."""

    inputs: Inputs
    layer: nn.Linear
    positives: Positives
    memory: PairMemory
    settings: Settings
    seed: int
    network: nn.Module | None = None
    network_parameters: list[nn.Parameter] = field(default_factory=list)
    #: The processes that train together, each on the rows of its shard (`sharding`).
    processes: Processes = ALONE
    #: Values that tell this run from another (a digest of the data, the bits, ...).
    identity: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hash = self.processes.parallel(self.layer)

    def modules(self) -> dict[str, nn.Module]:
        trained: dict[str, nn.Module] = {"layer": self.layer}
        if self.network is not None:
            trained["network"] = self.network
        return trained

    def fingerprint(self) -> dict[str, Any]:
        return {"settings": self.settings.to_dict(), "seed": self.seed, **self.identity}


def train(
    run: Run, *, folder: Path | None = None, resume: bool = False, show: bool | None = None
) -> list[dict[str, float]]:
    """Train to the last epoch and return the curve, one entry an epoch.

    With `folder` a checkpoint is written after the first step and every ten seconds from then on;
    with `resume` a checkpoint found there is taken up. Several processes take every step
    together, each with the rows of the batch that its shard holds.
    """
    optimiser = _optimiser(run)
    state: dict[str, Any] = {"epoch": 0, "step": 0, "sums": [0.0, 0.0, 0.0], "history": []}
    if folder is not None and resume:
        found = checkpoint.load(
            folder, run.modules(), optimiser, run.memory, run.fingerprint(), run.processes
        )
        state = found or state
        if not run.processes.first:
            state["sums"] = [0.0, 0.0, 0.0]  # they are sums over the processes
    run.history = list(state["history"])
    steps = math.ceil(len(run.inputs) / run.settings.batch_size)
    total = steps * run.settings.epochs
    saved = -math.inf  # nothing yet
    with bar("Training", total=total, unit="step", show=show) as progress:
        progress.update(state["epoch"] * steps + state["step"])
        while state["epoch"] < run.settings.epochs:
            for _ in _epoch(run, optimiser, state, steps):
                progress.update(1)
                if folder is not None and _is_due(run, saved):
                    _save(folder, run, optimiser, state)
                    saved = time.monotonic()
            _close_epoch(run, state)
            progress.set_postfix(loss=f"{run.history[-1]['loss']:.4f}", refresh=False)
    return run.history


def _is_due(run: Run, saved: float) -> bool:
    """Whether it is time for a checkpoint; the first process has the clock."""
    waited = time.monotonic() - saved
    return run.processes.agree(waited > CHECKPOINT_SECONDS, run.memory.outputs.device)


def _epoch(
    run: Run, optimiser: torch.optim.Optimizer, state: dict[str, Any], steps: int
) -> Iterator[None]:
    """The steps of one epoch that are still to do."""
    settings, epoch = run.settings, state["epoch"]
    if state["step"] == 0:
        run.memory.refresh()
    order = _order(len(run.inputs), run.seed, epoch)[state["step"] * settings.batch_size :]
    if not len(order):
        return  # a checkpoint of an epoch's last step
    seeds = (_seed(run.seed, epoch, step) for step in count(state["step"]))
    for rows, features in run.inputs.batches(order, settings.batch_size, seeds):
        rate = _rate(settings, (epoch * steps + state["step"]) / (settings.epochs * steps))
        for group in optimiser.param_groups:
            group["lr"] = rate * group["share"]
        terms = _step(run, optimiser, rows, features)
        for place, value in enumerate(terms):
            state["sums"][place] += float(value)
        state["step"] += 1
        yield


def _step(run: Run, optimiser: torch.optim.Optimizer, rows: Tensor, features: Tensor) -> Terms:
    """One gradient step; the terms come back scaled as they were trained.

    With several processes, each has the terms of its rows, and an equal share of what does not
    belong to rows; the objective is the sum over the processes.
    """
    settings, N, processes = run.settings, len(run.inputs), run.processes
    z = run.hash(features)
    b = int(processes.sums([len(rows)], z.device)[0])
    run.memory.update(rows, z)
    if settings.pairs == "all":
        pairs, others = all_pairs(z, rows, run.positives, run.memory, settings.alpha), N
    else:
        whole = in_batch(processes.join(z), run.positives.within(rows), settings.alpha)
        pairs, others = processes.share_value(whole), b
    terms = Terms(
        pairs / (others * b),
        quantisation(z) / (N * b),
        regulariser(run.layer.weight, run.layer.bias) / processes.size,
    )
    loss = terms.total(settings.quantisation_weight(N, z.shape[1]), settings.lambda2)
    optimiser.zero_grad(set_to_none=True)
    (loss * processes.size).backward()  # DDP averages the gradients, of which we want the sum
    optimiser.step()
    return Terms(*(term.detach() for term in terms))


def _close_epoch(run: Run, state: dict[str, Any]) -> None:
    sums = run.processes.sums(state["sums"], run.memory.outputs.device)
    steps = max(state["step"], 1)
    pairs, quant, regular = (value / steps for value in sums)
    settings = run.settings
    lambda1 = settings.quantisation_weight(len(run.inputs), run.memory.bits)
    loss = pairs + lambda1 / 2 * quant + settings.lambda2 / 2 * regular
    if not math.isfinite(loss):
        raise DDHError(
            f"the training diverged in epoch {state['epoch'] + 1}: the loss is {loss}; "
            f"lower learning_rate (it is {settings.learning_rate})"
        )
    run.history.append(
        {
            "epoch": state["epoch"] + 1,
            "loss": loss,
            "pairs": pairs,
            "quantisation": quant,
            "regulariser": regular,
            "learning_rate": _rate(settings, (state["epoch"] + 1 - 1 / steps) / settings.epochs),
        }
    )
    state.update(epoch=state["epoch"] + 1, step=0, sums=[0.0, 0.0, 0.0])


def _save(folder: Path, run: Run, optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    sums = run.processes.sums(state["sums"], run.memory.outputs.device)
    whole = state | {"sums": sums, "history": run.history} | run.fingerprint()
    checkpoint.save(folder, run.modules(), optimiser, run.memory, whole, run.processes)


def _optimiser(run: Run) -> torch.optim.Optimizer:
    settings = run.settings
    groups: list[dict[str, Any]] = [{"params": list(run.layer.parameters()), "share": 1.0}]
    if run.network_parameters and settings.optimiser == "sgd":
        groups.append({"params": run.network_parameters, "share": settings.backbone_lr_scale})
    elif run.network_parameters:
        groups += [
            {"params": [weight], "share": settings.backbone_lr_scale * _relative(weight)}
            for weight in run.network_parameters
        ]
    if settings.optimiser == "sgd":
        return torch.optim.SGD(
            groups,
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
    return torch.optim.Adam(groups, lr=settings.learning_rate, weight_decay=settings.weight_decay)


def _relative(weight: torch.nn.Parameter) -> float:
    """Adam's steps have one size for all weights, but those of networks do not: before batch norms
    they may be tiny. Its steps on small weights are therefore made in proportion to them."""
    typical = float(weight.detach().square().mean().sqrt())
    return min(1.0, STEP_SIZE * max(LEAST_SIZE, typical))


def _rate(settings: Settings, done: float) -> float:
    """The learning rate after a share `done` of the training."""
    first, last = settings.learning_rate, settings.final_learning_rate
    if settings.optimiser == "sgd":
        return first * (last / first) ** done
    return last + (first - last) * (1 + math.cos(math.pi * done)) / 2


def _seed(seed: int, epoch: int, step: int) -> int:
    return int(np.random.SeedSequence((seed, epoch, step)).generate_state(1)[0])


def _order(size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng((seed, epoch)).permutation(size)
