"""Measures the rates of `ddh.bench.capacity` on this machine, a few seconds each.

Processor seconds are counted, so that other work on the machine does not matter; on a GPU, seconds.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ddh._core.progress import track
from ddh.bench.capacity import DIMENSIONS, RATES, Rate

COMMAND = "ddh plan --measure"
PICTURES, LABELLED, TRAINED, ENCODED, CODES = 48, 20_000, 20_000, 200_000, 4_000_000


def measured(side: int, device: str = "cpu", small: int = 1) -> dict[str, Rate]:
    """All rates of this machine; `small` divides the sizes, for tests."""
    ways: dict[str, Callable[[], dict[str, float]]] = {
        "pictures": lambda: _pictures(max(2, PICTURES // small), side, device),
        "labels": lambda: _labels(LABELLED // small),
        "training": lambda: _training(TRAINED // small),
        "codes": lambda: _codes(ENCODED // small),
        "search": lambda: _search(CODES // small),
    }
    found: dict[str, float] = {}
    for name in track(ways, "Measuring", unit="rate"):
        found |= ways[name]()
    rates = {name: replace(RATES[name], value=found[name], command=COMMAND) for name in RATES}
    few = rates["labels"].unit.replace("1M", f"{LABELLED // small:,}")
    rates["labels"] = replace(rates["labels"], unit=few)
    if device != "cpu":
        unit = rates["pictures"].unit.replace("core second", f"second of {device}")
        rates["pictures"] = replace(rates["pictures"], unit=unit)
    return rates


def _cpu(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return max(time.process_time() - start, 1e-9)


@contextmanager
def _one_thread() -> Iterator[None]:
    """torch on one core: waiting threads would count as work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _pictures(count: int, side: int, device: str) -> dict[str, float]:
    from ddh.backbones import create
    from ddh.bench.capacity import MEASURED_SIDE
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
        start = time.perf_counter()
        seconds = _cpu(walk)
        if device != "cpu":
            seconds = time.perf_counter() - start
    return {"pictures": count / seconds * (side / MEASURED_SIDE) ** 2}


def _labels(images: int) -> dict[str, float]:
    from ddh.bench.labels import clustered_features
    from ddh.neighbours import pairwise_labels

    features = clustered_features(images, 256, np.random.default_rng(0))
    graphs: list[Any] = []
    seconds = _cpu(lambda: graphs.append(pairwise_labels(features, 15, 6, approximate=True)))
    return {"labels": 1e6 * seconds / images, "labels an image": graphs[0].nnz / images}


def _training(images: int) -> dict[str, float]:
    """One epoch of the preset "fast" on features and a random graph of ready labels."""
    import torch

    from ddh.bench.objective import random_graph
    from ddh.objective import GraphPositives, PairMemory
    from ddh.train import settings
    from ddh.train.inputs import FeatureInputs
    from ddh.train.loop import Run, train
    from ddh.train.network import HashingLayer

    generator = torch.Generator().manual_seed(0)
    features = torch.randn(images, DIMENSIONS, generator=generator)
    layer = HashingLayer(DIMENSIONS, 64, generator)
    degree = min(round(RATES["labels an image"].value), images - 1)
    with _one_thread():
        run = Run(
            inputs=FeatureInputs(features),
            layer=layer,
            positives=GraphPositives(random_graph(images, degree, np.random.default_rng(0))),
            memory=PairMemory(layer(features)),
            settings=settings("fast", epochs=1),
            seed=0,
        )
        seconds = _cpu(lambda: train(run))
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
