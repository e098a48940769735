"""Synthetic codes: with neighbourhoods, in tight clusters, or without any structure."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]
Draw = Callable[[np.random.Generator, int], NDArray[Any]]

_BLOCK = 100_000
_CENTRES = 1000
_DIMENSIONS = 64


def _blocks(rows: int, bits: int, seed: int, part: int, draw: Draw) -> Codes:
    """Codes in blocks of rows, each packed from the bits that `draw(generator, rows)` gives."""
    rng = np.random.default_rng([seed, part])
    codes = np.empty((rows, bits // 8), dtype=np.uint8)
    for start in range(0, rows, _BLOCK):
        codes[start : start + _BLOCK] = np.packbits(draw(rng, min(_BLOCK, rows - start)), axis=1)
    return codes


def lsh(rows: int, bits: int, seed: int, part: int) -> Codes:
    """Signs of random projections of points around 1,000 centres, noise half of their spread."""
    fixed = np.random.default_rng(seed)
    centres = fixed.standard_normal((_CENTRES, _DIMENSIONS), dtype=np.float32)
    planes = fixed.standard_normal((_DIMENSIONS, bits), dtype=np.float32)

    def draw(rng: np.random.Generator, n: int) -> NDArray[Any]:
        noise = rng.standard_normal((n, _DIMENSIONS), dtype=np.float32)
        points = centres[rng.integers(_CENTRES, size=n)] + np.float32(0.5) * noise
        return points @ planes > 0

    return _blocks(rows, bits, seed, part, draw)


def gaussian(rows: int, bits: int, seed: int, part: int) -> Codes:
    """Signs of random projections of a 16-dimensional Gaussian: neighbours but no clusters.

    The distances of the 1 to 1,000 nearest of 20,000 rows are about those of ITQ codes of
    CIFAR-10 (features of EfficientNet-Lite0).
    """
    planes = np.random.default_rng(seed).standard_normal((16, bits), dtype=np.float32)

    def draw(rng: np.random.Generator, n: int) -> NDArray[Any]:
        return rng.standard_normal((n, 16), dtype=np.float32) @ planes > 0

    return _blocks(rows, bits, seed, part, draw)


def clustered(rows: int, bits: int, seed: int, part: int) -> Codes:
    """1,000 codes, 2 % of the bits flipped: at 64 bits a quarter of the rows are duplicates."""
    centres = np.random.default_rng(seed).integers(0, 2, (_CENTRES, bits), dtype=np.uint8)

    def draw(rng: np.random.Generator, n: int) -> NDArray[Any]:
        flips = rng.random((n, bits), dtype=np.float32) < 0.02
        return centres[rng.integers(_CENTRES, size=n)] ^ flips

    return _blocks(rows, bits, seed, part, draw)


def random(rows: int, bits: int, seed: int, part: int) -> Codes:
    """Independent fair bits."""
    rng = np.random.default_rng([seed, part])
    return rng.integers(0, 256, (rows, bits // 8), dtype=np.uint8)


KINDS: dict[str, Callable[[int, int, int, int], Codes]] = {
    "lsh": lsh,
    "gaussian": gaussian,
    "clustered": clustered,
    "random": random,
}
