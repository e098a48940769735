"""How many threads to use, and ordered maps over them.

Plain threads are enough: decoding, hashing and the compiled kernels release the GIL.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def cpu_count() -> int:
    """Number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def omp_threads() -> int:
    """`cpu_count()`, or fewer where OMP_NUM_THREADS says so."""
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, min(cpu_count(), int(limit))) if limit.isdigit() else cpu_count()


def thread_map(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None
) -> list[Result]:
    """Results of `work` in the order of `items`; one thread or one item starts no pool."""
    items = list(items)
    threads = min(threads or cpu_count(), len(items))
    return list(map(work, items)) if threads <= 1 else list(thread_imap(work, items, threads))


def thread_imap(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None
) -> Iterator[Result]:
    """As `thread_map`, one result at a time; closing the iterator cancels what has not started."""
    pool = ThreadPoolExecutor(threads or cpu_count(), thread_name_prefix="ddh")
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
