"""The hashing layer, with or without its network, trained by torch: GPUs, several processes."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import normalize

from ddh._core.arrays import sgn
from ddh.neighbours import LabelGroups
from ddh.objective import (
    GraphPositives,
    GroupPositives,
    PairMemory,
    Positives,
    Terms,
    all_pairs,
    in_batch,
    quantisation,
    regulariser,
)
from ddh.train.checkpoint_io import below
from ddh.train.device import choose
from ddh.train.distributed import Shard, current
from ddh.train.features import Pictures
from ddh.train.held_out import Guard, network_features
from ddh.train.inputs import FeatureInputs, Inputs, NetworkInputs
from ddh.train.linear import FILE, Layer, Similar
from ddh.train.network import HashingLayer, end_training, fold, freeze, prepare, standardise, unfold
from ddh.train.settings import Depth, Settings
from ddh.train.sharding import ShardedGraph, ShardedGroups, ShardedMemory, share_batch_norms
from ddh.train.trainer import Schedule, Trainer, TrainingTask

LAYER_FILE = "layer.safetensors"
# Adam's steps on a network are at most this factor times the typical size of its weights, which
# counts as LEAST_SIZE at least.
STEP_SIZE, LEAST_SIZE = 10.0, 1e-3


class Relabelling(NamedTuple):
    """S of all images; S of other features of them, and the layer by itself on such; and what such
    a layer gives for the features that S is from, if another network has made these."""

    labels: Callable[[], Similar]
    rebuild: Callable[[NDArray[np.floating]], sparse.csr_array]
    refit: Callable[[NDArray[np.floating]], Layer]
    label_outputs: Callable[[], NDArray[np.float32] | None]


def train_head(
    features: NDArray[np.floating],
    S: Similar,
    bits: int,
    settings: Settings,
    *,
    seed: int,
    device: str,
    pictures: Pictures | None = None,
    depth: Depth = "head",
    start: Layer | None = None,
    again: Relabelling | None = None,
    folder: Path | None = None,
    resume: bool = False,
    identity: dict[str, Any] | None = None,
) -> Layer:
    """(weight, bias, history) of the layer on raw features; the backbone is trained in place.

    `start` is a layer to begin with, which needs no training by itself; after the training of a
    network, such a layer is fitted `again`, and so is any on a network from random weights.
    """
    where, shard = choose(device), Shard(current(), len(features))
    one = shard.processes.is_single
    positives: Positives
    if isinstance(S, LabelGroups):
        positives = ShardedGroups(S, shard, where)
    else:
        positives = GraphPositives(S, where) if one else ShardedGraph(S, shard, where)
    values = np.asarray(features[shard.rows], np.float32)
    phi = torch.from_numpy(values if values.flags.writeable else values.copy()).to(where)
    if settings.normalize:
        phi = normalize(phi, dim=1)
    mean, scale = standardise(phi, settings.centre, shard.processes)
    phi = (phi - mean) / scale
    layer = HashingLayer(phi.shape[1], bits, seed).to(where)
    if start is not None:
        unfold(layer, start[0], start[1], mean, scale)
    task = HashingTask(layer, phi, positives, settings, shard)

    def trainer(inputs: Inputs, file: str) -> Trainer:
        chosen = task.settings
        second = isinstance(inputs, NetworkInputs) and settings.network_epochs > 0
        rate = chosen.warmed_up_rate if second else chosen.learning_rate_at
        return Trainer(
            task,
            inputs,
            Schedule(chosen.epochs, math.ceil(len(inputs) / chosen.batch_size), rate),
            batch_size=chosen.batch_size,
            seed=seed,
            device=where,
            checkpoint=None if folder is None else folder / file,
            identity={**(identity or {}), "settings": chosen.to_dict()},
            processes=shard.processes,
            checkpoint_midway=not (second and settings.refresh_labels),
        )

    history: list[dict[str, Any]] = [] if start is None else start[2]
    if start is None and (depth == "head" or settings.network_epochs):
        file = FILE if depth == "head" else LAYER_FILE
        history = trainer(FeatureInputs(phi, shard), file).run(resume)
    if depth != "head":
        assert pictures is not None
        assert again is not None
        everybody, guard = np.arange(shard.total), None
        fresh = pictures.backbone.origin == "random" and settings.centre
        anew = fresh and settings.network_epochs > 0
        if settings.network_epochs:
            task.settings = settings.for_network(fresh)
        if settings.network_epochs and settings.keep_better:
            guard = Guard(pictures, layer, mean, scale, settings, seed, shard.processes)
            guard.begin(
                again.labels,
                given=isinstance(S, LabelGroups),
                by_features=start is not None,
                fresh=fresh,
            )
        task.add_network(pictures, depth, where, guard)
        if anew:
            layer.load_state_dict(HashingLayer(phi.shape[1], bits, seed).state_dict())
            task.learn_from(again.label_outputs())
        if settings.refresh_labels:
            task.new_labels = lambda: again.rebuild(network_features(pictures, everybody, where))
        inputs = NetworkInputs(
            pictures,
            mean,
            scale,
            normalize=settings.normalize,
            fresh=fresh,
            steps=task.settings.epochs * shard.total // task.settings.batch_size,
            batch_size=min(task.settings.batch_size, shard.total),
            shard=shard,
            trained=None if guard is None else guard.held.trained,
        )
        history = history + [
            entry | {"epoch": len(history) + entry["epoch"]}
            for entry in trainer(inputs, FILE).run(resume)
        ]
        if guard is None or guard.end(depth):
            end_training(pictures.backbone)
            if anew or (guard is not None and start is not None):
                # the layer of depth "head", on the features of the trained network; with graded
                # labels the main process fits it
                mine = start is None or shard.processes.is_main
                now = network_features(pictures, everybody, where) if mine else features
                weight, bias, tried = again.refit(now)
                return weight, bias, history + tried[-1:]
            if fresh:
                now = network_features(pictures, everybody[shard.rows], where)
                phi = torch.from_numpy(now).to(where)
                phi = normalize(phi, dim=1) if settings.normalize else phi
                mean, scale = standardise(phi, True, shard.processes)
        else:
            freeze(pictures.backbone.cpu())
            if start is not None:
                return start[0], start[1], history
    weight, bias = (value.cpu().numpy() for value in fold(layer, mean, scale))
    return weight, bias, history


class HashingTask(TrainingTask):
    """The objective of the hashing layer (2.4), with a memory of the outputs of all images."""

    def __init__(
        self,
        layer: HashingLayer,
        features: Tensor,
        positives: Positives,
        settings: Settings,
        shard: Shard,
    ) -> None:
        self.layer, self.positives, self.shard = layer, positives, shard
        self.settings, self.processes = settings, shard.processes
        with torch.no_grad():
            outputs = torch.cat([layer(part) for part in features.split(8192)])
        self.memory, self.memory_is_fixed = self._memory(outputs), False
        self.network: nn.Module | None = None
        self.guard: Guard | None = None
        self.new_labels: Callable[[], sparse.csr_array] | None = None
        self.hash = shard.processes.parallel(layer)

    def _memory(self, outputs: Tensor) -> PairMemory:
        positives, one = self.positives, self.processes.is_single
        groups = len(positives.sizes) if isinstance(positives, GroupPositives) else None
        stored = outputs, positives.group_of
        options: dict[str, Any] = {"group_grams": self.settings.alpha != 1, "group_count": groups}
        return (
            PairMemory(*stored, **options) if one else ShardedMemory(self.shard, *stored, **options)
        )

    def learn_from(self, outputs: NDArray[np.float32] | None) -> None:
        """Take the codes of these outputs for u_j throughout, if there are some.

        The outputs of a network from random weights say nothing about the images yet.
        """
        if outputs is not None:
            codes = torch.from_numpy(sgn(outputs, np.float32)).to(self.memory.outputs)
            self.memory, self.memory_is_fixed = self._memory(codes), True

    def add_network(
        self, pictures: Pictures, depth: Depth, device: torch.device, guard: Guard | None = None
    ) -> None:
        """Let the backbone learn too."""
        self.network, self.guard = pictures.backbone, guard
        prepare(pictures.backbone, depth, device)
        if not self.processes.is_single:
            share_batch_norms(pictures.backbone)

    def modules(self) -> dict[str, nn.Module]:
        trained: dict[str, nn.Module] = {"layer": self.layer}
        return trained if self.network is None else trained | {"network": self.network}

    def begin_segment(self, trainer: Trainer) -> None:
        if trainer.step % trainer.schedule.steps_per_epoch == 0:  # not where a run is resumed
            self.memory.refresh()
        if self.new_labels is not None and trainer.step:
            self.positives = GraphPositives(self.new_labels(), trainer.device)

    def end_segment(self, trainer: Trainer, entry: dict[str, Any]) -> dict[str, Any]:
        if self.guard is None:
            return entry
        found, ended = self.guard.look()
        if ended:
            trainer.schedule.total = trainer.step
        return entry | found

    def loss(self, batch: Tensor, rows: Tensor, progress: float) -> dict[str, Tensor]:
        """J of a batch, divided by N x batch as in the authors' release, and its terms: those of
        the rows of this process, and an equal share of what does not belong to rows."""
        settings, N, processes = self.settings, len(self.memory), self.processes
        z = self.hash(batch)
        b = int(processes.sums([len(rows)], z.device)[0])
        if not self.memory_is_fixed:
            self.memory.update(rows, z)
        if settings.pairs == "all":
            pairs, others = all_pairs(z, rows, self.positives, self.memory, settings.alpha), N
        else:
            whole = processes.gather_with_grad(z)
            whole = in_batch(whole, self.positives.within(rows), settings.alpha)
            pairs, others = processes.share_value(whole), b
        terms = Terms(
            pairs / (others * b),
            quantisation(z) / (N * b),
            regulariser(self.layer.weight, self.layer.bias) / processes.size,
        )
        total = terms.total(settings.quantisation_weight(N, z.shape[1]), settings.lambda2)
        return {"loss": total, **terms._asdict()}

    def optimiser(self) -> torch.optim.Optimizer:
        settings, sgd = self.settings, self.settings.optimiser == "sgd"
        groups: list[dict[str, Any]] = [{"params": list(self.layer.parameters())}]
        for weight in self.network.parameters() if self.network else ():
            if weight.requires_grad:
                scale = settings.backbone_lr_scale * (1.0 if sgd else relative_step(weight))
                groups.append({"params": [weight], "lr_scale": scale})
        rate, decay = settings.learning_rate, settings.weight_decay
        if sgd:
            momentum = settings.momentum
            return torch.optim.SGD(groups, lr=rate, momentum=momentum, weight_decay=decay)
        return torch.optim.Adam(groups, lr=rate, weight_decay=decay)

    def _moments(self) -> dict[str, Tensor]:
        memory = self.memory
        tensors = {"total": memory.all.total, "gram": memory.all.gram}
        if memory.groups is not None:
            tensors |= {"group_total": memory.groups.total, "group_gram": memory.groups.gram}
        return tensors

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        values, tensors = ({}, {}) if self.guard is None else self.guard.state()
        return values, self._moments() | {f"guard.{k}": v for k, v in tensors.items()}

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        for name, target in self._moments().items():
            target.copy_(tensors[name])
        if self.guard is not None:
            self.guard.load_state(values, below(tensors, "guard."))

    def shard_tensors(self) -> dict[str, Tensor]:
        return {"outputs": self.memory.outputs}


def relative_step(weight: nn.Parameter) -> float:
    """How much smaller Adam's steps, of one size for all, must be for weights that are tiny, as
    those before batch norms may be."""
    typical = float(weight.detach().square().mean().sqrt())
    return min(1.0, STEP_SIZE * max(LEAST_SIZE, typical))
