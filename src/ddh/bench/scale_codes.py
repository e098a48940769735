"""Search at scale, for `ddh bench scale`: a mapped file of codes, and the same in Milvus Lite."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ddh._core.errors import DDHError
from ddh._core.progress import track
from ddh.bench.search_data import gaussian
from ddh.bench.timing import timed

BLOCK = 1_000_000
ADDED = 20_000
NEIGHBOURS = 10
BATCHES = (1, 64)
MILVUS_BATCHES = (1, 16)


def searched_codes(codes: int, bits: int, seed: int) -> dict[str, dict[str, Any]]:
    """Exact search of a mapped file, in which every query has a copy that must be found."""
    from ddh.codes import search

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "codes.npy"
        queries = gaussian(max(BATCHES), bits, seed, codes)
        _, making = timed(_write_codes, file, codes, queries, seed)
        database = np.load(file, mmap_mode="r")

        def ask(count: int) -> Any:
            return search(queries[:count], database, NEIGHBOURS).distances

        return _measured("mapped file", codes, BATCHES, making["wall"], ask)


def milvus_codes(milvus: int, bits: int, seed: int) -> dict[str, dict[str, Any]]:
    """The same codes in a Milvus Lite file."""
    import ddh.index

    queries = gaussian(max(MILVUS_BATCHES), bits, seed, milvus)
    rows = gaussian(milvus, bits, seed, 0)
    _plant(rows, queries, 0, milvus)
    with (
        tempfile.TemporaryDirectory() as scratch,
        ddh.index.open(Path(scratch) / "codes.db", bits=bits) as index,
    ):

        def fill() -> None:
            for start in track(range(0, milvus, ADDED), "Milvus", unit="block"):
                part = rows[start : start + ADDED]
                index.add([str(start + n) for n in range(len(part))], part)

        _, making = timed(fill)

        def ask(count: int) -> Any:
            hits = index.search(queries[:count], NEIGHBOURS)
            return np.array([[hit.distance for hit in one] for one in hits])

        return _measured("Milvus Lite", milvus, MILVUS_BATCHES, making["wall"], ask)


def _write_codes(file: Path, rows: int, queries: NDArray[np.uint8], seed: int) -> None:
    """Make the file, block by block."""
    database = open_memmap(file, "w+", np.uint8, (rows, queries.shape[1]))
    for start in track(range(0, rows, BLOCK), "Codes", unit="block"):
        count = min(BLOCK, rows - start)
        block = gaussian(count, 8 * queries.shape[1], seed, start)
        _plant(block, queries, start, rows)
        database[start : start + count] = block
    database.flush()


def _plant(block: NDArray[np.uint8], queries: NDArray[np.uint8], start: int, rows: int) -> None:
    """Put copies of the queries at rows spread over the whole; those of this block."""
    planted = np.linspace(0, rows - 1, len(queries)).astype(np.int64)
    inside = (planted >= start) & (planted < start + len(block))
    block[planted[inside] - start] = queries[inside]


def _measured(
    where: str,
    rows: int,
    batches: tuple[int, ...],
    making: float,
    ask: Callable[[int], NDArray[np.integer]],
) -> dict[str, dict[str, Any]]:
    """Seconds of each batch of queries, the second time it is asked."""
    found = {}
    for count in batches:
        missed = np.flatnonzero(ask(count)[:, 0])
        if missed.size:
            raise DDHError(f"{where}: the row that equals query {missed[0]} was not found")
        _, seconds = timed(ask, count)
        key = f"{where}, {count}"
        found[key] = {
            "where": where, "rows": rows, "queries": count, "making seconds": making, **seconds,
        }  # fmt: skip
    return found
