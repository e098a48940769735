"""Time and peak memory of a piece of work."""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, dict[str, float]]:
    """(its result, {"wall": seconds, "cpu": seconds}).

    The CPU time of all threads stays comparable on a machine with other load.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    answer = work(*arguments)
    return answer, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def fastest(work: Callable[[], Any], repeat: int = 1, clock: str = "cpu") -> float:
    """The least time of several runs: other load on the machine only adds."""
    return max(min(timed(work)[1][clock] for _ in range(repeat)), 1e-9)


def run_isolated(part: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The figures {name: {...}} of `part(**settings)`, each with the peak memory of its process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_with_peak, part, settings).result()


def _with_peak(part: Any, settings: dict[str, Any]) -> dict[str, Any]:
    found = part(**settings)
    return {name: {"peak MB": peak(), **figures} for name, figures in found.items()}


def peak() -> float:
    """Peak memory of this process in megabytes; 0 where the system does not report it."""
    try:
        import resource
    except ImportError:
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
