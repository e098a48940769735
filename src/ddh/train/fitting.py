"""From features (or pictures) to a hashing layer: labels, memory, training, folding."""

import hashlib
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import normalize

from ddh._core.arrays import l2_normalize
from ddh._core.atomic import atomic_path
from ddh._core.errors import InputError
from ddh.backbones import Backbone
from ddh.images import ImageSource
from ddh.neighbours import approximate_labels, label_groups, pairwise_labels, statistics
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
from ddh.train import network, sharding
from ddh.train.device import choose
from ddh.train.distributed import Shard, current
from ddh.train.features import Features
from ddh.train.inputs import FeatureInputs, Inputs, NetworkInputs
from ddh.train.network import HashingLayer, fold, freeze, prepare
from ddh.train.settings import Depth, Settings
from ddh.train.sharding import ShardedGraph, ShardedGroups, ShardedMemory, share_batch_norms
from ddh.train.trainer import Schedule, Trainer, TrainingTask

FILE, LAYER_FILE = "training.safetensors", "layer.safetensors"
# Adam's steps on a network are at most this factor times the typical size of its weights, which
# counts as LEAST_SIZE at least.
STEP_SIZE, LEAST_SIZE = 10.0, 1e-3


@dataclass(frozen=True)
class Data:
    """What is learned from: features of the usable images and, for images, where they came from."""

    features: Features
    total: int
    backbone: Backbone | None = None
    source: ImageSource | None = None
    label_features: NDArray[np.float32] | None = None
    labels: NDArray[np.int64] | None = None

    def with_labels(self, labels: NDArray[np.int64]) -> Self:
        return replace(self, labels=labels)

    def digest(self) -> str:
        """Tells one collection from another, from a sample of its features."""
        values = self.features.values
        sample = np.ascontiguousarray(values[:: max(1, len(values) // 1000)])
        return hashlib.sha256(repr(values.shape).encode() + sample.tobytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Fitted:
    """A trained hashing layer on raw features, z = weight phi + bias, and how it came about."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    settings: Settings
    history: list[dict[str, float]]
    label_statistics: dict[str, Any]


def fit_hashing(
    data: Data,
    bits: int,
    settings: Settings,
    *,
    depth: Depth,
    seed: int,
    device: str,
    approximate: bool,
    folder: Path | None,
    resume: bool,
) -> Fitted:
    """The whole of the paper's section 2 after the features; trains `data.backbone` in place."""
    where = choose(device)
    if len(data.features.values) < 3:
        raise InputError(f"at least 3 images are needed, there are {len(data.features.values)}")
    shard = Shard(current(), len(data.features.values))
    positives, label_statistics = _positives(data, settings, where, approximate, folder, resume)
    values = np.asarray(data.features.values[shard.rows], np.float32)
    features = torch.from_numpy(values if values.flags.writeable else values.copy()).to(where)
    if settings.unit:
        features = normalize(features, dim=1)
    mean, scale = _standardise(features, settings.centre, shard)
    standard = (features - mean) / scale
    layer = HashingLayer(features.shape[1], bits, torch.Generator().manual_seed(seed)).to(where)
    with torch.no_grad():
        outputs = torch.cat([layer(part) for part in standard.split(8192)])
    task = HashingTask(
        layer, positives, _memory(outputs, positives, settings, shard), settings, shard
    )
    identity = {"bits": bits, "depth": depth, "data": data.digest()}

    def train(inputs: Inputs, file: str) -> list[dict[str, Any]]:
        chosen = task.settings
        steps = math.ceil(len(inputs) / chosen.batch_size)
        return Trainer(
            task,
            inputs,
            Schedule(chosen.epochs, steps, chosen.learning_rate_at),
            batch_size=chosen.batch_size,
            seed=seed,
            device=where,
            checkpoint=None if folder is None else folder / file,
            identity={"settings": chosen.to_dict(), **identity},
            processes=shard.processes,
        ).run(resume)

    history: list[dict[str, Any]] = []
    if depth == "head" or settings.network_epochs:
        history = train(FeatureInputs(standard, shard), FILE if depth == "head" else LAYER_FILE)
    if depth != "head":
        if settings.network_epochs:
            task.settings = settings.for_network()
        history += [
            entry | {"epoch": len(history) + entry["epoch"]}
            for entry in train(_network_inputs(task, data, depth, mean, scale, shard), FILE)
        ]
        assert data.backbone is not None
        freeze(data.backbone.cpu())
        data.backbone.origin = f"trained from {data.backbone.origin}"
    folded = {name: value.cpu().numpy() for name, value in fold(layer, mean, scale).items()}
    return Fitted(folded["weight"], folded["bias"], settings, history, label_statistics)


class HashingTask(TrainingTask):
    """The objective of the hashing layer (2.4), with a memory of the outputs of all images."""

    def __init__(
        self,
        layer: HashingLayer,
        positives: Positives,
        memory: PairMemory,
        settings: Settings,
        shard: Shard,
    ) -> None:
        self.layer, self.positives, self.memory = layer, positives, memory
        self.settings, self.processes = settings, shard.processes
        self.network: nn.Module | None = None
        self.network_parameters: list[nn.Parameter] = []
        self.hash = shard.processes.parallel(layer)

    def modules(self) -> dict[str, nn.Module]:
        trained: dict[str, nn.Module] = {"layer": self.layer}
        return trained if self.network is None else trained | {"network": self.network}

    def begin_epoch(self, trainer: Trainer) -> None:
        self.memory.refresh()

    def loss(self, batch: Tensor, rows: Tensor, progress: float) -> dict[str, Tensor]:
        """J of a batch, divided by N x batch as in the authors' release, and its terms.

        With several processes, each has the terms of its rows, and an equal share of what does
        not belong to rows.
        """
        settings, N, processes = self.settings, len(self.memory), self.processes
        z = self.hash(batch)
        b = int(processes.sums([len(rows)], z.device)[0])
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
        settings = self.settings
        groups: list[dict[str, Any]] = [{"params": list(self.layer.parameters())}]
        if settings.optimiser == "sgd":
            if self.network_parameters:
                scale = settings.backbone_lr_scale
                groups.append({"params": self.network_parameters, "lr_scale": scale})
            return torch.optim.SGD(
                groups,
                lr=settings.learning_rate,
                momentum=settings.momentum,
                weight_decay=settings.weight_decay,
            )
        groups += [
            {"params": [weight], "lr_scale": settings.backbone_lr_scale * relative_step(weight)}
            for weight in self.network_parameters
        ]
        return torch.optim.Adam(
            groups, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        memory = self.memory
        tensors = {"total": memory.all.total, "gram": memory.all.gram}
        if memory.groups is not None:
            tensors |= {"group_total": memory.groups.total, "group_gram": memory.groups.gram}
        return {}, tensors

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        for name, target in self.state()[1].items():
            target.copy_(tensors[name])

    def shard_tensors(self) -> dict[str, Tensor]:
        return {"outputs": self.memory.outputs}


def relative_step(weight: nn.Parameter) -> float:
    """Adam's steps have one size for all weights, but those of networks do not: before batch norms
    they may be tiny. Its steps on small weights are therefore made in proportion to them."""
    typical = float(weight.detach().square().mean().sqrt())
    return min(1.0, STEP_SIZE * max(LEAST_SIZE, typical))


def _standardise(features: Tensor, centre: bool, shard: Shard) -> tuple[Tensor, Tensor]:
    if shard.is_single:
        return network.standardise(features, centre)
    return sharding.standardise(features, centre, shard)


def _memory(outputs: Tensor, positives: Positives, settings: Settings, shard: Shard) -> PairMemory:
    grams = settings.alpha != 1
    if shard.is_single:
        return PairMemory(outputs, positives.group_of, group_grams=grams)
    groups = len(positives.sizes) if isinstance(positives, GroupPositives) else None
    return ShardedMemory(outputs, shard, positives.group_of, group_grams=grams, groups=groups)


def _positives(
    data: Data,
    settings: Settings,
    device: torch.device,
    approximate: bool,
    folder: Path | None,
    resume: bool,
) -> tuple[Positives, dict[str, Any]]:
    """S from the labels where there are some, else from the features (Alg. 1)."""
    shard = Shard(current(), len(data.features.values))
    if data.labels is not None:
        groups = label_groups(data.labels)
        degree = groups.degree()
        summary = {"groups": len(groups.sizes), "mean_degree": float(degree.mean())}
        if shard.is_single:
            return GroupPositives(groups, device), summary
        return ShardedGroups(groups, shard, device), summary
    if shard.is_single:
        graph, summary = _graph(data, settings, device, approximate, folder, resume)
        return GraphPositives(graph, device), summary
    if folder is None:
        raise InputError("several processes need a work folder that all of them see")

    def hand_out() -> dict[str, Any]:
        """The first process makes the graph, and a file with the rows of each process."""
        graph, summary = _graph(data, settings, device, approximate, folder, resume)
        for rank in range(shard.processes.size):
            rows = shard.processes.shard(shard.total, rank)
            sparse.save_npz(_part(folder, rank), graph[rows], compressed=False)
        return summary

    summary = shard.processes.run_on_main(hand_out)
    rows = sparse.csr_array(sparse.load_npz(_part(folder, shard.processes.rank)))
    return ShardedGraph(rows, shard, device), summary


def _part(folder: Path, rank: int) -> Path:
    return folder / f"graph-of-process-{rank}.npz"


def _graph(
    data: Data,
    settings: Settings,
    device: torch.device,
    approximate: bool,
    folder: Path | None,
    resume: bool,
) -> tuple[sparse.csr_array, dict[str, Any]]:
    """S by Alg. 1 and its figures, or from the folder where an interrupted run left them."""
    saved = None
    if folder is not None:
        exact = "approximate" if approximate else "exact"
        saved = folder / f"graph-{settings.k1}-{settings.k2}-{settings.centre}-{exact}.npz"
    if saved is not None and resume and saved.is_file():
        graph = sparse.csr_array(sparse.load_npz(saved))
        return graph, json.loads(saved.with_suffix(".json").read_text())
    values = data.features.values if data.label_features is None else data.label_features
    values = l2_normalize(values) if settings.unit else values
    k1, k2, centre, report = settings.k1, settings.k2, settings.centre, None
    if approximate:
        graph, report = approximate_labels(values, k1, k2, centre=centre, folder=folder)
    else:
        gpu = "cuda" if device.type == "cuda" else None
        graph = pairwise_labels(values, k1, k2, centre=centre, device=gpu)
    summary = statistics(graph, approximation=report).to_dict()
    if saved is not None:
        saved.with_suffix(".json").write_text(json.dumps(summary))
        with atomic_path(saved) as part, part.open("wb") as stream:
            sparse.save_npz(stream, graph)
    return graph, summary


def _network_inputs(
    task: "HashingTask", data: Data, depth: Depth, mean: Tensor, scale: Tensor, shard: Shard
) -> NetworkInputs:
    """Let the backbone learn too: batches then come from pictures."""
    assert data.backbone is not None
    assert data.source is not None
    backbone = data.backbone.to(mean.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    task.network, task.network_parameters = backbone, prepare(backbone, depth)
    if not shard.is_single:
        share_batch_norms(backbone)
    return NetworkInputs(
        backbone,
        data.source,
        data.features.usable,
        mean,
        scale,
        normalize=task.settings.unit,
        steps=task.settings.epochs * shard.total // task.settings.batch_size,
        shard=shard,
    )
