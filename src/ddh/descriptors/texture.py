"""Texture words: textons of the MR8 filter bank (Varma & Zisserman 2005).

38 filters: edges and bars at three scales and six orientations, a Gaussian and a Laplacian of
Gaussian. Of each edge and bar the largest response over the orientations is kept: 8 values per
pixel that are invariant to rotation. An edge turned by 180 degrees only changes sign, so the
magnitude of its response counts.
"""

from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ddh.descriptors.opencv import opencv
from ddh.descriptors.photograph import Photograph

SHORTER_SIDE = 200
SUPPORT = 49
SCALES = (1.0, 2.0, 4.0)
ORIENTATIONS = 6
ISOTROPIC_SCALE = 10.0
WEBER = 0.03


def texture(photograph: Photograph) -> NDArray[np.float32]:
    """Contrast-normalised MR8 responses of foreground pixels."""
    cv2 = opencv()
    rgb, mask = photograph.reduced(SHORTER_SIDE)
    return mr8(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))[mask]


def mr8(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Grey picture (h, w) -> the 8 maximum responses of every pixel (h, w, 8)."""
    from scipy.signal import fftconvolve

    image = grey.astype(np.float32)
    image = (image - image.mean()) / max(float(image.std()), 1e-6)
    padded = np.pad(image, SUPPORT // 2, mode="symmetric")
    # Filters this large are far cheaper as products of Fourier transforms.
    responses = fftconvolve(padded[None], filter_bank(), mode="valid", axes=(1, 2))
    count = ORIENTATIONS * len(SCALES)
    by_angle = (len(SCALES), ORIENTATIONS, *grey.shape)
    edges = np.abs(responses[:count].reshape(by_angle)).max(axis=1)
    bars = responses[count : 2 * count].reshape(by_angle).max(axis=1)
    stacked = np.concatenate([edges, bars, responses[2 * count :]]).transpose(1, 2, 0)
    # Weber's law: F <- F log(1 + |F| / 0.03) / |F|
    length = np.linalg.norm(stacked, axis=-1, keepdims=True)
    return stacked * (np.log1p(length / WEBER) / np.maximum(length, 1e-12)).astype(np.float32)


@cache
def filter_bank() -> NDArray[np.float32]:
    """38 filters: 18 edges (scale by scale, six orientations each), 18 bars, Gaussian, LoG."""
    half = SUPPORT // 2
    x, y = np.meshgrid(np.arange(-half, half + 1), np.arange(half, -half - 1, -1))
    angles = [np.pi * turn / ORIENTATIONS for turn in range(ORIENTATIONS)]
    kinds = product((1, 2), SCALES, angles)
    oriented = [_oriented(x, y, scale, angle, order) for order, scale, angle in kinds]
    square, variance = x**2 + y**2, ISOTROPIC_SCALE**2
    gaussian = np.exp(-square / (2 * variance))
    laplacian = gaussian * (square - 2 * variance) / variance**2
    return np.stack([*oriented, _normalised(gaussian), _normalised(laplacian)])


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
