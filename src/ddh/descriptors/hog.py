"""HOG words: blocks of oriented gradients (Dalal & Triggs 2005) over the flower's bounding box."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ddh.descriptors.opencv import opencv
from ddh.descriptors.photograph import Photograph

WINDOW, CELL, BLOCK, BINS, CLIP = 192, 8, 3, 9, 0.2


def hog(photograph: Photograph) -> NDArray[np.float32]:
    """Overlapping blocks of 3 x 3 cells of 8 x 8 pixels, 9 unsigned orientations."""
    cv2 = opencv()
    top, bottom = np.flatnonzero(photograph.mask.any(axis=1))[[0, -1]]
    left, right = np.flatnonzero(photograph.mask.any(axis=0))[[0, -1]]
    box = photograph.rgb[top : bottom + 1, left : right + 1]
    return hog_blocks(cv2.resize(box, (WINDOW, WINDOW), interpolation=cv2.INTER_AREA))


def hog_blocks(rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Block descriptors (blocks, BLOCK * BLOCK * BINS), clipped and normalised (L2-Hys)."""
    cells = _cell_histograms(rgb)
    blocks = sliding_window_view(cells, (BLOCK, BLOCK), axis=(0, 1))
    flat = blocks.transpose(0, 1, 3, 4, 2).reshape(-1, BLOCK * BLOCK * BINS)
    return _unit(np.minimum(_unit(flat), CLIP))


def _cell_histograms(rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Gradient strength per cell and orientation (rows, columns, BINS).

    The gradient of a pixel is that of its strongest channel; it votes for the two nearest
    orientations in proportion.
    """
    image = np.pad(rgb.astype(np.float32), ((1, 1), (1, 1), (0, 0)), mode="edge")
    dx = image[1:-1, 2:] - image[1:-1, :-2]
    dy = image[2:, 1:-1] - image[:-2, 1:-1]
    strongest = (dx**2 + dy**2).argmax(axis=2)[..., None]
    dx = np.take_along_axis(dx, strongest, axis=2)[..., 0]
    dy = np.take_along_axis(dy, strongest, axis=2)[..., 0]
    strength = np.hypot(dx, dy)
    place = np.arctan2(dy, dx) / np.pi * BINS - 0.5
    low = np.floor(place)
    share = (place - low).astype(np.float32)
    height, width = strength.shape[0] // CELL, strength.shape[1] // CELL
    cell = (np.arange(strength.shape[0]) // CELL)[:, None] * width
    cell = cell + (np.arange(strength.shape[1]) // CELL)[None, :]
    votes = np.zeros(height * width * BINS)
    for bins, weight in ((low, 1 - share), (low + 1, share)):
        key = cell * BINS + (bins.astype(np.intp) % BINS)
        votes += np.bincount(key.ravel(), (strength * weight).ravel(), len(votes))
    return votes.reshape(height, width, BINS).astype(np.float32)


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    # Flat blocks stay near zero instead of blowing up the noise of the sensor.
    return rows / np.sqrt(np.square(rows).sum(axis=1, keepdims=True) + 1.0e-2)
