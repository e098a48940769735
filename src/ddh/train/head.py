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

from ddh._core.arrays import l2_normalize
from ddh._core.errors import InputError
from ddh._core.lazy import needs_torch
from ddh.neighbours import LabelGroups, label_groups
from ddh.train.device import device_type
from ddh.train.distributed import Shard, current
from ddh.train.features import Pictures
from ddh.train.graded import fit_graded, suits
from ddh.train.graphs import Labelling, neighbourhood_graph, read_graph
from ddh.train.identity import RunIdentity
from ddh.train.linear import Layer, Similar, fit_linear, trains
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
    told: dict[str, Any] = {"bits": bits, "depth": depth, "settings": settings.to_dict()}
    if identity is not None:
        told["data"] = identity.digest
    checkpoints: dict[str, Any] = {"folder": folder, "resume": resume, "identity": told}

    def graded_layer(values: NDArray[np.floating]) -> Layer:
        assert not isinstance(S, LabelGroups)
        return _graded_layer(values, S, saved, bits, settings, seed)

    def trained_layer(values: NDArray[np.floating], **kept: Any) -> Layer:
        if where == "cpu" and shard.processes.is_single and trains(settings, S):
            return fit_linear(values, S, bits, settings, seed=seed, **kept)
        with needs_torch("training with these settings"):
            from ddh.train.head_training import train_head
        return train_head(values, S, bits, settings, seed=seed, device=device, **kept)

    graded = (
        settings.targets == "graded"
        and not isinstance(S, LabelGroups)
        and suits(len(features), features.shape[1], bits)
    )
    if depth == "head":
        layer = graded_layer(features) if graded else trained_layer(features, **checkpoints)
        return HashingHead(*layer, label_statistics)
    with needs_torch(f"the depth {depth!r}"):
        from ddh.train.head_training import Relabelling, train_head

    def rebuild(now: NDArray[np.floating]) -> sparse.csr_array:
        if labels is not None or label_features is not None or not shard.processes.is_single:
            raise InputError(
                "refresh_labels builds S from the network's own features, in one process: it "
                "takes no y and no other network for the labels"
            )
        return labelling.build(now)[0]

    def label_outputs() -> NDArray[np.float32] | None:
        if label_features is None or labels is not None:
            return None
        weight, bias, _ = trained_layer(label_features)
        values = np.asarray(label_features[shard.rows], np.float32)
        return (l2_normalize(values) if settings.normalize else values) @ weight.T + bias

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
        start=graded_layer(features) if graded else None,
        again=Relabelling(
            lambda: S if whole or saved is None else read_graph(saved),
            rebuild,
            graded_layer if graded else trained_layer,
            label_outputs,
        ),
        **checkpoints,
    )
    return HashingHead(*layer, label_statistics)


def _graded_layer(
    features: NDArray[np.floating],
    graph: sparse.csr_array,
    saved: Path | None,
    bits: int,
    settings: Settings,
    seed: int,
) -> Layer:
    """The layer from graded labels; of several processes, the main one fits it."""
    processes = current()

    def fit() -> list[Any]:
        whole = graph if saved is None or processes.is_single else read_graph(saved)
        options = {"normalize": settings.normalize, "centre": settings.centre}
        weight, bias, history = fit_graded(features, whole, bits, seed=seed, **options)
        return [weight.tolist(), bias.tolist(), history]

    weight, bias, history = processes.run_on_main(fit)
    return np.asarray(weight, np.float32), np.asarray(bias, np.float32), history
