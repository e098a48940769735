"""Which implementation of Hamming search runs: our own native one, faiss, or NumPy.

The best one that this machine offers is taken, unless the environment variable DDH_KERNEL
names another: `native`, `faiss`, `numpy`, or one of the native instruction sets (`avx512`,
`avx2`, `neon`, `plain`).
"""

import os
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.codes.inputs import Codes

if TYPE_CHECKING:
    from ddh.codes.kernel_native import NativeKernel

VARIABLE = "DDH_KERNEL"
INSTRUCTION_SETS = ("avx512", "avx2", "neon", "plain")
_NAMES = {"avx512": "avx512-vpopcntdq"}


class Kernel(Protocol):
    """What an implementation offers; arguments are checked, neither side is empty, k <= rows."""

    def hamming(self, a: Codes, b: Codes) -> NDArray[np.int32]: ...

    def search(
        self, queries: Codes, database: Codes, k: int, threads: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...

    def search_radius(
        self, queries: Codes, database: Codes, radius: int, threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]: ...


def _native(variant: str = "") -> tuple[str, Kernel]:
    native = import_module("ddh.codes.kernel_native")
    variant = variant or native.VARIANTS[0]
    if variant not in native.VARIANTS:
        raise ImportError(f"this processor offers {' and '.join(native.VARIANTS)}")
    return f"native {_NAMES.get(variant, variant)}", native.NativeKernel(variant)


def _module(name: str) -> tuple[str, Kernel]:
    return name, cast(Kernel, import_module(f"ddh.codes.kernel_{name}"))


_CHOICES: dict[str, Callable[[], tuple[str, Kernel]]] = {
    "native": _native,
    "faiss": lambda: _module("faiss"),
    "numpy": lambda: _module("numpy"),
} | {variant: (lambda variant=variant: _native(variant)) for variant in INSTRUCTION_SETS}


@lru_cache
def _choose(wanted: str) -> tuple[str, Kernel]:
    if not wanted:
        try:
            return _native()
        except (ImportError, IndexError):  # not built, or for no processor like this one
            return _choose("faiss" if _installed("faiss") else "numpy")
    if wanted not in _CHOICES:
        raise InputError(f"{VARIABLE}={wanted}: choose one of {', '.join(_CHOICES)}")
    try:
        return _CHOICES[wanted]()
    except (ImportError, IndexError) as error:
        raise InputError(f"{VARIABLE}={wanted} cannot run here: {error}") from error


def _installed(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def chosen() -> tuple[str, Kernel]:
    """The name and the functions of the implementation that runs now."""
    return _choose(os.environ.get(VARIABLE, "").strip().lower())


def native() -> "NativeKernel | None":
    """The native implementation where that is what runs: it also searches in buckets and lists."""
    name, functions = chosen()
    return cast("NativeKernel", functions) if name.startswith("native ") else None


def kernel() -> str:
    """A short name of what runs: "native neon", "native avx512-vpopcntdq", "faiss", "numpy"."""
    return chosen()[0]
