"""The hashing head (2.2 to 2.4) of `DDH` and of pseudo-codes: labels, and what trains on them.

Graded labels and, on a CPU, the linear layer with binary ones need NumPy alone; several processes,
GPUs and networks are trained by torch (`ddh.train.head_training`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ddh._core.errors import InputError
from ddh._core.lazy import needs_torch
from ddh.neighbours import LabelGroups, label_groups
from ddh.train.device import device_type
from ddh.train.distributed import Shard, current
from ddh.train.features import Pictures
from ddh.train.graded import fit_graded, suits
from ddh.train.graphs import Labelling, neighbourhood_graph, read_graph
from ddh.train.identity import RunIdentity
from ddh.train.linear import Similar, fit_linear, trains
from ddh.train.settings import Depth, Settings

LEAST_IMAGES = 3


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
    where, shard = device_type(device), Shard(current(), len(features))
    if len(features) < LEAST_IMAGES:
        raise InputError(f"at least {LEAST_IMAGES} images are needed, there are {len(features)}")
    if folder is not None:
        identity = identity or RunIdentity.of_arrays(features=features)
        sources = RunIdentity.of_arrays(labels=labels, label_features=label_features)
        identity = identity.with_values(approximate=approximate, **sources.values)
    saved, labelling = None, Labelling(settings, where == "cuda", approximate)
    S: Similar
    if labels is not None:
        S = label_groups(labels)
        degrees = S.degree()
        label_statistics = {"groups": len(S.sizes), "mean_degree": float(degrees.mean())}
    else:
        if folder is not None and identity is not None:
            of_labels = identity.with_values(**labelling.neighbourhoods)
            saved = of_labels.path(folder, "graph", ".npz")
        source = features if label_features is None else label_features
        S, label_statistics = neighbourhood_graph(source, labelling, saved=saved, resume=resume)
    start: HashingHead | None = None
    if (
        settings.targets == "graded"
        and not isinstance(S, LabelGroups)
        and suits(len(features), features.shape[1], bits)
    ):
        start = _graded_head(features, S, saved, bits, settings, seed, label_statistics)
        if depth == "head":
            return start
    told: dict[str, Any] = {"bits": bits, "depth": depth, "settings": settings.to_dict()}
    if identity is not None:
        told["data"] = identity.digest
    checkpoints: dict[str, Any] = {"folder": folder, "resume": resume, "identity": told}
    alone = where == "cpu" and shard.processes.is_single
    if depth == "head" and alone and trains(settings, S):
        layer = fit_linear(features, S, bits, settings, seed=seed, **checkpoints)
    else:
        with needs_torch("training with these settings"):
            from ddh.train.head_training import Relabelling, train_head

        def refit(now: NDArray[np.floating]) -> tuple[Any, ...]:
            assert not isinstance(S, LabelGroups)
            head = _graded_head(now, S, saved, bits, settings, seed, label_statistics)
            return head.weight, head.bias, head.history

        def rebuild(now: NDArray[np.floating]) -> sparse.csr_array:
            if labels is not None or label_features is not None or not shard.processes.is_single:
                raise InputError(
                    "refresh_labels builds S from the network's own features, in one process: it "
                    "takes no y and no other network for the labels"
                )
            return labelling.build(now)[0]

        whole = saved is None or labels is not None or shard.processes.is_single
        layer = train_head(
            features,
            S,
            bits,
            settings,
            seed=seed,
            device=device,
            pictures=pictures,
            depth=depth,
            start=None if start is None else (start.weight, start.bias, start.history),
            again=Relabelling(
                lambda: S if whole or saved is None else read_graph(saved), rebuild, refit
            ),
            **checkpoints,
        )
    return HashingHead(*layer, label_statistics)


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
        whole = graph if saved is None or processes.is_single else read_graph(saved)
        options = {"normalize": settings.normalize, "centre": settings.centre}
        weight, bias, history = fit_graded(features, whole, bits, seed=seed, **options)
        return [weight.tolist(), bias.tolist(), history]

    weight, bias, history = processes.run_on_main(fit)
    arrays = np.asarray(weight, np.float32), np.asarray(bias, np.float32)
    return HashingHead(*arrays, history, label_statistics)
