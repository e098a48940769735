"""Binary codes to search in: with neighbourhoods, in tight clusters, or without any structure."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]

_BLOCK = 100_000
_CENTRES = 1000
_DIMENSIONS = 64


def lsh(rows: int, bits: int, seed: int, part: int) -> Codes:
    """Signs of random projections of points around 1,000 centres, noise half of their spread."""
    fixed = np.random.default_rng(seed)
    centres = fixed.standard_normal((_CENTRES, _DIMENSIONS), dtype=np.float32)
    planes = fixed.standard_normal((_DIMENSIONS, bits), dtype=np.float32)
    rng = np.random.default_rng([seed, part])

    def block(n: int) -> Codes:
        noise = rng.standard_normal((n, _DIMENSIONS), dtype=np.float32)
        points = centres[rng.integers(_CENTRES, size=n)] + np.float32(0.5) * noise
        return np.packbits(points @ planes > 0, axis=1)

    return _in_blocks(rows, bits, block)


def gaussian(rows: int, bits: int, seed: int, part: int) -> Codes:
    """Signs of random projections of a Gaussian of 16 dimensions: neighbours but no clusters.

    The distances of the 1 to 1,000 nearest of 20,000 rows are about those of ITQ codes of
    CIFAR-10 (features of EfficientNet-Lite0).
    """
    planes = np.random.default_rng(seed).standard_normal((16, bits), dtype=np.float32)
    rng = np.random.default_rng([seed, part])

    def block(n: int) -> Codes:
        points = rng.standard_normal((n, 16), dtype=np.float32)
        return np.packbits(points @ planes > 0, axis=1)

    return _in_blocks(rows, bits, block)


def clustered(rows: int, bits: int, seed: int, part: int) -> Codes:
    """1,000 codes, 2 % of the bits flipped: at 64 bits a quarter of the rows are exact copies."""
    centres = np.random.default_rng(seed).integers(0, 2, (_CENTRES, bits), dtype=np.uint8)
    rng = np.random.default_rng([seed, part])

    def block(n: int) -> Codes:
        flips = rng.random((n, bits), dtype=np.float32) < 0.02
        return np.packbits(centres[rng.integers(_CENTRES, size=n)] ^ flips, axis=1)

    return _in_blocks(rows, bits, block)


def random(rows: int, bits: int, seed: int, part: int) -> Codes:
    """Independent fair bits."""
    rng = np.random.default_rng([seed, part])
    return rng.integers(0, 256, (rows, bits // 8), dtype=np.uint8)


def _in_blocks(rows: int, bits: int, block: Callable[[int], Codes]) -> Codes:
    codes = np.empty((rows, bits // 8), dtype=np.uint8)
    for start in range(0, rows, _BLOCK):
        codes[start : start + _BLOCK] = block(min(_BLOCK, rows - start))
    return codes


KINDS: dict[str, Callable[[int, int, int, int], Codes]] = {
    "lsh": lsh,
    "gaussian": gaussian,
    "clustered": clustered,
    "random": random,
}
