"""Which implementation of the searches runs: our own native one, or NumPy.

The best one that this machine offers is taken, unless the environment variable DDH_KERNEL
names another: `native`, `numpy`, or one of the native instruction sets (`avx512`, `avx512bw`,
`avx2`, `neon`, `plain`).
"""

import os
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.codes.inputs import Codes, Values

if TYPE_CHECKING:
    from ddh.codes.kernel_native import NativeKernel

VARIABLE = "DDH_KERNEL"
INSTRUCTION_SETS = ("avx512", "avx512bw", "avx2", "neon", "plain")
_NAMES = {"avx512": "avx512-vpopcntdq"}

Found = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]  # limits, then the same


class Neighbours(NamedTuple):
    """Nearest rows, by distance, equal distances by the smaller index; a plain pair of arrays."""

    distances: NDArray[np.int32]
    indices: NDArray[np.int64]

    @classmethod
    def empty(cls, queries: int, k: int) -> "Neighbours":
        """Room for k answers to each of so many queries."""
        return cls(np.empty((queries, k), np.int32), np.empty((queries, k), np.int64))

    @classmethod
    def merge(cls, parts: "list[Neighbours]", k: int) -> "Neighbours":
        """The k nearest of the answers from consecutive parts of the rows."""
        distances, indices = (np.concatenate(column, axis=1) for column in zip(*parts, strict=True))
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return cls(np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1))


class ScoredNeighbours(NamedTuple):
    """Best rows, by score, equal scores by the smaller index; a plain pair of arrays."""

    scores: NDArray[np.float64]
    indices: NDArray[np.int64]

    @classmethod
    def empty(cls, queries: int, k: int) -> "ScoredNeighbours":
        """Room for k answers to each of so many queries."""
        return cls(np.empty((queries, k)), np.empty((queries, k), np.int64))

    @classmethod
    def merge(cls, parts: "list[ScoredNeighbours]", k: int) -> "ScoredNeighbours":
        """The k best of the answers from consecutive parts of the rows."""
        scores, indices = (np.concatenate(column, axis=1) for column in zip(*parts, strict=True))
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return cls(np.take_along_axis(scores, order, 1), np.take_along_axis(indices, order, 1))


class Kernel(Protocol):
    """What an implementation offers; arguments are checked, neither side is empty, k <= rows."""

    def hamming(self, a: Codes, b: Codes) -> NDArray[np.int32]: ...

    def search(self, queries: Codes, database: Codes, k: int, threads: int) -> Neighbours: ...

    def search_radius(
        self, queries: Codes, database: Codes, radius: int, threads: int
    ) -> Found: ...

    def search_asymmetric(
        self, values: Values, database: Codes, k: int, threads: int
    ) -> ScoredNeighbours: ...

    def asymmetric_scores(self, values: Values, codes: Codes) -> NDArray[np.float64]: ...


@lru_cache
def _choose(wanted: str) -> tuple[str, Kernel]:
    choices = ("native", "numpy", *INSTRUCTION_SETS)
    if wanted and wanted not in choices:
        raise InputError(f"{VARIABLE}={wanted}: choose one of {', '.join(choices)}")
    try:
        if wanted != "numpy":
            native = import_module("ddh.codes.kernel_native")
            variant = wanted if wanted in INSTRUCTION_SETS else native.VARIANTS[0]
            if variant not in native.VARIANTS:
                raise ImportError(f"this processor offers {' and '.join(native.VARIANTS)}")
            return f"native {_NAMES.get(variant, variant)}", native.NativeKernel(variant)
    except (ImportError, IndexError) as error:  # not built, or for no processor like this one
        if wanted:
            raise InputError(f"{VARIABLE}={wanted} cannot run here: {error}") from error
    return "numpy", cast(Kernel, import_module("ddh.codes.kernel_numpy"))


def chosen() -> tuple[str, Kernel]:
    """The name and the functions of the implementation that runs now."""
    return _choose(os.environ.get(VARIABLE, "").strip().lower())


def native() -> "NativeKernel | None":
    """The native implementation where that is what runs: it also searches in buckets and lists."""
    name, functions = chosen()
    return cast("NativeKernel", functions) if name.startswith("native ") else None


def kernel() -> str:
    """A short name of what runs: "native neon", "native avx512-vpopcntdq" or "numpy"."""
    return chosen()[0]
