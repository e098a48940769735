"""SIFT words (Lowe 2004): on a grid over the flower, inside it, and along its outline."""

import numpy as np
from numpy.typing import NDArray

from ddh.descriptors.extraction import MAX_VECTORS
from ddh.descriptors.opencv import opencv
from ddh.descriptors.photograph import Photograph

# OpenCV's keypoint of size s describes a square of 4 x 4 cells, each 3 s / 2 wide.
SIZE_FOR_RADIUS = 1 / 3


def shape(photograph: Photograph) -> NDArray[np.float32]:
    """Grid over the foreground, patches of radius 25 aligned to their dominant gradient (2006)."""
    points = grid(photograph.mask, spacing=10)
    return sift(photograph.grey, points, radius=25, upright=False)


def sift_internal(photograph: Photograph) -> NDArray[np.float32]:
    """Grid inside the foreground, patches that do not reach over its edge (2008)."""
    points = grid(photograph.inside(margin=12), spacing=8)
    grey = photograph.grey
    return np.concatenate([sift(grey, points, radius=r, upright=True) for r in (12, 25)])


def sift_boundary(photograph: Photograph) -> NDArray[np.float32]:
    """Points of the outline; patches straddle it, half flower and half background (2008)."""
    outline = np.argwhere(photograph.boundary())
    if not len(outline):  # the flower fills the picture: it has no outline
        outline = np.argwhere(photograph.mask)
    rng = np.random.default_rng(0)
    count = min(len(outline), MAX_VECTORS)
    chosen = outline[np.sort(rng.choice(len(outline), count, replace=False))]
    return sift(photograph.grey, chosen, radius=25, upright=True)


def grid(mask: NDArray[np.bool_], spacing: int) -> NDArray[np.int64]:
    """(row, column) of grid points on the mask, or its centre of mass where none falls on it."""
    start = spacing // 2
    inside = np.zeros_like(mask)
    inside[start::spacing, start::spacing] = mask[start::spacing, start::spacing]
    points = np.argwhere(inside)
    if len(points):
        return points
    return np.argwhere(mask).mean(axis=0).round().astype(np.int64)[None]


def sift(
    grey: NDArray[np.uint8], points: NDArray[np.int64], *, radius: float, upright: bool
) -> NDArray[np.float32]:
    """Square roots of L1-normalised SIFT vectors (RootSIFT) at points (row, column).

    With upright=False each patch is turned to its main gradient direction first.
    """
    cv2 = opencv()
    size = radius * SIZE_FOR_RADIUS
    angles = np.zeros(grey.shape) if upright else main_direction(grey, radius)
    keypoints = [
        cv2.KeyPoint(float(x), float(y), size, float(angles[y, x])) for y, x in points.tolist()
    ]
    vectors = cv2.SIFT_create().compute(grey, keypoints)[1]
    return np.sqrt(vectors / np.maximum(vectors.sum(axis=1, keepdims=True), 1e-6))


def main_direction(grey: NDArray[np.uint8], radius: float) -> NDArray[np.float32]:
    """Direction in degrees of the mean gradient around each pixel; it turns with the picture."""
    cv2 = opencv()
    smooth = cv2.GaussianBlur(grey.astype(np.float32), (0, 0), 1.0)
    blurred = [
        cv2.GaussianBlur(cv2.Sobel(smooth, cv2.CV_32F, dx, 1 - dx), (0, 0), radius / 2)
        for dx in (1, 0)
    ]
    return np.rad2deg(np.arctan2(blurred[1], blurred[0])) % 360
