"""Labels of very many images on a cluster: one index of neighbours, searched in shards by nodes.

The index is built once, on the driver. The lists are those that one machine gives with the same
index: a shard is `ddh.neighbours.shard_lists` of its rows.
"""

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from scipy import sparse

from ddh._core.errors import InputError
from ddh._core.progress import bar
from ddh.cluster.connection import connect
from ddh.neighbours import Approximation, CosineSpace, IVFIndex, cosine_space, shard_lists, tune
from ddh.neighbours.alg1 import expand_in
from ddh.neighbours.approximate import RECALL, ApproximateLists, judge
from ddh.neighbours.knn import check_k

SHARD_ROWS = 16384
UNDER_WAY = 2  # shards a CPU
RETRIES = 8  # of a shard whose worker or node died

Shared = tuple[NDArray[np.float64] | None, NDArray[np.float64]]  # mean and squares of the space


def labels_on_cluster(
    features: Path,
    k1: int = 15,
    k2: int = 6,
    *,
    address: str,
    folder: Path,
    centre: bool = False,
    recall: float = RECALL,
) -> tuple[sparse.csr_array, Approximation]:
    """As `ddh.neighbours.approximate_labels`, with the lists found by a cluster."""
    space = _open_space(features, centre)
    found = _lists(space, features, k1, address, folder, recall, SHARD_ROWS)
    return expand_in(space, found.lists, k2), judge(space, found, k2, recall)


def lists_on_cluster(
    features: Path,
    k: int,
    *,
    address: str,
    folder: Path,
    centre: bool = False,
    recall: float = RECALL,
    shard_rows: int = SHARD_ROWS,
) -> ApproximateLists:
    """The k nearest rows of each row of a .npy file, approximately, best first.

    The file and `folder`, where the index and the lists go, lie where all nodes see them. Memory:
    that of the index for each CPU of a node, and 8 bytes an image for the node.
    """
    space = _open_space(features, centre)
    return _lists(space, features, k, address, folder, recall, shard_rows)


def _open_space(features: Path, centre: bool) -> CosineSpace:
    if features.suffix != ".npy":
        raise InputError(f"the features of a cluster are a .npy file, not {features}")
    return cosine_space(np.load(features, mmap_mode="r"), centre=centre)


def _lists(
    space: CosineSpace,
    features: Path,
    k: int,
    address: str,
    folder: Path,
    recall: float,
    shard_rows: int,
) -> ApproximateLists:
    k, cells = check_k(k, len(space)), folder.resolve() / "cells.faiss"
    clock = [time.perf_counter()]
    index = IVFIndex.build(space)
    folder.mkdir(parents=True, exist_ok=True)
    index.save(cells)
    clock.append(time.perf_counter())
    tuning = tune(space, index, k, recall)
    clock.append(time.perf_counter())
    lists = open_memmap(folder / "lists.npy", "w+", np.int32, (len(space), k))
    job = (str(features.resolve()), str(cells), k, tuning.value)
    with connect(address) as ray:
        _search_shards(ray, space, job, lists, shard_rows)
    clock.append(time.perf_counter())
    seconds = dict(zip(("build", "tune", "search"), np.diff(clock).tolist(), strict=True))
    name = f"{index.name}, {index.parameter} {tuning.value}"
    return ApproximateLists(lists, tuning.recall, tuning.sample, name, seconds)


def _search_shards(
    ray: Any, space: CosineSpace, job: tuple[Any, ...], lists: NDArray[np.int32], shard_rows: int
) -> None:
    """Fill the lists; a few shards for each CPU are under way at a time."""
    shared = ray.put((space.mean, space.squares))
    search = ray.remote(_search_shard).options(
        num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD"
    )
    most = UNDER_WAY * max(1, int(ray.cluster_resources().get("CPU", 1)))
    starts = iter(range(0, len(space), shard_rows))
    under_way: dict[Any, int] = {}
    with bar("Neighbours", total=len(space), unit="image") as progress:
        while True:
            while len(under_way) < most and (start := next(starts, None)) is not None:
                stop = min(start + shard_rows, len(space))
                under_way[search.remote(*job, shared, start, stop)] = start
            if not under_way:
                return
            (done,), _ = ray.wait(list(under_way))
            start, found = under_way.pop(done), ray.get(done)
            lists[start : start + len(found)] = found
            progress.update(len(found))


def _search_shard(
    features: str, cells: str, k: int, nprobe: int, shared: Shared, start: int, stop: int
) -> NDArray[np.int32]:
    space = CosineSpace(np.load(features, mmap_mode="r"), *shared)
    return shard_lists(space, _opened(cells), start, stop, k, nprobe)


@lru_cache(maxsize=1)
def _opened(cells: str) -> IVFIndex:
    return IVFIndex.open(Path(cells))
