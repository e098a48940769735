"""Wall-clock and CPU time of a piece of work."""

import time
from collections.abc import Callable
from typing import Any


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, dict[str, float]]:
    """(its result, {"wall": seconds, "cpu": seconds}).

    The CPU time of all threads stays comparable on a machine with other load.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    answer = work(*arguments)
    return answer, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def fastest(work: Callable[[], Any], repeat: int, clock: str = "cpu") -> float:
    """The least time of several runs: other load on the machine only adds."""
    return max(min(timed(work)[1][clock] for _ in range(repeat)), 1e-9)
