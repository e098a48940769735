"""From features (or pictures) to a hashing layer: labels, memory, training, folding."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize

from ddh._core.arrays import l2_normalize
from ddh._core.atomic import atomic_path
from ddh._core.errors import InputError
from ddh.backbones import Backbone
from ddh.images import ImageSource
from ddh.neighbours import approximate_labels, label_groups, pairwise_labels, statistics
from ddh.objective import GraphPositives, GroupPositives, PairMemory, Positives
from ddh.train import network, sharding
from ddh.train.device import choose
from ddh.train.distributed import current
from ddh.train.features import Features
from ddh.train.inputs import FeatureInputs, NetworkInputs
from ddh.train.loop import Run, train
from ddh.train.network import HashingLayer, fold, freeze, prepare
from ddh.train.settings import Depth, Settings
from ddh.train.sharding import (
    Shard,
    ShardedFeatures,
    ShardedGraph,
    ShardedGroups,
    ShardedMemory,
    ShardedPictures,
    share_batch_norms,
)

# From so many steps on a GPU, compiling the network pays for itself.
COMPILED_STEPS = 1000


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
    run = Run(
        inputs=FeatureInputs(standard) if shard.alone else ShardedFeatures(standard, shard),
        layer=layer,
        positives=positives,
        memory=_memory(outputs, positives, settings, shard),
        settings=settings,
        seed=seed,
        processes=shard.processes,
        identity={"bits": bits, "depth": depth, "data": data.digest()},
    )
    history: list[dict[str, float]] = []
    if depth == "head":
        history = train(run, folder=folder, resume=resume)
    else:
        if settings.network_epochs:
            alone = None if folder is None else folder / "layer"
            history = train(run, folder=alone, resume=resume)
            run.settings = settings.for_network()
        _add_network(run, data, depth, mean, scale, shard)
        history += [
            entry | {"epoch": len(history) + entry["epoch"]}
            for entry in train(run, folder=folder, resume=resume)
        ]
        assert data.backbone is not None
        freeze(data.backbone.cpu())
        data.backbone.origin = f"trained from {data.backbone.origin}"
    folded = {name: value.cpu().numpy() for name, value in fold(layer, mean, scale).items()}
    return Fitted(folded["weight"], folded["bias"], settings, history, label_statistics)


def _standardise(features: Tensor, centre: bool, shard: Shard) -> tuple[Tensor, Tensor]:
    if shard.alone:
        return network.standardise(features, centre)
    return sharding.standardise(features, centre, shard)


def _memory(outputs: Tensor, positives: Positives, settings: Settings, shard: Shard) -> PairMemory:
    grams = settings.alpha != 1
    if shard.alone:
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
        if shard.alone:
            return GroupPositives(groups, device), summary
        return ShardedGroups(groups, shard, device), summary
    if shard.alone:
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

    summary = shard.processes.once(hand_out)
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


def _add_network(
    run: Run, data: Data, depth: Depth, mean: Tensor, scale: Tensor, shard: Shard
) -> None:
    """Let the backbone learn too: batches then come from pictures."""
    assert data.backbone is not None
    assert data.source is not None
    backbone = data.backbone.to(mean.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    run.network = backbone
    run.network_parameters = prepare(backbone, depth)
    steps = run.settings.epochs * len(run.inputs) // run.settings.batch_size
    compiled = mean.device.type == "cuda" and steps >= COMPILED_STEPS
    pictures = (backbone, data.source, data.features.usable, mean, scale)
    unit = run.settings.unit
    if shard.alone:
        run.inputs = NetworkInputs(*pictures, unit=unit, compiled=compiled)
    else:
        share_batch_norms(backbone)
        run.inputs = ShardedPictures(*pictures, shard, unit=unit, compiled=compiled)
