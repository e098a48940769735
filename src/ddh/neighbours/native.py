"""The compiled inner loops (`_overlap.c`, optional) and the threads that run them."""

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeVar

from ddh._core.spans import spans
from ddh._core.threads import omp_threads, thread_map

Result = TypeVar("Result")


loops: Any = None
with suppress(ImportError):  # built without a compiler: NumPy and SciPy do the same, slower
    loops = import_module("ddh.neighbours._overlap")
if not hasattr(loops, "top_overlaps"):  # a build of an older version
    loops = None


def available() -> bool:
    """Whether the compiled loops were built."""
    return loops is not None


def parallel(
    work: Callable[[slice], Result],
    total: int,
    *,
    min_size: int = 1,
    max_size: int | None = None,
) -> list[Result]:
    """Results of `work` for slices of 0..total in order, at least one slice per thread."""
    threads = omp_threads()
    size = max(min_size, -(-total // threads))
    return thread_map(work, spans(total, min(size, max_size or size)), threads)
