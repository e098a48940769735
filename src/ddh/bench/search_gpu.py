"""`ddh bench search --device cuda`: exact search on a GPU beside the limits of its hardware."""

from functools import partial
from typing import Any

import numpy as np

from ddh import codes
from ddh._core.errors import DDHError
from ddh._core.progress import bar
from ddh.bench.results import table_of
from ddh.bench.timing import fastest, timed

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096)
ALL_K_BATCHES = (1, 256, 1024)  # where every k is measured, not only the first
CHECKED_QUERIES = 4
PAIR_ROWS, RADIUS = 100_000_000, 4
_BLOCK = 1 << 26  # rows that are drawn at once
_MATRIX = 8192
Cell = dict[str, Any]


def _random(rows: int, width: int, seed: int, device: str) -> Any:
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    found = torch.empty((rows, width), dtype=torch.uint8, device=device)
    for start in range(0, rows, _BLOCK):
        found[start : start + _BLOCK].random_(0, 256, generator=generator)
    return found


def limits(device: str) -> Cell:
    """Reads from memory in TB/s, and FP8 products in 10^12 operations per second."""
    import torch

    large = torch.ones(1 << 30, dtype=torch.int64, device=device)

    def seconds(work: Any) -> float:
        def run() -> None:
            work()
            torch.cuda.synchronize()

        run()
        return fastest(run, 10, "wall")

    found = {"memory read TB/s": large.nbytes / seconds(lambda: large.max()) / 1e12}
    if torch.cuda.get_device_capability(device) >= (8, 9):
        a, b = (
            torch.ones((_MATRIX, _MATRIX), device=device).to(torch.float8_e4m3fn) for _ in range(2)
        )
        one = torch.ones((), device=device)
        product = partial(torch._scaled_mm, a, b.t(), one, one, out_dtype=torch.bfloat16)
        found["fp8 TOPS"] = 2 * _MATRIX**3 / seconds(product) / 1e12
    return found


def document(settings: dict[str, Any], device: str) -> dict[str, Any]:
    """Rates by the number of queries per call, checked against the CPU, and pairs in a radius."""
    import torch

    cells: list[Cell] = []
    pairs: list[Cell] = []
    bits, rows, seed = settings["bits"], settings["rows"], settings["seed"]
    with bar("Searching", total=len(bits) * len(rows), unit="database") as progress:
        for length in bits:
            for count in rows:
                database = _random(count, length // 8, seed, device)
                index = codes.GpuIndex(database, device)
                cells += _rates(index, database, settings)
                if length == min(bits, key=lambda value: abs(value - 64)):
                    pairs.append(_pairs(database[: min(count, PAIR_ROWS)], device))
                del database, index
                progress.update(1)
    name = torch.cuda.get_device_name(device) if "cuda" in device else device
    return {
        "device": name,
        "settings": settings,
        "limits": limits(device) if "cuda" in device else {},
        "cells": cells,
        "pairs": pairs,
    }


def _rates(index: codes.GpuIndex, database: Any, settings: dict[str, Any]) -> list[Cell]:
    width = database.shape[1]
    queries = np.random.default_rng(settings["seed"] + 1).integers(
        0, 256, (max(BATCHES), width), dtype=np.uint8
    )
    first, *others = (min(k, len(index)) for k in settings["neighbours"])
    host = database.cpu().numpy()
    true = codes.search(queries[:CHECKED_QUERIES], host, first)
    cells = []
    for size in BATCHES:
        asked = queries[:size]
        for k in (first, *others) if size in ALL_K_BATCHES else (first,):
            found = index.search(asked, k)  # compiles the kernel, too
            _check(found, true, min(size, CHECKED_QUERIES), min(k, first))
            seconds = fastest(partial(index.search, asked, k), 2 + settings["repeat"], "wall")
            pairs = size * len(index) / seconds
            cells.append(
                {
                    "bits": 8 * width,
                    "rows": len(index),
                    "queries": size,
                    "k": k,
                    "milliseconds": 1e3 * seconds,
                    "rate": size / seconds,
                    "TB/s": len(index) * width / seconds / 1e12,
                    "TOPS": pairs * 16 * width / 1e12,
                }
            )
    return cells


def _check(found: codes.Neighbours, true: codes.Neighbours, queries: int, k: int) -> None:
    part = slice(0, queries), slice(0, k)
    for column in (0, 1):
        if not np.array_equal(found[column][part], true[column][part]):
            raise DDHError("the GPU and the CPU disagree about a neighbour")


def _pairs(database: Any, device: str) -> Cell:
    """All pairs within the radius among rows of which one in a hundred has a near copy."""
    rows = database.clone()
    n = len(rows)
    rows[: n // 100] = rows[n // 2 : n // 2 + n // 100]
    rows[: n // 200, 0] ^= 5
    index = codes.GpuIndex(rows, device)
    found, seconds = timed(index.pairs_within, RADIUS)
    pairs = len(found.first)
    return {"rows": n, "radius": RADIUS, "pairs": pairs, "seconds": seconds["wall"]}


def text(found: dict[str, Any]) -> str:
    """The document as tables."""
    limit = found["limits"]
    shown = ", ".join(f"{name} {value:,.1f}" for name, value in limit.items())
    memory, products = (limit.get(name) for name in ("memory read TB/s", "fp8 TOPS"))
    for cell in found["cells"]:
        cell["memory"] = f"{cell['TB/s'] / memory:.0%}" if memory else "-"
        cell["products"] = f"{cell['TOPS'] / products:.0%}" if products else "-"
    columns = {"bits": "{bits}", "rows": "{rows:,}", "queries": "{queries:,}", "k": "{k}"}
    rates = {"time": "{milliseconds:.2f} ms", "queries per second": "{rate:,.0f}"}
    search = table_of(
        "Exact search on the device: random codes, answers checked against the CPU",
        found["cells"],
        columns | rates | {"memory": "{memory}", "products": "{products}"},
        "memory: bytes of the database per second, of what the device reads; products: operations "
        "of the +-1 products per second, of its FP8 matrix products (a scan by XOR and popcount "
        "makes none).",
    )
    pairs = table_of(
        "All pairs within a radius",
        found["pairs"],
        {"rows": "{rows:,}", "radius": "{radius}", "pairs": "{pairs:,}", "time": "{seconds:.2f} s"},
    )
    return "\n".join([f"{found['device']}; {shown}\n", search.markdown(), pairs.markdown()])
