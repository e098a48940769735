"""The hashing head (2.2 to 2.4) of `DDH` and of pseudo-codes: labels, memory, training."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import normalize

from ddh._core.arrays import l2_normalize
from ddh._core.atomic import atomic_path, write_atomic
from ddh._core.errors import InputError, ModelError
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
from ddh.train.device import choose
from ddh.train.distributed import Shard, current
from ddh.train.graded import fit_graded, suits
from ddh.train.identity import RunIdentity
from ddh.train.inputs import FeatureInputs, Inputs, NetworkInputs, Pictures
from ddh.train.network import HashingLayer, end_training, fold, prepare, standardise, unfold
from ddh.train.run_folder import read_json
from ddh.train.settings import Depth, Settings
from ddh.train.sharding import ShardedGraph, ShardedGroups, ShardedMemory, share_batch_norms
from ddh.train.trainer import Schedule, Trainer, TrainingTask

FILE, LAYER_FILE = "training.safetensors", "layer.safetensors"
LEAST_IMAGES = 3
# Adam's steps on a network are at most this factor times the typical size of its weights, which
# counts as LEAST_SIZE at least.
STEP_SIZE, LEAST_SIZE = 10.0, 1e-3


@dataclass(frozen=True)
class HashingHead:
    """A trained hashing layer on raw features, z = weight phi + bias, and how it was trained."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    history: list[dict[str, Any]]
    label_statistics: dict[str, Any]


def fit_head(
    features: NDArray[np.floating],
    bits: int,
    settings: Settings,
    *,
    seed: int,
    device: str = "auto",
    labels: NDArray[np.int64] | None = None,
    label_features: NDArray[np.floating] | None = None,
    pictures: Pictures | None = None,
    depth: Depth = "head",
    approximate: bool = False,
    folder: Path | None = None,
    resume: bool = False,
    identity: RunIdentity | None = None,
) -> HashingHead:
    """Section 2 of the paper after the features (N, dimensions): labels S, objective, training.

    S comes from `labels` (classes or a 0/1 matrix) if there are some, else from the neighbourhoods
    of `label_features` or of the features themselves, `approximate` ones for very many images.
    Depths beyond "head" need the `pictures` of the features, and train their backbone in place.
    Graph and checkpoints are kept in `folder`, and used again by `resume`; `identity` says what the
    features were made from (by default it is their content).
    """
    where, shard = choose(device), Shard(current(), len(features))
    if len(features) < LEAST_IMAGES:
        raise InputError(f"at least {LEAST_IMAGES} images are needed, there are {len(features)}")
    if folder is not None:
        identity = identity or RunIdentity.of_arrays(features=features)
        sources = RunIdentity.of_arrays(labels=labels, label_features=label_features)
        identity = identity.with_values(approximate=approximate, **sources.values)
    saved = None
    if labels is not None:
        groups = label_groups(labels)
        degrees = groups.degree()
        label_statistics = {"groups": len(groups.sizes), "mean_degree": float(degrees.mean())}
        positives: Positives = ShardedGroups(groups, shard, where)
    else:
        names = ("k1", "k2", "centre", "normalize")
        if folder is not None and identity is not None:
            of_labels = identity.with_values(**{name: getattr(settings, name) for name in names})
            saved = of_labels.path(folder, "graph", ".npz")
        graph, label_statistics = neighbourhood_graph(
            features if label_features is None else label_features,
            settings,
            gpu=where.type == "cuda",
            approximate=approximate,
            saved=saved,
            resume=resume,
        )
    start: HashingHead | None = None
    if (
        settings.targets == "graded"
        and labels is None
        and suits(len(features), features.shape[1], bits)
    ):
        start = _graded_head(features, graph, saved, bits, settings, seed, label_statistics)
        if depth == "head":
            return start
    if labels is None:
        one = shard.processes.is_single
        positives = GraphPositives(graph, where) if one else ShardedGraph(graph, shard, where)
    values = np.asarray(features[shard.rows], np.float32)
    phi = torch.from_numpy(values if values.flags.writeable else values.copy()).to(where)
    if settings.normalize:
        phi = normalize(phi, dim=1)
    mean, scale = standardise(phi, settings.centre, shard)
    phi = (phi - mean) / scale
    layer = HashingLayer(phi.shape[1], bits, torch.Generator().manual_seed(seed)).to(where)
    if start is not None:
        unfold(layer, start.weight, start.bias, mean, scale)
    task = HashingTask(layer, phi, positives, settings, shard)

    def trainer(inputs: Inputs, file: str) -> Trainer:
        chosen = task.settings
        return Trainer(
            task,
            inputs,
            Schedule(
                chosen.epochs, math.ceil(len(inputs) / chosen.batch_size), chosen.learning_rate_at
            ),
            batch_size=chosen.batch_size,
            seed=seed,
            device=where,
            checkpoint=None if folder is None else folder / file,
            identity={"bits": bits, "depth": depth, "settings": chosen.to_dict()}
            | ({} if identity is None else {"data": identity.digest}),
            processes=shard.processes,
        )

    history: list[dict[str, Any]] = [] if start is None else start.history
    if start is None and (depth == "head" or settings.network_epochs):
        file = FILE if depth == "head" else LAYER_FILE
        history = trainer(FeatureInputs(phi, shard), file).run(resume)
    if depth != "head":
        assert pictures is not None
        if settings.network_epochs:
            task.settings = settings.for_network()
        task.add_network(pictures, depth, where)
        inputs = NetworkInputs(
            pictures,
            mean,
            scale,
            normalize=settings.normalize,
            steps=task.settings.epochs * shard.total // settings.batch_size,
            shard=shard,
        )
        history += [
            entry | {"epoch": len(history) + entry["epoch"]}
            for entry in trainer(inputs, FILE).run(resume)
        ]
        end_training(pictures.backbone)
    weight, bias = (value.cpu().numpy() for value in fold(layer, mean, scale))
    return HashingHead(weight, bias, history, label_statistics)


def _graded_head(
    features: NDArray[np.floating],
    graph: sparse.csr_array,
    saved: Path | None,
    bits: int,
    settings: Settings,
    seed: int,
    label_statistics: dict[str, Any],
) -> HashingHead:
    """The head from graded labels; of several processes, the main one fits it."""
    processes = current()

    def fit() -> list[Any]:
        whole = graph if saved is None or processes.is_single else _read_graph(saved)
        options = {"normalize": settings.normalize, "centre": settings.centre}
        weight, bias, history = fit_graded(features, whole, bits, seed=seed, **options)
        return [weight.tolist(), bias.tolist(), history]

    weight, bias, history = processes.run_on_main(fit)
    arrays = np.asarray(weight, np.float32), np.asarray(bias, np.float32)
    return HashingHead(*arrays, history, label_statistics)


def neighbourhood_graph(
    features: NDArray[np.floating],
    settings: Settings,
    *,
    gpu: bool,
    approximate: bool,
    saved: Path | None,
    resume: bool,
) -> tuple[sparse.csr_array, dict[str, Any]]:
    """S by Alg. 1 (of several processes, the rows of this one) and its statistics, or from the
    folder where an interrupted run left them."""
    processes = current()
    if saved is None and not processes.is_single:
        raise InputError("several processes need a checkpoint_dir that all of them see")
    folder = None if saved is None else saved.parent
    graphs: list[sparse.csr_array] = []

    def part(rank: int) -> Path:
        assert saved is not None
        return saved.with_name(f"{saved.stem}-process-{rank}.npz")

    def build() -> dict[str, Any]:
        if saved is not None and resume and saved.is_file():
            graph, summary = _read_graph(saved), read_json(saved.with_suffix(".json"))
        else:
            values = l2_normalize(features) if settings.normalize else features
            k1, k2, centre, report = settings.k1, settings.k2, settings.centre, None
            if approximate:
                graph, report = approximate_labels(values, k1, k2, centre=centre, folder=folder)
            else:
                device = "cuda" if gpu else None
                graph = pairwise_labels(values, k1, k2, centre=centre, device=device)
            summary = statistics(graph, approximation=report).to_dict()
            if saved is not None:
                write_atomic(saved.with_suffix(".json"), json.dumps(summary).encode())
                with atomic_path(saved) as temporary, temporary.open("wb") as stream:
                    sparse.save_npz(stream, graph)
        graphs.append(graph)
        if not processes.is_single:
            for rank in range(processes.size):
                rows = processes.shard(len(features), rank)
                sparse.save_npz(part(rank), graph[rows], compressed=False)
        return summary

    summary = processes.run_on_main(build)
    return (graphs[0] if processes.is_single else _read_graph(part(processes.rank))), summary


def _read_graph(path: Path) -> sparse.csr_array:
    try:
        return sparse.csr_array(sparse.load_npz(path))
    except Exception as error:  # zip files have many ways to be damaged
        raise ModelError(f"the graph {path} is damaged; delete it to start again") from error


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
        self.layer, self.positives = layer, positives
        with torch.no_grad():
            outputs = torch.cat([layer(part) for part in features.split(8192)])
        groups = len(positives.sizes) if isinstance(positives, GroupPositives) else None
        stored = outputs, positives.group_of
        options: dict[str, Any] = {"group_grams": settings.alpha != 1, "group_count": groups}
        one = shard.processes.is_single
        self.memory = (
            PairMemory(*stored, **options) if one else ShardedMemory(shard, *stored, **options)
        )
        self.settings, self.processes = settings, shard.processes
        self.network: nn.Module | None = None
        self.hash = shard.processes.parallel(layer)

    def add_network(self, pictures: Pictures, depth: Depth, device: torch.device) -> None:
        """Let the backbone learn too."""
        self.network = pictures.backbone
        prepare(pictures.backbone, depth, device)
        if not self.processes.is_single:
            share_batch_norms(pictures.backbone)

    def modules(self) -> dict[str, nn.Module]:
        trained: dict[str, nn.Module] = {"layer": self.layer}
        return trained if self.network is None else trained | {"network": self.network}

    def begin_segment(self, trainer: Trainer) -> None:
        if trainer.step % trainer.schedule.steps_per_epoch == 0:  # not where a run is resumed
            self.memory.refresh()

    def loss(self, batch: Tensor, rows: Tensor, progress: float) -> dict[str, Tensor]:
        """J of a batch, divided by N x batch as in the authors' release, and its terms: those of
        the rows of this process, and an equal share of what does not belong to rows."""
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
    """How much smaller Adam's steps, of one size for all, must be for weights that are tiny, as
    those before batch norms may be."""
    typical = float(weight.detach().square().mean().sqrt())
    return min(1.0, STEP_SIZE * max(LEAST_SIZE, typical))
