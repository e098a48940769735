"""Which implementation of Hamming search runs: our own native one, faiss, or NumPy.

The best one that this machine offers is taken, unless the environment variable DDH_KERNEL
names another: `native`, `faiss`, `numpy`, or one of the native variants (`avx512`, `avx2`,
`neon`, `plain`).
"""

import os
from functools import lru_cache
from importlib import import_module
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ddh.codes.inputs import Codes
from ddh.errors import InputError

VARIABLE = "DDH_KERNEL"


class Kernel(Protocol):
    """What an implementation offers; arguments are checked, neither side is empty, k <= rows."""

    def hamming(self, a: Codes, b: Codes) -> NDArray[np.int32]: ...

    def search(
        self, queries: Codes, database: Codes, k: int, threads: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...

    def search_radius(
        self, queries: Codes, database: Codes, radius: int, threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]: ...


@lru_cache
def _choose(wanted: str) -> tuple[str, Kernel]:
    for name in [wanted] if wanted else ["faiss", "numpy"]:
        if name not in ("faiss", "numpy"):
            raise InputError(f"{VARIABLE}={wanted}: choose faiss or numpy")
        try:
            return name, import_module(f"ddh.codes.kernel_{name}")
        except ImportError as error:
            if wanted:
                raise InputError(f"{VARIABLE}={wanted} cannot run here: {error}") from error
    raise AssertionError("NumPy is always there")


def chosen() -> tuple[str, Kernel]:
    """The name and the functions of the implementation that runs now."""
    return _choose(os.environ.get(VARIABLE, "").strip().lower())


def kernel() -> str:
    """A short name of what runs: "native neon", "native avx2", "faiss", "numpy" and so on."""
    return chosen()[0]
