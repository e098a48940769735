"""The compiled inner loops (`_overlap.c`, optional) and the threads that run them."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, TypeVar


def _load() -> Any:
    try:
        return import_module("ddh.neighbours._overlap")
    except ImportError:  # built without a compiler: NumPy and SciPy do the same work, slower
        return None


loops = _load()


def available() -> bool:
    """Whether the compiled loops are there."""
    return loops is not None


Result = TypeVar("Result")


def threads() -> int:
    """Cores this process may use, or fewer where OMP_NUM_THREADS says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, min(cores or 1, int(asked))) if asked.isdigit() else cores or 1


def in_parallel(work: Callable[[slice], Result], parts: Iterable[slice]) -> list[Result]:
    """Results of `work` for every part, in order; the loops release the interpreter's lock."""
    parts = list(parts)
    if len(parts) < 2 or threads() == 1:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads()) as pool:
        return list(pool.map(work, parts))


def shares(total: int, *, least: int = 1, most: int | None = None) -> list[slice]:
    """Slices of 0..total, one or more a thread, of `least` to `most` numbers."""
    step = max(least, -(-total // threads()))
    step = min(step, most or step)
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]
