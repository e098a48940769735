"""Texture words: textons of the MR8 filter bank (Varma & Zisserman 2005).

38 filters: edges and bars at three scales and six orientations, a Gaussian and a Laplacian of
Gaussian. Of each edge and bar the largest response over the orientations is kept: 8 values a
pixel that do not change when the flower turns. An edge turned by 180 degrees only changes sign,
so of edges the size of the response counts.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ddh.descriptors.base import LocalDescriptor
from ddh.descriptors.opencv import opencv
from ddh.descriptors.photograph import Photograph

SHORTER_SIDE = 200
SUPPORT = 49
SCALES = (1.0, 2.0, 4.0)
ORIENTATIONS = 6
ISOTROPIC_SCALE = 10.0
WEBER = 0.03


class Texture(LocalDescriptor):
    """Contrast-normalised MR8 responses of foreground pixels."""

    name = "Texture"
    dimensions = 8
    words = 700

    def describe(self, photograph: Photograph) -> NDArray[np.float32]:
        cv2 = opencv()
        rgb, mask = photograph.reduced(SHORTER_SIDE)
        return mr8(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))[mask]


def mr8(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Grey picture (h, w) -> the 8 maximum responses of every pixel (h, w, 8)."""
    cv2 = opencv()
    image = grey.astype(np.float32)
    image = (image - image.mean()) / max(float(image.std()), 1e-6)

    def respond(kernel: NDArray[np.float32]) -> NDArray[np.float32]:
        return cv2.filter2D(image, cv2.CV_32F, kernel, borderType=cv2.BORDER_REFLECT)

    edges, bars, isotropic = filter_bank()
    responses = [np.max([np.abs(respond(kernel)) for kernel in group], axis=0) for group in edges]
    responses += [np.max([respond(kernel) for kernel in group], axis=0) for group in bars]
    responses += [respond(kernel) for kernel in isotropic]
    stacked = np.stack(responses, axis=-1)
    # Weber's law: F <- F log(1 + |F| / 0.03) / |F|
    length = np.linalg.norm(stacked, axis=-1, keepdims=True)
    return stacked * (np.log1p(length / WEBER) / np.maximum(length, 1e-12)).astype(np.float32)


Filters = list[NDArray[np.float32]]


@cache
def filter_bank() -> tuple[list[Filters], list[Filters], Filters]:
    """(edges: six orientations at each of three scales, bars likewise, Gaussian and LoG)."""
    half = SUPPORT // 2
    x, y = np.meshgrid(np.arange(-half, half + 1), np.arange(half, -half - 1, -1))
    angles = [np.pi * turn / ORIENTATIONS for turn in range(ORIENTATIONS)]
    edges, bars = (
        [[_oriented(x, y, scale, angle, order) for angle in angles] for scale in SCALES]
        for order in (1, 2)
    )
    square, variance = x**2 + y**2, ISOTROPIC_SCALE**2
    gaussian = np.exp(-square / (2 * variance))
    laplacian = gaussian * (square - 2 * variance) / variance**2
    return edges, bars, [_normalised(gaussian), _normalised(laplacian)]


def _oriented(
    x: NDArray[np.int64], y: NDArray[np.int64], scale: float, angle: float, order: int
) -> NDArray[np.float32]:
    """A Gaussian three times as long as wide, derived `order` times across its short axis."""
    along = x * np.cos(angle) - y * np.sin(angle)
    across = x * np.sin(angle) + y * np.cos(angle)
    variance = scale**2
    profile = np.exp(-(across**2) / (2 * variance))
    derived = -across / variance if order == 1 else (across**2 - variance) / variance**2
    return _normalised(np.exp(-(along**2) / (2 * 9 * variance)) * derived * profile)


def _normalised(kernel: NDArray[np.float64]) -> NDArray[np.float32]:
    """Mean 0 and L1 norm 1."""
    centred = kernel - kernel.mean()
    return (centred / np.abs(centred).sum()).astype(np.float32)
