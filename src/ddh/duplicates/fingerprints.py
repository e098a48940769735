"""What is kept of a picture for the search: a perceptual code, and codes of local features.

The perceptual code has the signs of the 63 lowest frequencies of a discrete cosine transform. Turns
and mirrorings change signs and swap frequencies, so the codes of all eight follow from one.

A local feature is a SIFT descriptor (Lowe, 2004), projected onto the 64 components of a cosine
basis that change their sign when the picture is mirrored, and reduced to 64 bits. The code of the
mirrored feature is therefore the complement: one comparison finds upright and mirrored matches.
"""

import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ddh._core.errors import optional
from ddh.duplicates.results import Picture, Skipped
from ddh.images import Limits, UnreadableImage, decode
from ddh.images.decoding import DEFAULT_LIMITS, open_regular
from ddh.images.exif import EXIF, MAKE, MODEL, TAKEN, TURNED
from ddh.images.formats import ORIENTATION, open_picture
from ddh.index.collection import bytes_digest

SIDE = 160  # pixels of the longer side of the frame that points and borders are measured in
DETECTED = 112  # the same of the picture that features are found in
DECODED = 128  # pixels of the shorter side that a large JPEG is decoded to, at least
FEATURES = 80
CONTRAST, EDGE = 0.02, 10  # thresholds of SIFT
TURNS = 8  # 4 turns, and the mirror images of each
CODE_BYTES = 8
_FREQUENCIES = 8
_BORDER, _BORDER_SHARE = 10, 0.25  # grey levels within a border; its largest width
_COLOUR, _COLOURED = 16, 0.001  # levels that channels of colour differ by; its least share
# Phones store depth, a gain map or a second lens beside the one picture that is shown.
_STILLS = frozenset({"HEIF", "MPO"})

Bits = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """A picture, its perceptual codes, and its local features.

    `points` are x, y, size and angle in a picture whose longer side has `SIDE` pixels; `box` is the
    content without a border of one colour, as shares of the sides: left, top, right, bottom.
    """

    picture: Picture
    codes: Bits  # (1 or 2, 8): the whole, and the content without its border
    points: Floats
    features: Bits  # (n, 8)
    box: tuple[float, float, float, float]


@cache
def opencv() -> Any:
    """The `cv2` module, imported when pictures are first compared."""
    return optional("cv2", "duplicates need OpenCV: pip install opencv-python-headless")


def fingerprint(path: Path, limits: Limits = DEFAULT_LIMITS) -> Fingerprint | Skipped:
    """Read and measure a picture file."""
    try:
        with open_regular(path, str(path)) as file:
            state = os.fstat(file.fileno())
            if state.st_size > limits.file_bytes:
                raise UnreadableImage(str(path), f"the file has {state.st_size:,} bytes")
            content = file.read()
        image = decode(content, name=str(path), limits=limits, at_least=DECODED)
        header = _header(content)
    except UnreadableImage as error:
        return Skipped(path, error.reason)
    except OSError as error:
        return Skipped(path, f"cannot be opened: {error.strerror or error}")
    pixels = np.asarray(image)
    picture = Picture(
        path, header.width, header.height, len(content), state.st_mtime_ns, bytes_digest(content),
        header.format, _has_colour(pixels), header.has_camera, header.is_animated,
    )  # fmt: skip
    grey = small_grey(pixels, SIDE)
    box = content_box(grey)
    codes = [perceptual_code(grey)]
    if box != (0.0, 0.0, 1.0, 1.0):
        codes.append(perceptual_code(_inside(grey, box)))
    return Fingerprint(picture, np.stack(codes), *local_features(grey), box)


class _Header(NamedTuple):
    """Full size as seen upright: decoding may have reduced a JPEG. And what else a header says."""

    width: int
    height: int
    format: str
    has_camera: bool
    is_animated: bool


def _header(content: bytes) -> _Header:
    with open_picture(io.BytesIO(content), math.inf) as image:
        width, height = image.size
        has_camera = False
        with suppress(Exception):  # damaged metadata does not spoil good pixels
            exif = image.getexif()
            if exif.get(ORIENTATION) in TURNED:
                width, height = height, width
            has_camera = bool(exif.get(MAKE) or exif.get(MODEL) or exif.get_ifd(EXIF).get(TAKEN))
        kind = image.format or ""
        return _Header(width, height, kind, has_camera, kind not in _STILLS and _is_animated(image))


def _is_animated(image: Image.Image) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # something damaged comes after the first frame
        return True


def _has_colour(pixels: NDArray[np.uint8]) -> bool:
    channels = pixels[::4, ::4].transpose(2, 0, 1).copy()
    spread = channels.max(axis=0) - channels.min(axis=0)
    return bool(np.count_nonzero(spread > _COLOUR) > _COLOURED * spread.size)


def small_grey(pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Grey, with `side` pixels on its longer side."""
    cv2 = opencv()
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    scale = side / max(grey.shape)
    size = (max(8, round(grey.shape[1] * scale)), max(8, round(grey.shape[0] * scale)))
    small: NDArray[np.uint8] = cv2.resize(
        grey, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    )
    return small


def content_box(grey: NDArray[np.uint8]) -> tuple[float, float, float, float]:
    """What is inside of a border of one grey level, as shares of the sides."""
    top, bottom = _margins(grey)
    left, right = _margins(grey[top : grey.shape[0] - bottom].T)
    height, width = grey.shape
    return left / width, top / height, 1 - right / width, 1 - bottom / height


def _margins(grey: NDArray[np.uint8]) -> tuple[int, int]:
    """Rows at the top and at the bottom that belong to a border."""
    low, high = grey.min(axis=1).astype(int), grey.max(axis=1).astype(int)
    most = int(_BORDER_SHARE * len(grey))

    def count(low: Any, high: Any) -> int:
        level = (int(low[0]) + int(high[0])) / 2
        inside = (high > level + _BORDER) | (low < level - _BORDER)
        first = int(np.argmax(inside[: most + 1])) if inside[: most + 1].any() else most
        return first if first >= 2 else 0

    return count(low, high), count(low[::-1], high[::-1])


def _inside(grey: NDArray[np.uint8], box: tuple[float, float, float, float]) -> NDArray[np.uint8]:
    height, width = grey.shape
    left, top, right, bottom = box
    return grey[
        round(top * height) : round(bottom * height), round(left * width) : round(right * width)
    ]


# -- the perceptual code ---------------------------------------------------------------------------


def perceptual_code(grey: NDArray[np.uint8]) -> Bits:
    """Signs of the lowest frequencies, 8 bytes; the bit of the mean is always 0."""
    cv2 = opencv()
    small = cv2.resize(grey, (32, 32), interpolation=cv2.INTER_AREA).astype(np.float32)
    low = cv2.dct(small)[:_FREQUENCIES, :_FREQUENCIES]
    bits = low > 0
    bits[0, 0] = False
    return np.packbits(bits)


def turned_codes(codes: Bits, turn: int) -> Bits:
    """Perceptual codes of the pictures after one of the eight turns; see `turn_matrix`."""
    bits = np.unpackbits(codes, axis=1).reshape(-1, _FREQUENCIES, _FREQUENCIES)
    if turn & 4:
        bits = bits.transpose(0, 2, 1)
    odd = np.arange(_FREQUENCIES) % 2
    change = np.zeros((_FREQUENCIES, _FREQUENCIES), np.uint8)
    if turn & 1:
        change ^= odd[None, :].astype(np.uint8)
    if turn & 2:
        change ^= odd[:, None].astype(np.uint8)
    return np.packbits((bits ^ change).reshape(len(codes), -1), axis=1)


def turn_matrix(turn: int) -> NDArray[np.float64]:
    """The turn as a map of the unit square onto itself: transposed (4), then mirrored (1, 2)."""
    matrix = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    if turn & 4:
        matrix = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]])
    if turn & 1:
        matrix = np.array([[-1.0, 0, 1], [0, 1, 0], [0, 0, 1]]) @ matrix
    if turn & 2:
        matrix = np.array([[1.0, 0, 0], [0, -1, 1], [0, 0, 1]]) @ matrix
    return matrix


# -- local features --------------------------------------------------------------------------------


def local_features(grey: NDArray[np.uint8]) -> tuple[Floats, Bits]:
    """Points (x, y, size, angle in radians) and their 64-bit codes."""
    cv2 = opencv()
    sift = cv2.SIFT_create(FEATURES, 3, CONTRAST, EDGE, 1.6, enable_precise_upscale=True)
    scale = min(1.0, DETECTED / max(grey.shape))
    size = tuple(max(8, round(side * scale)) for side in grey.shape[::-1])
    small = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    found, descriptors = sift.detectAndCompute(small, None)
    if descriptors is None:
        return np.empty((0, 4), np.float32), np.empty((0, CODE_BYTES), np.uint8)
    points = np.array([(*p.pt, p.size, np.deg2rad(p.angle)) for p in found], np.float32)
    points[:, :2] += 0.5  # the first pixel reaches from 0 to 1
    points[:, :3] /= scale
    values = np.sqrt(descriptors) @ _projection()  # Hellinger's distance compares better
    return points, np.packbits(values > 0, axis=1)


@cache
def _projection() -> Floats:
    """A random rotation of the basis functions of 4 x 4 x 8 bins that mirroring negates."""
    frequency, place = np.arange(4)[:, None], np.arange(4)[None]
    cosine = np.cos(np.pi * (place + 0.5) * frequency / 4) * np.where(frequency, 1, np.sqrt(0.5))
    angle = 2 * np.pi * np.arange(8) / 8
    even = [np.cos(k * angle) * (1 if k % 4 else np.sqrt(0.5)) for k in range(5)]
    odd = [np.sin(k * angle) for k in range(1, 4)]
    basis = [
        np.einsum("a,b,c->abc", cosine[row], cosine[column], wave).ravel() / np.sqrt(16)
        for row in range(4)
        for column in range(4)
        for wave in (even if row % 2 else odd)
    ]
    rotation = np.linalg.qr(np.random.default_rng(5).standard_normal((64, 64)))[0]
    projection: Floats = (np.array(basis).T @ rotation).astype(np.float32)
    return projection


@contextmanager
def single_threaded() -> Iterator[None]:
    """A context in which OpenCV starts no threads of its own: pictures are read in parallel."""
    cv2 = opencv()
    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before)
