"""Run the classes of `module.py` and their peers on the same codes: recall and queries per second.

python run.py --rows 100000 --bits 64
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parent))
import module

from ddh.bench.search_data import KINDS

Run = Callable[[np.ndarray, int], np.ndarray]  # queries as bits, n -> indices


def one_at_a_time(query: Callable[[np.ndarray, int], np.ndarray]) -> Run:
    """A search for single queries, for many of them."""
    return lambda queries, n: np.array([query(one, n) for one in queries])


def ours(rows: np.ndarray) -> Iterator[tuple[str, float, Run]]:
    """Every entry of `config.yml`."""
    text = (Path(__file__).parent / "config.yml").read_text()
    for entry in yaml.safe_load(text)["bit"]["hamming"]:
        algorithm = getattr(module, entry["constructor"])("hamming")
        start = time.perf_counter()
        algorithm.fit(rows)
        built = time.perf_counter() - start
        arguments = entry["run_groups"]["base"]["query_args"]
        for argument in arguments[0] if arguments else [None]:
            if argument is not None:
                algorithm.set_query_arguments(argument)
            yield str(algorithm), built, one_at_a_time(algorithm.query)


def faiss_peers(rows: np.ndarray) -> Iterator[tuple[str, float, Run]]:
    """Exact, inverted lists and a graph."""
    import faiss

    faiss.omp_set_num_threads(1)
    bits = rows.shape[1]
    packed = np.packbits(rows, axis=1)
    flat = faiss.IndexBinaryFlat(bits)
    lists = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(bits), bits, int(4 * len(rows) ** 0.5))
    graph = faiss.IndexBinaryHNSW(bits, 16)
    for name, index in (("faiss flat", flat), ("faiss IVF", lists), ("faiss HNSW", graph)):
        start = time.perf_counter()
        index.train(packed)
        index.add(packed)
        built = time.perf_counter() - start
        for effort in (4, 16, 64) if name != "faiss flat" else (0,):
            if name == "faiss IVF":
                index.nprobe = effort
            elif name == "faiss HNSW":
                index.hnsw.efSearch = effort
            search = partial(_faiss_query, index)
            yield f"{name}({effort})" if effort else name, built, one_at_a_time(search)


def _faiss_query(index: Any, query: np.ndarray, n: int) -> np.ndarray:
    return index.search(np.packbits(query)[None], n)[1][0]


def usearch_peers(rows: np.ndarray) -> Iterator[tuple[str, float, Run]]:
    """A graph."""
    from usearch.index import Index

    packed = np.packbits(rows, axis=1)
    index = Index(ndim=rows.shape[1], metric="hamming", dtype="b1")
    start = time.perf_counter()
    index.add(np.arange(len(rows)), packed, threads=1)
    built = time.perf_counter() - start
    for effort in (16, 64, 256):
        index.expansion_search = effort
        run = one_at_a_time(lambda v, n: index.search(np.packbits(v), n, threads=1).keys)
        yield f"usearch HNSW({effort})", built, run


def hnswlib_peers(rows: np.ndarray) -> Iterator[tuple[str, float, Run]]:
    """A graph over the bits as numbers: their squared distance is Hamming's."""
    import hnswlib

    index = hnswlib.Index(space="l2", dim=rows.shape[1])
    index.init_index(len(rows), ef_construction=200, M=16)
    start = time.perf_counter()
    index.add_items(rows.astype(np.float32), num_threads=1)
    built = time.perf_counter() - start
    for effort in (16, 64, 256):
        index.set_ef(effort)
        run = one_at_a_time(lambda v, n: index.knn_query(v, n, num_threads=1)[0][0])
        yield f"hnswlib({effort})", built, run


PEERS = {"faiss": faiss_peers, "usearch": usearch_peers, "hnswlib": hnswlib_peers}


def measure(rows: np.ndarray, queries: np.ndarray, n: int) -> list[tuple[str, float, float, float]]:
    """(name, seconds to build, recall, queries per second) of everything that is installed.

    Recall counts answers within the distance of the n-th neighbour, as ann-benchmarks does: rows at
    one distance are equally right.
    """
    bits = np.where(rows, 1, -1).astype(np.float32)
    distances = (rows.shape[1] - np.where(queries, 1, -1).astype(np.float32) @ bits.T) / 2
    last = np.partition(distances, n - 1, axis=1)[:, n - 1, None]
    results = []
    for runs in (ours, *(run for name, run in PEERS.items() if find_spec(name))):
        for name, built, run in runs(rows):
            run(queries[:2], n)
            start = time.perf_counter()
            found = run(queries, n).astype(np.int64)
            seconds = time.perf_counter() - start
            right = np.take_along_axis(distances, found, axis=1) <= last
            results.append((name, built, float(right.mean()), len(queries) / seconds))
    return results


def main() -> None:
    """A table of all results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--data", choices=KINDS, default="lsh")
    parser.add_argument("-n", type=int, default=10)
    options = parser.parse_args()
    make = KINDS[options.data]
    rows, queries = (
        np.unpackbits(make(count, options.bits, 0, part), axis=1).astype(bool)
        for part, count in enumerate((options.rows, options.queries))
    )
    print(
        "| algorithm | build | recall | queries per second, one at a time |\n|---|---:|---:|---:|"
    )
    for name, built, recall, rate in measure(rows, queries, options.n):
        print(f"| {name} | {built:.1f} s | {recall:.4f} | {rate:,.0f} |")


if __name__ == "__main__":
    main()
