"""A photograph as the descriptors see it: one size, colour and grey, and its foreground."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ddh.descriptors.foreground import foreground
from ddh.descriptors.opencv import opencv

# Nilsback & Zisserman scale each photograph so that its smallest side has 500 pixels.
SHORTER_SIDE = 500
# No side grows longer than four times that: a strip of pixels stays a strip.
LONGEST = 4


class Photograph:
    """RGB pixels with a shorter side of 500 (less in strips), and what is computed from them."""

    def __init__(self, image: Image.Image | NDArray[np.uint8]) -> None:
        self.rgb = scaled(np.asarray(image), SHORTER_SIDE)

    @cached_property
    def grey(self) -> NDArray[np.uint8]:
        """Luminance."""
        return opencv().cvtColor(self.rgb, opencv().COLOR_RGB2GRAY)

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """True on the flower."""
        return foreground(self.rgb)

    def reduced(self, shorter_side: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """(RGB, foreground) at a smaller scale; at least the largest part of a flower remains."""
        rgb = scaled(self.rgb, shorter_side)
        size = (rgb.shape[1], rgb.shape[0])
        cv2 = opencv()
        mask = cv2.resize(self.mask.astype(np.uint8), size, interpolation=cv2.INTER_AREA)
        small = mask.astype(bool)
        return rgb, small if small.any() else np.ones_like(small)

    def inside(self, margin: int) -> NDArray[np.bool_]:
        """The foreground without a rim of `margin` pixels; the whole of it where none is left."""
        cv2 = opencv()
        rim = cv2.erode(self.mask.astype(np.uint8), disc(margin), borderValue=0).astype(bool)
        return rim if rim.any() else self.mask

    def boundary(self) -> NDArray[np.bool_]:
        """The outline of the foreground, one pixel wide, without the frame of the picture."""
        cv2 = opencv()
        mask = self.mask.astype(np.uint8)
        return (mask - cv2.erode(mask, disc(1), borderValue=1)).astype(bool)


def scaled(rgb: NDArray[Any], shorter_side: int) -> NDArray[np.uint8]:
    """The picture with a shorter side of `shorter_side` pixels, the longer at most 4 times that."""
    cv2 = opencv()
    height, width = rgb.shape[:2]
    factor = min(shorter_side / min(height, width), LONGEST * shorter_side / max(height, width))
    if factor == 1:
        return np.ascontiguousarray(rgb)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    return cv2.resize(np.ascontiguousarray(rgb), size, interpolation=how)


def disc(radius: int) -> NDArray[np.uint8]:
    """A round structuring element."""
    cv2 = opencv()
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
