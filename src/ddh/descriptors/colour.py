"""Colour words: the hue, saturation and value of foreground pixels.

Hue is an angle and means nothing where there is no saturation, so a pixel is the point
(s cos h, s sin h, v) of the colour cone, where Euclidean distance follows perception.
"""

import numpy as np
from numpy.typing import NDArray

from ddh.descriptors.opencv import opencv
from ddh.descriptors.photograph import Photograph

SHORTER_SIDE = 250


def colour(photograph: Photograph) -> NDArray[np.float32]:
    """Each foreground pixel by itself (Nilsback & Zisserman 2006)."""
    rgb, mask = photograph.reduced(SHORTER_SIDE)
    return cone(rgb)[mask]


def hsv(photograph: Photograph) -> NDArray[np.float32]:
    """Means of 3 x 3 pixels (Nilsback & Zisserman 2008)."""
    rgb, mask = photograph.reduced(SHORTER_SIDE)
    return opencv().blur(cone(rgb), (3, 3))[mask]


def cone(rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
    """RGB (h, w, 3) -> (s cos h, s sin h, v), float32."""
    cv2 = opencv()
    hsv = cv2.cvtColor(rgb.astype(np.float32) / 255, cv2.COLOR_RGB2HSV)
    hue = np.deg2rad(hsv[..., 0])
    saturation, value = hsv[..., 1], hsv[..., 2]
    return np.stack([saturation * np.cos(hue), saturation * np.sin(hue), value], axis=-1)
