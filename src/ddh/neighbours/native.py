"""The compiled inner loops (`_overlap.c`, optional) and the threads that run them."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TypeVar

from ddh._core.threads import omp_threads, thread_map

Result = TypeVar("Result")


def _load() -> Any:
    try:
        return import_module("ddh.neighbours._overlap")
    except ImportError:  # built without a compiler: NumPy and SciPy do the same work, slower
        return None


loops = _load()


def available() -> bool:
    """Whether the compiled loops are there."""
    return loops is not None


def in_parallel(work: Callable[[slice], Result], parts: Iterable[slice]) -> list[Result]:
    """Results of `work` for every part, in order; the loops release the interpreter's lock."""
    return thread_map(work, parts, omp_threads())


def shares(total: int, *, least: int = 1, most: int | None = None) -> list[slice]:
    """Slices of 0..total, one or more a thread, of `least` to `most` numbers."""
    step = max(least, -(-total // omp_threads()))
    step = min(step, most or step)
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]
