"""`ddh bench search`: Hamming search beside faiss, usearch, NumPy, and the machine's limits.

Everything is measured in one run: one thread in queries per CPU second, which stays meaningful on
a machine with other load, and two threads in queries per second.
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh import codes
from ddh._core.errors import DDHError, InputError
from ddh._core.output import emit, json_option
from ddh._core.progress import bar
from ddh._core.spans import even_spans
from ddh._core.threads import cpu_count, thread_map
from ddh.bench import search_gpu
from ddh.bench.options import quick_option, seed_option
from ddh.bench.results import Table, table_of
from ddh.bench.search_data import KINDS, Codes
from ddh.bench.timing import fastest, run_isolated, timed
from ddh.codes import kernel_numpy
from ddh.codes.kernels import native

BITS, ROWS, NEIGHBOURS = (16, 32, 64, 128, 256), (1_000_000, 10_000_000), (10, 100, 1000)
QUICK = {
    "bits": (16, 64),
    "rows": (100_000,),
    "neighbours": (10, 100),
    "data": ("lsh",),
    "repeat": 1,
}
GPU_ROWS = (1_000_000_000,)
RADIUS = 4  # of the pairs
BATCHES, BATCHED_K = (1, 8, 16, 32, 64, 65, 96, 128, 129, 200, 256, 1024), (10, 100)
Cell = dict[str, Any]


@click.command()
@click.option("--bits", multiple=True, type=int, default=BITS)
@click.option("--rows", multiple=True, type=int, default=None)
@click.option("-k", "neighbours", multiple=True, type=int, default=NEIGHBOURS)
@click.option(
    "--data",
    multiple=True,
    type=click.Choice(list(KINDS)),
    default=("lsh", "clustered"),
    help="Kind of codes.",
)
@click.option(
    "--device", help="Search on this device of torch instead (cuda); the default is a billion rows."
)
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(("exact", "batches", "sublinear", "single", "pairs")),
    help="Only this part; the default is all of them.",
)
@click.option("--repeat", default=2, help="Repetitions; the fastest counts.")
@seed_option
@quick_option
@json_option
def search(
    quick: bool, as_json: bool, device: str | None, parts: tuple[str, ...], **settings: Any
) -> None:
    """Queries per second of exact search: ours and others.

    \b
    ddh bench search                       the tables of docs/codes.md, half an hour
    ddh bench search --bits 64 --rows 1000000 --part exact
    ddh bench search --quick
    DDH_KERNEL=avx2 FAISS_SIMD_LEVEL=AVX2 ddh bench search --quick
    ddh bench search --device cuda --bits 64
    """
    settings["rows"] = settings["rows"] or (GPU_ROWS if device else ROWS)
    settings.update(QUICK if quick else {})
    if any(bits % 8 or not 8 <= bits <= 4096 for bits in settings["bits"]):
        raise InputError("faiss and usearch compare whole bytes: choose multiples of 8 bits")
    if min(*settings["rows"], *settings["neighbours"], settings["repeat"], 1) < 1:
        raise InputError("rows, neighbours and repeats are at least 1")
    if device:
        found = search_gpu.document(settings, device)
        emit(found, search_gpu.text(found), as_json)
        return
    document = {
        "kernel": codes.kernel(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "faiss": faiss_level(),
        "settings": settings,
        "limits": limits(),
    }
    for part, measure in PARTS.items():
        if part in parts or not parts:
            document[part] = measure(settings)
    emit(document, _text(document), as_json)


# -- the peers ---------------------------------------------------------------------------------

Search = Callable[[Codes, int, int], NDArray[Any]]  # queries, k, threads -> distances


@dataclass(frozen=True)
class Peer:
    """A way to search; `pairs` limits the comparisons of one measurement."""

    name: str
    prepare: Callable[[Codes], Search]
    pairs: int
    package: str = "numpy"


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


def faiss_level() -> str:
    """The version of faiss and the instruction set it runs with (FAISS_SIMD_LEVEL); "" without."""
    if not find_spec("faiss"):
        return ""
    faiss = import_module("faiss")
    config = getattr(faiss, "SIMDConfig", None)
    level = config.get_level_name() if config else faiss.get_compile_options().strip()
    return f"{faiss.__version__}, {level}"


def _memory_read(threads: int, data: NDArray[Any]) -> float:
    """Bytes per second of some data that so many threads read together."""
    words = np.ravel(data).view(np.uint64)
    parts = even_spans(len(words), threads)

    def read() -> None:
        thread_map(lambda part: np.maximum.reduce(words[part]), parts, threads)

    return words.nbytes / fastest(read, 10, "wall")


def limits() -> dict[str, float]:
    """Bytes per second of one core: memory reads, and XOR with popcount in the L1 cache."""
    found = {"memory read GB/s": _memory_read(1, np.ones(1 << 25, dtype=np.uint64)) / 1e9}
    kernel = native()
    if kernel:
        from ddh.codes import _hamming

        small, turns = np.arange(1 << 14, dtype=np.uint64).view(np.uint8)[: 1 << 14], 20_000
        counted = fastest(lambda: _hamming.count_ones(kernel.variant, small, turns), 3)
        found["popcount GB/s"] = turns * small.nbytes / counted / 1e9
    return found


# -- exact search ------------------------------------------------------------------------------


def exact_cells(settings: dict[str, Any]) -> list[Cell]:
    """Rates of every peer for every kind of codes, length, number of rows and k."""
    names = ("data", "bits", "rows", "neighbours")
    data, bits, rows, neighbours = (settings[name] for name in names)
    cells: list[Cell] = []
    total = len(data) * len(bits) * len(rows) * len(neighbours)
    with bar("Searching", total=total, unit="cell") as progress:
        for kind in data:
            longest = KINDS[kind](max(rows), max(bits), settings["seed"], 0)
            asked = KINDS[kind](1024, max(bits), settings["seed"], 1)
            for length, count in product(bits, rows):
                database = np.ascontiguousarray(longest[:count, : length // 8])
                queries = np.ascontiguousarray(asked[:, : length // 8])
                sizes = {"data": kind, "bits": length, "rows": count}
                measured = _rates(database, queries, neighbours, settings["repeat"])
                cells += [sizes | cell for cell in measured]
                progress.update(len(neighbours))
    return cells


def _rates(database: Codes, queries: Codes, neighbours: tuple[int, ...], repeat: int) -> list[Cell]:
    cells: list[Cell] = [{"k": min(k, len(database)), "rates": {}} for k in neighbours]
    for peer in installed():
        run = peer.prepare(database)
        few = queries[: int(np.clip(peer.pairs // len(database), 1, 1024))]
        run(few[:1], 1, 1)  # warm-up
        for cell in cells:
            if peer is OURS:
                cell["distances"] = run(few, cell["k"], 1)
            _check(peer, run(few[:4], cell["k"], 1), cell["distances"])
            one = fastest(partial(run, few, cell["k"], 1), repeat)
            two = fastest(partial(run, few, cell["k"], 2), repeat, "wall")
            rates = {"queries": len(few), "1": len(few) / one, "2": len(few) / two}
            cell["rates"][peer.name] = rates
    for cell in cells:
        del cell["distances"]
        others = [r["1"] for name, r in cell["rates"].items() if name.startswith("faiss")]
        cell["times faiss"] = cell["rates"]["ours"]["1"] / max(others) if others else None
        cell["GB/s"] = cell["rates"]["ours"]["1"] * database.nbytes / 1e9
    return cells


def _check(peer: Peer, found: Codes, ours: Codes) -> None:
    if not np.array_equal(found, ours[: len(found)]):
        raise DDHError(f"{peer.name} and ours disagree about a distance")


# -- batch sizes, and sublinear search ---------------------------------------------------------


def _usual(settings: dict[str, Any]) -> int:
    """The length closest to 64 bits."""
    return int(min(settings["bits"], key=lambda length: abs(length - 64)))


def _example(settings: dict[str, Any], kind: str) -> tuple[Codes, Codes, int]:
    """The smaller database, at the usual length."""
    bits = _usual(settings)
    rows, seed = min(settings["rows"]), settings["seed"]
    return KINDS[kind](rows, bits, seed, 0), KINDS[kind](1024, bits, seed, 1), bits


def batches(settings: dict[str, Any]) -> list[Cell]:
    """Rates by the number of queries per call, for the usual length and those above it."""
    usual = _usual(settings)
    return [_batches(settings, bits) for bits in settings["bits"] if bits >= usual]


def _batches(settings: dict[str, Any], bits: int) -> Cell:
    """Rates of Hamming search, of its scan by rows alone, and of asymmetric search."""
    rows, seed = min(settings["rows"]), settings["seed"]
    database, queries = (KINDS["random"](n, bits, seed, part) for part, n in ((0, rows), (1, 1024)))
    sizes = np.abs(np.random.default_rng(seed).standard_normal((len(queries), bits)))
    ways: dict[str, tuple[Any, NDArray[Any]]] = {"Hamming": (codes.search, queries)}
    if bits == _usual(settings):
        ways["Hamming by rows"] = _by_rows, queries
        values = sizes * codes.unpack(queries, bits)
        ways["asymmetric"] = codes.search_asymmetric, values
    rates: dict[str, dict[str, dict[str, float]]] = {}
    for k, size in product(BATCHED_K, BATCHES):
        k = min(k, len(database))
        cell = rates.setdefault(str(k), {}).setdefault(str(size), {})
        calls = max(1, 64 // size)
        for name, (search, asked) in ways.items():
            parts = [asked[size * call : size * (call + 1)] for call in range(calls)]

            def ask(k: int = k, search: Any = search, parts: Any = parts) -> None:
                for part in parts:
                    search(part, database, k, threads=1)

            cell[name] = size * calls / fastest(ask, 5 * settings["repeat"])
    return {"bits": bits, "rows": len(database), "rates": rates}


def _by_rows(queries: Codes, database: Codes, k: int, threads: int) -> None:
    """Each query against the rows, where the native kernel would answer many together."""
    kernel = native()
    if not kernel:
        codes.search(queries, database, k, threads)
        return
    from ddh.codes import _hamming

    answer = codes.Neighbours.empty(len(queries), k)
    _hamming.top_k(kernel.variant, 0, queries, database, database.shape[1], k, *answer)


def single(settings: dict[str, Any]) -> list[Cell]:
    """One query at a time against the larger database, beside reading the same bytes."""
    rows, bits = max(settings["rows"]), _usual(settings)
    database = KINDS["random"](rows, bits, settings["seed"], 0)
    query = KINDS["random"](1, bits, settings["seed"], 1)
    search = partial(codes.search, query, database, min(10, rows))
    cells = []
    for threads in sorted({1, cpu_count()}):
        read = _memory_read(threads, database[: rows - rows % 8])
        seconds = fastest(partial(search, threads), 20, "wall")
        rate = database.nbytes / seconds
        sizes = {"bits": bits, "rows": rows, "threads": threads, "milliseconds": 1e3 * seconds}
        rates = {"GB/s": rate / 1e9, "memory read GB/s": read / 1e9, "share": rate / read}
        cells.append(sizes | rates)
    return cells


def near_pairs(settings: dict[str, Any]) -> Cell:
    """All pairs within a few bits in a process of its own; one row in a hundred has a near copy."""
    sizes = {"rows": max(settings["rows"]), "bits": _usual(settings), "seed": settings["seed"]}
    found: Cell = run_isolated(_near_pairs, sizes)["pairs"]
    return found


def _near_pairs(rows: int, bits: int, seed: int) -> dict[str, Cell]:
    database = KINDS["random"](rows, bits, seed, 0)
    database[: rows // 100] = database[rows // 2 : rows // 2 + rows // 100]
    database[: rows // 200, 0] ^= 5
    found, seconds = timed(codes.pairs_within, database, RADIUS)
    sizes = {"bits": bits, "rows": rows, "radius": RADIUS, "pairs": len(found.first)}
    return {"pairs": sizes | {"seconds": seconds["wall"], "cpu seconds": seconds["cpu"]}}


def sublinear(settings: dict[str, Any]) -> list[Cell]:
    """MultiIndex and ApproximateIndex with their build time, beside the scan; k = 10."""
    cells = []
    for data in settings["data"]:
        database, queries, bits = _example(settings, data)
        k = min(10, len(database))
        true = codes.search(queries, database, k).indices
        scan = fastest(partial(codes.search, queries, database, k, threads=1), 2)
        for kind in (codes.MultiIndex, codes.ApproximateIndex):
            index, seconds = timed(kind, database, bits)
            found = index.search(queries, k).indices
            rate = fastest(partial(index.search, queries, k, threads=1), 2)
            cell = {"data": data, "index": repr(index), "build seconds": seconds["cpu"]}
            recall = float((found[:, :, None] == true[:, None, :]).any(axis=2).mean())
            speed = {"rate": len(queries) / rate, "times the scan": scan / rate}
            cells.append(cell | {"recall": recall} | speed)
    return cells


PARTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "exact": exact_cells,
    "batches": batches,
    "sublinear": sublinear,
    "single": single,
    "pairs": near_pairs,
}


def _text(document: dict[str, Any]) -> str:
    found = ", ".join(f"{name} {value:.1f}" for name, value in document["limits"].items())
    beside = f"; faiss {document['faiss']}" if document["faiss"] else ""
    first = f"kernel {document['kernel']}; {document['machine']}; one core: {found}{beside}\n"
    tables: list[Table] = []
    if "exact" in document:
        tables.append(_exact_table(document["exact"], document["limits"]))
    tables += [_batch_table(batch) for batch in document.get("batches", ())]
    for part, (title, columns) in _SIMPLE.items():
        if part in document:
            cells = document[part]
            tables.append(table_of(title, cells if isinstance(cells, list) else [cells], columns))
    return "\n".join([first, *(table.markdown() for table in tables)])


_SIMPLE = {
    "sublinear": (
        "Sublinear search: one thread, k = 10",
        {
            "data": "{data}",
            "index": "{index}",
            "build": "{build seconds:.1f} s",
            "recall": "{recall:.4f}",
            "rate": "{rate:,.0f}",
            "x scan": "{times the scan:.1f}",
        },
    ),
    "single": (
        "A single query, k = 10, beyond the caches",
        {
            "bits": "{bits}",
            "rows": "{rows:,}",
            "threads": "{threads}",
            "time": "{milliseconds:.2f} ms",
            "GB/s": "{GB/s:.1f}",
            "memory read": "{memory read GB/s:.1f}",
            "share": "{share:.0%}",
        },
    ),
    "pairs": (
        "All pairs within a radius",
        {
            "bits": "{bits}",
            "rows": "{rows:,}",
            "radius": "{radius}",
            "pairs": "{pairs:,}",
            "time": "{seconds:.1f} s",
            "CPU time": "{cpu seconds:.1f} s",
            "peak memory": "{peak MB:,.0f} MB",
        },
    ),
}


def _exact_table(cells: list[Cell], limit: dict[str, float]) -> Table:
    sizes = {"data": "{data}", "bits": "{bits}", "rows": "{rows:,}", "k": "{k}"}
    names = (*cells[0]["rates"], "x faiss", "memory", "popcount")
    return table_of(
        "Exact search: queries per CPU second with one thread / queries per second with two",
        [cell | _shown(cell, limit) for cell in cells],
        {**sizes, **{name: f"{{{name}}}" for name in names}},
        "memory, popcount: bytes per second that ours compares, relative to those limits.",
    )


def _batch_table(batch: Cell) -> Table:
    lines = []
    for k, by_size in batch["rates"].items():
        names = list(next(iter(by_size.values())))
        for name in names:
            cells = (f"{rates[name]:,.0f}" for rates in by_size.values())
            lines.append([f"{name}, k = {k}", *cells])
        for name in names[:-1] if "asymmetric" in names else ():
            times = (f"{rates[name] / rates['asymmetric']:.2f}" for rates in by_size.values())
            lines.append([f"time of asymmetric / {name}", *times])
    return Table(
        "Ours in queries per second by the number of queries per call: random codes, "
        f"{batch['bits']} bits, {batch['rows']:,} rows, one thread",
        ["queries", *(f"{size:,}" for size in BATCHES)],
        lines,
    )


def _shown(cell: Cell, limit: dict[str, float]) -> dict[str, str]:
    """Formatted rates of every peer, and those of ours relative to faiss and to the machine."""
    cells = {name: f"{rate['1']:,.0f} / {rate['2']:,.0f}" for name, rate in cell["rates"].items()}
    cells["x faiss"] = f"{cell['times faiss']:.1f}" if cell["times faiss"] else "-"
    for name in ("memory", "popcount"):
        most = next((limit[key] for key in limit if key.startswith(name)), None)
        cells[name] = f"{cell['GB/s'] / most:.0%}" if most else "-"
    return cells
