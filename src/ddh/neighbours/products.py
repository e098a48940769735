"""Products of unit rows: cosines up to a known rounding error, as fast as the CPU allows."""

from pathlib import Path
from timeit import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.lazy import has_torch
from ddh.neighbours.cosine import CosineSpace, pieces

LEAST_ROWS = 4096  # from which bfloat16 may pay off

Rows = slice | NDArray[np.int32]


class Product:
    """The cosines of all rows with all rows, by tiles; `error` is how far any may be off."""

    units: Any
    error: float

    def __len__(self) -> int:
        return len(self.units)

    def tile(self, rows: Rows, columns: slice) -> NDArray[np.float32]:
        """Cosines of some rows with some columns, in an array of the caller's own."""
        return np.asarray(self.units[rows] @ self.units[columns].T)


def summing_error(dimensions: int) -> float:
    """How far a float32 dot product of two unit rows is off at most, in any order of summing."""
    # |fl(a.b) - a.b| <= gamma_d |a|.|b| (Higham, section 3.1), where |a|.|b| <= 1 by
    # Cauchy-Schwarz; some units more for rounding the rows themselves and the comparisons
    steps = (dimensions + 8) * 2.0**-24
    return 1.01 * steps / (1.0 - steps)


class Float32Product(Product):
    """float32 by NumPy's BLAS."""

    def __init__(self, space: CosineSpace, index: NDArray[np.int32]) -> None:
        self.units = np.empty((len(index), space.dimensions), np.float32)
        for part in pieces(len(index), space.dimensions):
            self.units[part] = space.l2_normalize(index[part])
        self.error = summing_error(space.dimensions)


class BFloat16Product(Product):
    """bfloat16 by torch, for CPUs that multiply it faster than float32 (AMX, AVX-512 BF16)."""

    def __init__(self, space: CosineSpace, index: NDArray[np.int32]) -> None:
        import torch

        self.units = torch.empty((len(index), space.dimensions), dtype=torch.bfloat16)
        off = 0.0
        for part in pieces(len(index), space.dimensions):
            exact = torch.from_numpy(space.l2_normalize(index[part]))
            self.units[part] = exact.to(torch.bfloat16)
            off = max(off, float((self.units[part].double() - exact).norm(dim=1).max()))
        # |a.b - a'.b'| <= |a - a'| |b| + |a'| |b - b'|; then sums in float32, then one rounding
        self.error = 2 * off + off**2 + 2 * summing_error(space.dimensions) + 2.0**-8

    def tile(self, rows: Rows, columns: slice) -> NDArray[np.float32]:
        chosen = self.units[rows if isinstance(rows, slice) else rows.tolist()]
        return np.asarray((chosen @ self.units[columns].T).float().numpy())


def fastest_product(space: CosineSpace, index: NDArray[np.int32], k: int, room: int) -> Product:
    """bfloat16 where it is faster here and leaves at most `room` candidates for nearly all rows."""
    may_gain = len(index) >= LEAST_ROWS and has_torch() and multiplies_bfloat16()
    if may_gain and _bfloat16_is_faster(space.dimensions):
        product = BFloat16Product(space, index)
        rows = np.linspace(0, len(product) - 1, 128).astype(np.int32)
        cosines = product.tile(rows, slice(None))
        possible = cosines >= threshold(cosines, k + 1, product.error)[:, None]
        if (possible.sum(axis=1) > room).mean() < 0.05:
            return product
    return Float32Product(space, index)


def threshold(cosines: NDArray[np.float32], k: int, error: float) -> NDArray[np.float32]:
    """Per row, what a candidate must reach: the k-th largest less twice the error."""
    images = cosines.shape[1]
    kth = np.partition(cosines, images - k, axis=1)[:, images - k]
    return kth - np.float32(2.0 * error)


def multiplies_bfloat16() -> bool:
    """Whether the CPU says that it has instructions for products of bfloat16 (Linux)."""
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False
    return not words.isdisjoint({"amx_bf16", "avx512_bf16", "bf16"})


def _bfloat16_is_faster(dimensions: int) -> bool:
    """A race of some milliseconds: not every CPU with the instructions gains by them."""
    import torch

    def seconds(kind: torch.dtype) -> float:
        units = torch.ones((1024, dimensions), dtype=kind)
        return min(repeat(lambda: (units @ units.T).float(), number=1, repeat=3))

    return seconds(torch.bfloat16) < seconds(torch.float32)
