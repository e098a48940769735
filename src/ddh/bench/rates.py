"""Measure the rates of `ddh.bench.capacity` on this machine, a few seconds each.

CPU time is measured, which other load on the machine hardly changes; on a GPU, wall-clock time.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ddh._core.progress import track
from ddh.bench.capacity import DIMENSIONS, MEASURED_SIDE, RATES, Rate
from ddh.bench.timing import timed

PICTURES, LABELLED, TRAINED, ENCODED, CODES = 48, 20_000, 20_000, 200_000, 4_000_000


def measured(side: int, device: str = "cpu", small: int = 1) -> dict[str, Rate]:
    """All rates of this machine; `small` divides the sizes, for tests."""
    found: dict[str, float] = {}
    jobs: list[Callable[[], dict[str, float]]] = [
        partial(_pictures, max(2, PICTURES // small), side, device),
        partial(_labels, LABELLED // small),
        partial(_training, TRAINED // small),
        partial(_codes, ENCODED // small),
        partial(_search, CODES // small),
    ]
    for job in track(jobs, "Measuring", unit="rate"):
        found |= job()
    rates = {name: replace(RATES[name], value=found[name]) for name in RATES}
    unit = rates["labels"].unit.replace(f"{LABELLED:,}", f"{LABELLED // small:,}")
    rates["labels"] = replace(rates["labels"], unit=unit)
    if device != "cpu":
        unit = rates["pictures"].unit.replace("core second", f"second of {device}")
        rates["pictures"] = replace(rates["pictures"], unit=unit)
    return rates


def _cpu(work: Callable[[], Any]) -> float:
    return max(timed(work)[1]["cpu"], 1e-9)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch on one core: the CPU time of idle threads would count as work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _pictures(count: int, side: int, device: str) -> dict[str, float]:
    from ddh.backbones import create
    from ddh.bench.encode import sample_photographs
    from ddh.images import ImageFolder
    from ddh.train import Extractor

    with tempfile.TemporaryDirectory() as scratch, _one_thread():
        source = ImageFolder(sample_photographs(Path(scratch), count, 0))
        extractor = Extractor(create("efficientnet-lite0", size=side), device)

        def walk() -> None:
            for batch in extractor.stream(source):
                batch.features.cpu()

        walk()
        seconds = timed(walk)[1]["cpu" if device == "cpu" else "wall"]
    return {"pictures": count / max(seconds, 1e-9) * (side / MEASURED_SIDE) ** 2}


def _labels(images: int) -> dict[str, float]:
    from ddh.bench.labels import clustered_features
    from ddh.neighbours import pairwise_labels

    features = clustered_features(images, 256, np.random.default_rng(0))
    graph, seconds = timed(lambda: pairwise_labels(features, 15, 6, approximate=True))
    return {"labels": 1e6 * seconds["cpu"] / images, "labels per image": graph.nnz / images}


def _training(images: int) -> dict[str, float]:
    """One epoch of the preset "fast" on random features and a random graph of labels."""
    import torch

    from ddh.bench.objective import random_graph
    from ddh.objective import GraphPositives
    from ddh.train import settings
    from ddh.train.distributed import Shard, current
    from ddh.train.head import HashingTask
    from ddh.train.inputs import FeatureInputs
    from ddh.train.network import HashingLayer
    from ddh.train.trainer import Schedule, Trainer

    generator = torch.Generator().manual_seed(0)
    features = torch.randn(images, DIMENSIONS, generator=generator)
    layer = HashingLayer(DIMENSIONS, 64, generator)
    degree = min(round(RATES["labels per image"].value), images - 1)
    chosen = settings("fast")
    positives = GraphPositives(random_graph(images, degree, np.random.default_rng(0)))
    shard = Shard(current(), images)
    with _one_thread():
        trainer = Trainer(
            HashingTask(layer, features, positives, chosen, shard),
            FeatureInputs(features),
            Schedule(1, -(-images // chosen.batch_size), chosen.learning_rate_at),
            batch_size=chosen.batch_size,
            seed=0,
            device=torch.device("cpu"),
        )
        seconds = _cpu(lambda: trainer.run(False))
    return {"training": 1e6 * seconds / images}


def _codes(images: int) -> dict[str, float]:
    from ddh.codes import pack

    rng = np.random.default_rng(0)
    features = rng.standard_normal((images // 10, DIMENSIONS), np.float32)
    weight = rng.standard_normal((64, DIMENSIONS), np.float32)

    def encode() -> None:
        for _ in range(10):
            pack(np.where(features @ weight.T >= 0, np.int8(1), np.int8(-1)))

    return {"codes": 10 * (images // 10) / _cpu(encode)}


def _search(rows: int) -> dict[str, float]:
    from ddh.bench.search_data import gaussian
    from ddh.codes import search

    database, queries = gaussian(rows, 64, 0, 0), gaussian(64, 64, 0, 1)
    one = _cpu(lambda: [search(queries[:1], database, 10, threads=1) for _ in range(8)]) / 8
    many = _cpu(lambda: search(queries, database, 10, threads=1)) / len(queries)
    return {"one query": database.nbytes / one, "queries": database.nbytes / many}
