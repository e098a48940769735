"""What a collection of any size needs: bytes, core hours and machines, from measured rates.

The rates are of one core of a small ARM server (Neoverse N1, 2 cores); `ddh plan --measure`
replaces them by those of the machine it runs on. Features, training, codes and search scale with
N. The labels scale with N up to 20,000 images and with N^1.5 beyond, because an approximate search
probes a constant number of 4 sqrt(N) lists.
"""

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ddh._core.arrays import sgn
from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh.bench.timing import fastest, timed

COMMAND = "ddh plan --measure"


@dataclass(frozen=True)
class Rate:
    """A measured number, its unit, and the command that measures it."""

    value: float
    unit: str
    command: str = COMMAND


RATES: dict[str, Rate] = {
    "pictures": Rate(
        19.7, "JPEG files to EfficientNet-Lite0 features at 224 pixels, images per core second"
    ),
    "labels": Rate(211, "labels per image (256 dimensions, 20,000 images), core microseconds"),
    "labels per image": Rate(73.9, "similar images per image, K1 = 15, K2 = 6"),
    "training": Rate(
        110.0, "training pass per image (1,280 dimensions, 64 bits), core microseconds"
    ),
    "codes": Rate(172_000.0, "64-bit codes from 1,280-dimensional features, per core second"),
    "one query": Rate(1.47e10, "bytes of codes compared with one query, per core second"),
    "queries": Rate(4.81e10, "bytes of codes compared with each of 64 queries, per core second"),
}

#: Default dimensions of the features (EfficientNet-Lite0) and input size of the network.
DIMENSIONS, SIDE, MEASURED_SIDE = 1280, 224, 224
K1, EPOCHS = 15, 20
LINEAR_TO = 2e4
USABLE_MEMORY = 0.8e9  # bytes per GB of a machine


@dataclass(frozen=True)
class Machine:
    """One machine of the cluster, and the time limit of a stage."""

    cores: int = 16
    memory_gb: float = 64.0
    hours: float = 24.0


@dataclass(frozen=True)
class Stage:
    """What one stage needs in total: bytes on disk, bytes of memory, core hours."""

    name: str
    disk: float
    memory: float
    core_hours: float

    def machines(self, machine: Machine) -> int:
        """Enough to finish in time and to hold its memory."""
        work = self.core_hours / (machine.cores * machine.hours)
        return max(1, math.ceil(work), math.ceil(self.memory / (USABLE_MEMORY * machine.memory_gb)))

    def hours(self, machine: Machine) -> float:
        """Time on these machines with all cores busy."""
        return self.core_hours / (machine.cores * self.machines(machine))


@dataclass(frozen=True)
class Collection:
    """What is planned for: images, bits, dimensions of the features, input size of the network.

    Labels and training use `learn` of the images; features and codes are computed for all.
    """

    images: int
    bits: int = 64
    dimensions: int = DIMENSIONS
    side: int = SIDE
    learn: int | None = None

    def __post_init__(self) -> None:
        for name in ("images", "bits", "dimensions", "side", "learned"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.learned > self.images:
            raise InputError(f"{self.learned} images to learn from are more than {self.images}")

    @property
    def learned(self) -> int:
        """Number of training images."""
        return self.images if self.learn is None else self.learn


def stages(collection: Collection, rates: Mapping[str, Rate] = RATES) -> list[Stage]:
    """The stages from images to codes, with the needs of each."""
    N, n, d, L = collection.images, collection.learned, collection.dimensions, collection.bits
    rate = {name: entry.value for name, entry in rates.items()}
    entries = rate["labels per image"] * n
    pixels = (collection.side / MEASURED_SIDE) ** 2
    growth = max(1.0, (n / LINEAR_TO) ** 0.5)
    block = 2e9
    return [
        # float16 features in a memory-mapped file; a batch of images and the network per core
        Stage("features", 2 * N * d, block, N * pixels / rate["pictures"] / 3600),
        # index, lists before and after refinement, and S on disk; expansion holds the lists
        # three times and S about three times
        Stage(
            "labels",
            n * d / 4 + 8 * n * K1 + 5 * entries,
            max(n * d / 4, 12 * n * (K1 + 1) + 13 * entries) + block,
            1e-6 * n * rate["labels"] * growth * d / 256 / 3600,
        ),
        # features and standardised ones in float32, the memory U, the graph
        Stage(
            "training",
            0.0,
            8 * n * d + 4 * n * L + 4 * entries,
            1e-6 * n * EPOCHS * rate["training"] * (d / 1280) * (L / 64) / 3600,
        ),
        Stage("codes", N * L / 8, block, N * (d / 1280) * (L / 64) / rate["codes"] / 3600),
    ]


@dataclass(frozen=True)
class Search:
    """Exact search of all codes: machines, seconds per query, queries per second in batches."""

    memory: float
    machines: int
    query_seconds: float
    queries_per_second: float


def searching(
    collection: Collection, machine: Machine, rates: Mapping[str, Rate] = RATES
) -> Search:
    """Every query is compared with every code; the codes are sharded over the machines."""
    memory = collection.images * collection.bits / 8
    machines = Stage("search", memory, memory, 0.0).machines(machine)
    cores = machines * machine.cores
    return Search(
        memory,
        machines,
        memory / (rates["one query"].value * cores),
        rates["queries"].value * cores / memory,
    )


def in_bytes(count: float) -> str:
    """1.3e12 -> "1.3 TB"."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B" if count else "-"


def in_count(number: float) -> str:
    """1434.2 -> "1,434", 0.0312 -> "0.031"."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def in_time(hours: float) -> str:
    """0.002 -> "7.2 s"."""
    seconds = 3600 * hours
    for unit, size, most in (("ms", 1e-3, 1), ("s", 1, 120), ("min", 60, 7200), ("h", 3600, 2e5)):
        if seconds < most:
            return f"{in_count(seconds / size)} {unit}"
    return f"{seconds / 86400:,.0f} days"


def table(collection: Collection, machine: Machine, rates: Mapping[str, Rate] = RATES) -> str:
    """The plan as a Markdown table."""
    search = searching(collection, machine, rates)
    lines = [
        "| stage | on disk | total memory | core hours | machines | time |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for stage in stages(collection, rates):
        lines.append(
            f"| {stage.name} | {in_bytes(stage.disk)} | {in_bytes(stage.memory)} | "
            f"{in_count(stage.core_hours)} | {stage.machines(machine):,} | "
            f"{in_time(stage.hours(machine))} |"
        )
    lines.append(
        f"| search | {in_bytes(search.memory)} | {in_bytes(search.memory)} | | "
        f"{search.machines:,} | {in_time(search.query_seconds / 3600)} per query, "
        f"{search.queries_per_second:,.0f} queries per second in batches |"
    )
    return "\n".join(lines)


# -- the rates of this machine, in CPU time, which other load hardly changes; on a GPU elapsed time

PICTURES, LABELLED, TRAINED, ENCODED, CODES = 48, 20_000, 20_000, 200_000, 4_000_000


def measured_rates(side: int, device: str = "cpu", small: int = 1) -> dict[str, Rate]:
    """All rates of this machine; `small` divides the sizes, for tests."""
    import torch

    found: dict[str, float] = {}
    jobs: list[Callable[[], dict[str, float]]] = [
        partial(_pictures, max(2, PICTURES // small), side, device),
        partial(_labels, LABELLED // small),
        partial(_training, TRAINED // small),
        partial(_codes, ENCODED // small),
        partial(_search, CODES // small),
    ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the CPU time of idle threads would count as work
    try:
        for job in track(jobs, "Measuring", unit="rate"):
            found |= job()
    finally:
        torch.set_num_threads(threads)
    rates = {name: replace(RATES[name], value=found[name]) for name in RATES}
    unit = rates["labels"].unit.replace(f"{LABELLED:,}", f"{LABELLED // small:,}")
    rates["labels"] = replace(rates["labels"], unit=unit)
    if device != "cpu":
        unit = rates["pictures"].unit.replace("core second", f"second of {device}")
        rates["pictures"] = replace(rates["pictures"], unit=unit)
    return rates


def _pictures(count: int, side: int, device: str) -> dict[str, float]:
    from ddh.backbones import OnnxNetwork, create
    from ddh.bench.encode import sample_photographs
    from ddh.images import ImageFolder
    from ddh.train import Extractor

    with tempfile.TemporaryDirectory() as scratch:
        source = ImageFolder(sample_photographs(Path(scratch), count, 0))
        on_cpu = device == "cpu"
        network = OnnxNetwork(size=side) if on_cpu else create("efficientnet-lite0", size=side)
        extractor = Extractor(network, device)

        def walk() -> None:
            for _ in extractor.stream(source):
                pass

        walk()
        seconds = fastest(walk, clock="cpu" if on_cpu else "wall")
    return {"pictures": count / seconds * (side / MEASURED_SIDE) ** 2}


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
    from ddh.train.head_training import HashingTask
    from ddh.train.inputs import FeatureInputs
    from ddh.train.network import HashingLayer
    from ddh.train.trainer import Schedule, Trainer

    generator = torch.Generator().manual_seed(0)
    features = torch.randn(images, DIMENSIONS, generator=generator)
    layer = HashingLayer(DIMENSIONS, 64, 0)
    degree = min(round(RATES["labels per image"].value), images - 1)
    chosen = settings("fast")
    positives = GraphPositives(random_graph(images, degree, np.random.default_rng(0)))
    trainer = Trainer(
        HashingTask(layer, features, positives, chosen, Shard(current(), images)),
        FeatureInputs(features),
        Schedule(1, -(-images // chosen.batch_size), chosen.learning_rate_at),
        batch_size=chosen.batch_size,
        seed=0,
        device=torch.device("cpu"),
    )
    return {"training": 1e6 * fastest(lambda: trainer.run(False)) / images}


def _codes(images: int) -> dict[str, float]:
    from ddh.codes import pack

    rng = np.random.default_rng(0)
    features = rng.standard_normal((images // 10, DIMENSIONS), np.float32)
    weight = rng.standard_normal((64, DIMENSIONS), np.float32)

    def encode() -> None:
        for _ in range(10):
            pack(sgn(features @ weight.T))

    return {"codes": 10 * (images // 10) / fastest(encode)}


def _search(rows: int) -> dict[str, float]:
    from ddh.bench.search_data import gaussian
    from ddh.codes import search

    database, queries = gaussian(rows, 64, 0, 0), gaussian(64, 64, 0, 1)
    one = fastest(lambda: [search(queries[:1], database, 10, threads=1) for _ in range(8)]) / 8
    many = fastest(lambda: search(queries, database, 10, threads=1)) / len(queries)
    return {"one query": database.nbytes / one, "queries": database.nbytes / many}
