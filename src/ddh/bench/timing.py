"""Seconds of a piece of work, on the wall and of the processor."""

import time
from collections.abc import Callable
from typing import Any


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, dict[str, float]]:
    """(what it returns, {"wall": seconds, "cpu": seconds}).

    Processor seconds of all threads stay comparable on a machine that does other work too.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    answer = work(*arguments)
    return answer, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
