"""Cosine similarity of features: checked rows, float64 order, exact where rows are equal.

The order of neighbours is the order of the cosine in float64. Within the list of image i the
length of x_i is the same for all, so `order_keys` compares

    sgn(d) d^2 / ||x_j||^2,   d = x_i . x_j

which needs no root: small whole numbers (pixels, counts, bits) tie exactly as on paper, and
equal rows always tie, because every dot product is summed in one fixed order.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh._core.spans import spans
from ddh.neighbours import native

# Rows and pairs are taken in pieces of about this many float64 numbers (32 MB).
PIECE = 1 << 22
# Lengths outside this range cannot be raised to the fourth power in float64.
SHORTEST, LONGEST = 1e-70, 1e70


@dataclass(frozen=True)
class CosineSpace:
    """Features (never copied: memory-mapped files stay on disk) with what their cosines need.

    `mean` is subtracted from every row unless it is None; `squares` holds ||x_i||^2 after that,
    where 0 marks a zero vector, whose cosine with everything is 0.
    """

    features: NDArray[Any]
    mean: NDArray[np.float64] | None
    squares: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.features)

    @property
    def dimensions(self) -> int:
        return int(self.features.shape[1])

    def rows(self, which: slice | NDArray[np.integer]) -> NDArray[np.float64]:
        """The chosen rows as float64, centred where the space is."""
        chosen = np.array(self.features[which], np.float64, order="C")
        if self.mean is not None:
            chosen -= self.mean
        return chosen

    def l2_normalize(self, which: slice | NDArray[np.integer]) -> NDArray[np.float64]:
        """The chosen rows at length 1 (zero vectors stay zero)."""
        lengths = np.sqrt(self.squares[which])
        return self.rows(which) / np.where(lengths > 0, lengths, 1.0)[:, None]

    def dots(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[np.float64]:
        """x_i . x_j in float64 for pairs of rows, each summed in the same order."""
        result = np.empty(len(i), np.float64)
        array, item = self.features, self.features.itemsize
        readable = array.dtype in (np.float16, np.float32, np.float64) and array.flags.c_contiguous
        if native.loops is None or not readable:
            for part in pieces(len(i), self.dimensions):
                # not einsum or BLAS: their order of summing may depend on a row's position
                result[part] = (self.rows(i[part]) * self.rows(j[part])).sum(axis=1)
            return result
        mean = np.zeros(self.dimensions) if self.mean is None else self.mean
        halves = _half_values() if item == 2 else b""
        i, j = i.astype(np.int32), j.astype(np.int32)

        def work(part: slice) -> None:
            pairs = (i[part], j[part])
            native.loops.dots(array, item, self.dimensions, halves, mean, *pairs, result[part])

        native.parallel(work, len(i), min_size=1024)
        return result

    def order_keys(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[np.float64]:
        """Numbers that order candidates j of the same image i by cosine, larger is nearer."""
        dots, squares = self.dots(i, j), self.squares[j]
        return dots * np.abs(dots) / np.where(squares > 0, squares, 1.0)

    def rank(self, i: NDArray[np.int32], j: NDArray[np.int32], k: int) -> NDArray[np.int32]:
        """The best k candidates j of each i (ascending, k or more each), ties by smaller index."""
        order = np.lexsort((j, -self.order_keys(i, j), i))
        i, j = i[order], j[order]
        first = np.flatnonzero(np.r_[True, i[1:] != i[:-1]])
        return np.asarray(j[first[:, None] + np.arange(k)])

    def similarities(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[np.float64]:
        """cos(x_i, x_j) for pairs of rows."""
        product = np.sqrt(self.squares[i]) * np.sqrt(self.squares[j])
        return self.dots(i, j) / np.where(product > 0, product, 1.0)


def pieces(rows: int, dimensions: int) -> list[slice]:
    """Slices that walk through rows, about PIECE numbers at a time."""
    return spans(rows, max(1, PIECE // dimensions))


@cache
def _half_values() -> NDArray[np.float32]:
    """All 65,536 values of float16, by their bits."""
    with np.errstate(invalid="ignore"):  # some of the bit patterns are signalling NaNs
        return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def cosine_space(features: ArrayLike, *, centre: bool = False) -> CosineSpace:
    """Check features block by block and measure their lengths, after centring if asked for."""
    array = np.asarray(features)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(
            f"features are an (images, dimensions) array, not one of shape {array.shape}; "
            "use X.reshape(len(X), -1) for images"
        )
    if array.dtype.kind not in "fiub":
        raise InputError(f"features must be real numbers, not {array.dtype}")
    if len(array) >= 2**31:
        raise InputError(f"{len(array)} images are more than 32-bit indices can name")
    raw, parts = CosineSpace(array, None, np.empty(0)), pieces(*array.shape)
    if array.dtype.kind == "f":
        finite = np.concatenate([np.isfinite(array[part]).all(axis=1) for part in parts])
        _refuse(~finite, "features hold NaN or infinity in {}; remove or repair them")
    mean = None
    if centre:
        mean = sum(raw.rows(part).sum(axis=0) for part in parts) / len(array)
    centred = CosineSpace(array, mean, np.empty(0))
    squares = np.concatenate([np.square(centred.rows(p)).sum(axis=1) for p in parts])
    extreme = (squares > LONGEST**2) | ((squares > 0) & (squares < SHORTEST**2))
    if array.dtype == np.float64 and mean is None:  # a length may have vanished
        zero = np.flatnonzero(squares == 0)
        for piece in pieces(zero.size, array.shape[1]):
            extreme[zero[piece]] = array[zero[piece]].any(axis=1)
    limits = f"{SHORTEST:g} to {LONGEST:g}"
    _refuse(extreme, f"the length of features is outside {limits} in {{}}; scale the features")
    return CosineSpace(array, mean, squares)


def _refuse(bad: NDArray[np.bool_], message: str) -> None:
    """Raise an error that names the first bad rows, if there are any."""
    rows = np.flatnonzero(bad)
    if rows.size:
        shown = ", ".join(map(str, rows[:8])) + (", ..." if rows.size > 8 else "")
        raise InputError(message.format(f"{rows.size} row(s): {shown}"))
