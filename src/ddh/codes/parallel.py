"""Work in a few threads: the kernels release the GIL, so plain threads are enough."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def spans(stop: int, size: int, start: int = 0) -> list[slice]:
    """start..stop cut into slices of `size`, the last one shorter."""
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def even_spans(total: int, parts: int) -> list[slice]:
    """0..total cut into at most `parts` slices of nearly equal size, none of them empty."""
    return spans(total, max(1, -(-total // parts)))


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> list[Result]:
    """`work` of each item, in their order; nothing is started for one thread or one item."""
    items = list(items)
    if threads == 1 or len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(work, items))
