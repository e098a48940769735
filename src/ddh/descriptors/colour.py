"""Colour words: the hue, saturation and value of foreground pixels.

Hue is an angle and means nothing where there is no saturation, so a pixel is the point
(s cos h, s sin h, v) of the colour cone, on which Euclidean distance behaves as eyes do.
"""

import numpy as np
from numpy.typing import NDArray

from ddh.descriptors.base import LocalDescriptor
from ddh.descriptors.opencv import opencv
from ddh.descriptors.photograph import Photograph

SHORTER_SIDE = 250


class Colour(LocalDescriptor):
    """Each pixel of the foreground by itself (Nilsback & Zisserman 2006: 200 words)."""

    name = "Colour"
    dimensions = 3
    words = 200

    def describe(self, photograph: Photograph) -> NDArray[np.float32]:
        rgb, mask = photograph.reduced(SHORTER_SIDE)
        return cone(rgb)[mask]


class HSV(LocalDescriptor):
    """Means of 3 x 3 pixels (Nilsback & Zisserman 2008), with a larger vocabulary."""

    name = "HSV"
    dimensions = 3
    words = 500

    def describe(self, photograph: Photograph) -> NDArray[np.float32]:
        cv2 = opencv()
        rgb, mask = photograph.reduced(SHORTER_SIDE)
        return cv2.blur(cone(rgb), (3, 3))[mask]


def cone(rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
    """RGB (h, w, 3) -> (s cos h, s sin h, v), float32."""
    cv2 = opencv()
    hsv = cv2.cvtColor(rgb.astype(np.float32) / 255, cv2.COLOR_RGB2HSV)
    hue = np.deg2rad(hsv[..., 0])
    saturation, value = hsv[..., 1], hsv[..., 2]
    return np.stack([saturation * np.cos(hue), saturation * np.sin(hue), value], axis=-1)
