"""Exact searches side by side: ours, faiss IndexBinaryFlat, usearch and NumPy."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh import codes
from ddh.codes import kernel_numpy

Codes = NDArray[np.uint8]
Search = Callable[[Codes, int, int], NDArray[Any]]  # queries, k, threads -> distances


@dataclass(frozen=True)
class Peer:
    """A way to search; `pairs` is how many comparisons it may spend in one measurement."""

    name: str
    prepare: Callable[[Codes], Search]
    pairs: int
    threads: int = 2  # the most it can use

    def queries(self, rows: int) -> int:
        """So many queries fit the time that is given to it."""
        return int(np.clip(self.pairs // rows, 1, 1024))


def _ours(database: Codes) -> Search:
    return lambda queries, k, threads: codes.search(queries, database, k, threads).distances


@contextmanager
def _faiss_threads(threads: int) -> Iterator[None]:
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    yield
    faiss.omp_set_num_threads(before)


def _faiss(use_heap: bool) -> Callable[[Codes], Search]:
    def prepare(database: Codes) -> Search:
        import faiss

        index = faiss.IndexBinaryFlat(8 * database.shape[1])
        index.use_heap = use_heap  # type: ignore[attr-defined]
        index.add(database)

        def search(queries: Codes, k: int, threads: int) -> NDArray[Any]:
            with _faiss_threads(threads):
                return index.search(queries, k)[0]

        return search

    return prepare


def _usearch(database: Codes) -> Search:
    from usearch.index import MetricKind, search

    def run(queries: Codes, k: int, threads: int) -> NDArray[Any]:
        matches = search(database, queries, k, MetricKind.Hamming, exact=True, threads=threads)
        return np.asarray(matches.distances).reshape(len(queries), -1)

    return run


def _numpy(database: Codes) -> Search:
    return lambda queries, k, threads: kernel_numpy.search(queries, database, k, threads)[0]


OURS = Peer("ours", _ours, pairs=1 << 30)
PEERS = [
    OURS,
    Peer("faiss heap", _faiss(True), pairs=48_000_000),
    Peer("faiss counting", _faiss(False), pairs=48_000_000),
    Peer("usearch", _usearch, pairs=8_000_000),
    Peer("numpy", _numpy, pairs=8_000_000),
]


def installed() -> list[Peer]:
    """The peers that can run here."""
    needs = {"faiss heap": "faiss", "faiss counting": "faiss", "usearch": "usearch"}
    return [peer for peer in PEERS if find_spec(needs.get(peer.name, "numpy"))]
