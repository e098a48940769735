"""Exact searches to compare: ours, faiss IndexBinaryFlat, usearch and NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh import codes
from ddh.bench.search_data import Codes
from ddh.codes import kernel_numpy

Search = Callable[[Codes, int, int], NDArray[Any]]  # queries, k, threads -> distances


@dataclass(frozen=True)
class Peer:
    """A way to search; `pairs` limits the comparisons of one measurement."""

    name: str
    prepare: Callable[[Codes], Search]
    pairs: int
    package: str = "numpy"

    def queries(self, rows: int) -> int:
        """Number of queries within the limit."""
        return int(np.clip(self.pairs // rows, 1, 1024))


def _ours(database: Codes) -> Search:
    return lambda queries, k, threads: codes.search(queries, database, k, threads).distances


def _numpy(database: Codes) -> Search:
    return lambda queries, k, threads: kernel_numpy.search(queries, database, k, threads)[0]


def _faiss(database: Codes, use_heap: bool) -> Search:
    faiss = import_module("faiss")
    index = faiss.IndexBinaryFlat(8 * database.shape[1])
    index.use_heap = use_heap
    index.add(database)

    def search(queries: Codes, k: int, threads: int) -> NDArray[Any]:
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(threads)
        distances: NDArray[Any] = index.search(queries, k)[0]
        faiss.omp_set_num_threads(before)
        return distances

    return search


def _usearch(database: Codes) -> Search:
    usearch = import_module("usearch.index")
    hamming = usearch.MetricKind.Hamming

    def search(queries: Codes, k: int, threads: int) -> NDArray[Any]:
        matches = usearch.search(database, queries, k, hamming, exact=True, threads=threads)
        return np.asarray(matches.distances).reshape(len(queries), -1)

    return search


OURS = Peer("ours", _ours, pairs=1 << 30)
PEERS = [
    OURS,
    Peer("faiss heap", partial(_faiss, use_heap=True), 48_000_000, "faiss"),
    Peer("faiss counting", partial(_faiss, use_heap=False), 48_000_000, "faiss"),
    Peer("usearch", _usearch, 8_000_000, "usearch"),
    Peer("numpy", _numpy, 8_000_000),
]


def installed() -> list[Peer]:
    """The peers whose package is installed."""
    return [peer for peer in PEERS if find_spec(peer.package)]
