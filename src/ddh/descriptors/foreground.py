"""The flower in a photograph: GrabCut (Rother et al. 2004) from a frame that is background.

The descriptors' papers cut flowers out with graph cuts on colour models of flowers that they
learned by hand. GrabCut learns both colour models from the photograph itself: the frame is
background, the rest is unknown.
"""

import numpy as np
from numpy.typing import NDArray

from ddh.descriptors.opencv import opencv

# The cut is made at this scale (a tenth of a second a photograph) and enlarged.
SHORTER_SIDE = 150
FRAME = 0.05
ROUNDS = 4
# A foreground outside these shares of the picture is a failed cut.
LEAST, MOST = 0.02, 0.95


def foreground(rgb: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mask of the foreground; a central ellipse where the cut finds next to nothing or all."""
    cv2 = opencv()
    height, width = rgb.shape[:2]
    factor = min(1.0, SHORTER_SIDE / min(height, width))
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    mask = _cut(small)
    if not LEAST <= mask.mean() <= MOST:
        mask = _ellipse(small.shape[0], small.shape[1])
    grown = cv2.resize(mask.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
    return grown >= 0.5


def _cut(rgb: NDArray[np.uint8]) -> NDArray[np.bool_]:
    cv2 = opencv()
    height, width = rgb.shape[:2]
    left, top = max(1, round(width * FRAME)), max(1, round(height * FRAME))
    inner = (left, top, width - 2 * left, height - 2 * top)
    if min(inner[2:]) < 1 or np.ptp(rgb) == 0:  # nothing to tell apart
        return np.zeros((height, width), bool)
    mask = np.zeros((height, width), np.uint8)
    models = np.zeros((2, 1, 65))
    cv2.setRNGSeed(0)  # the colour models start from k-means
    cv2.grabCut(rgb, mask, inner, models[0], models[1], ROUNDS, cv2.GC_INIT_WITH_RECT)
    return (mask == cv2.GC_FGD) | (mask == cv2.GC_PR_FGD)


def _ellipse(height: int, width: int) -> NDArray[np.bool_]:
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    return x**2 + y**2 <= 0.64
