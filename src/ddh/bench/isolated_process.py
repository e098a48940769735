"""Measurements in a fresh process, so that their peak memory includes nothing else."""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


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
