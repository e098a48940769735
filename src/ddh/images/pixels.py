"""Arrays of pictures in memory as uint8 RGB, with a clear word on every shape that is not one."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError

ROWS = 1024  # pictures converted at a time, so that temporary floats stay small
EXPECTED = "images are arrays of shape (n, h, w), (n, h, w, 1), (n, h, w, 3) or (n, h, w, 4)"


def as_pixels(images: Any) -> NDArray[np.uint8]:
    """Check an array of pictures and give it as uint8 (n, h, w, 3); alpha is laid on white.

    uint8 grey or RGB is not copied (grey becomes a read-only view that repeats its channel); other
    types cost one uint8 copy.
    """
    array = np.asarray(images)
    _check_shape(array)
    if array.ndim == 3:
        array = array[..., None]
    array = _as_uint8(array)
    if array.shape[3] == 4:
        return _on_white(array)
    return np.broadcast_to(array, (*array.shape[:3], 3)) if array.shape[3] == 1 else array


def _check_shape(array: NDArray[Any]) -> None:
    shape = array.shape
    if array.ndim == 2:
        raise InputError(f"an array of shape {shape} holds features, not images; {EXPECTED}")
    if array.ndim not in (3, 4):
        raise InputError(f"{EXPECTED}, not {shape}")
    if 0 in shape:
        raise InputError(f"the array of images is empty: shape {shape}")
    if array.ndim == 3 and shape[2] in (3, 4):
        raise InputError(f"an array of shape {shape} looks like one picture: pass images[None]")
    if array.ndim == 4 and shape[3] not in (1, 3, 4):
        hint = ""
        if shape[1] in (1, 3, 4):
            hint = "; channels come last here: pass images.transpose(0, 2, 3, 1)"
        raise InputError(f"{EXPECTED}, not {shape}{hint}")


def _as_uint8(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype != bool and array.dtype.kind != "f":
        raise InputError(
            f"pixels are uint8, bool, or floats in [0, 1], not {array.dtype}; "
            "scale them to 0..255 and pass images.astype(np.uint8)"
        )
    pixels = np.empty(array.shape, np.uint8)
    for start in range(0, len(array), ROWS):
        part = array[start : start + ROWS]
        if array.dtype != bool and not (part.min() >= 0 and part.max() <= 1):  # NaN fails too
            raise InputError(
                f"float pixels must lie in [0, 1], these span {part.min():g} to {part.max():g}; "
                "divide by their largest value, or pass uint8"
            )
        pixels[start : start + ROWS] = np.rint(part * np.float32(255))
    return pixels


def _on_white(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    pixels = np.empty((*array.shape[:3], 3), np.uint8)
    for start in range(0, len(array), ROWS):
        part = array[start : start + ROWS]
        alpha = part[..., 3:].astype(np.uint16)
        mixed = part[..., :3] * alpha + 255 * (255 - alpha)  # at most 255 * 255: fits 16 bits
        pixels[start : start + ROWS] = (mixed + 127) // 255
    return pixels
