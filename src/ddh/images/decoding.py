"""One picture file to upright 8-bit RGB, whatever its format; anything else is an error.

What happens to each kind:

- content decides the format, never the file's name;
- EXIF orientation is applied (all eight values);
- transparent parts lie on white;
- 16-bit grey keeps its full range (65535 becomes 255), 32-bit and float grey are stretched when
  they leave the range of 16 bits, or of 0 to 1 and 0 to 255;
- CMYK is turned to RGB by the plain formula, with ink inverted as Adobe writes it only where the
  file says so; colour profiles are not applied;
- of an animation the first frame counts;
- of a camera RAW file the embedded preview, or else its sensor demosaiced at half size;
- a file that ends too early is an error, never half a picture (unless the application itself has
  set Pillow's `ImageFile.LOAD_TRUNCATED_IMAGES`); damage inside a JPEG that leaves its structure
  whole cannot be seen.

Memory: 8 (JPEG) to 16 bytes a pixel while one picture is decoded, so at most 1.6 GB at the default
limit of 100 megapixels; 4 bytes a pixel in the result, which is how Pillow keeps RGB.
"""

import io
import math
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, UnidentifiedImageError

from ddh._core.errors import InputError
from ddh.images.formats import ORIENTATION, MissingLibrary, is_upright, open_picture

# How many times larger than needed a JPEG must be for each scale. Reducing blurs a little, and 1/4
# more than 1/2, so more pixels are kept there: measured on photographs, 64-bit codes then agree
# with those of the full decoding in 99.5 % of bits or more (docs/images.md).
REDUCTIONS = ((4, 8.0), (2, 2.5))
REDUCED = 2.5  # times the limit: how many pixels a JPEG may have that is decoded at such a scale

UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableImage(InputError):
    """A file that cannot be used as a picture; `name` says which, `reason` says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.name, self.reason)


@dataclass(frozen=True)
class Limits:
    """What is refused before decoding: pixels by the picture's header, bytes by the file's size."""

    megapixels: float = 100.0
    file_bytes: int = 1 << 30
    slow_megapixels: float = math.inf  # of formats that Pillow decodes in Python: seconds each

    def __post_init__(self) -> None:
        if self.megapixels <= 0 or self.file_bytes <= 0 or self.slow_megapixels <= 0:
            raise InputError(f"limits are positive numbers, got {self}")


def _default_limits() -> Limits:
    try:
        return Limits(float(os.environ.get("DDH_MEGAPIXELS") or Limits.megapixels))
    except ValueError as error:
        raise InputError(f"DDH_MEGAPIXELS is a number of megapixels: {error}") from error


DEFAULT_LIMITS = _default_limits()


def decode(
    file: str | os.PathLike[str] | bytes | BinaryIO,
    *,
    name: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    at_least: int | None = None,
) -> Image.Image:
    """The picture in `file` (a path, its bytes, or an open binary file) as upright RGB.

    With `at_least`, the shorter side that will be needed, a JPEG much larger than that is decoded
    at 1/2 or 1/4 of its scale, which is faster and nearly the same; see `REDUCTIONS`.
    Raises `UnreadableImage`.
    """
    if isinstance(file, str | os.PathLike):
        name = name or printable(file)
        with open_regular(Path(file), name) as opened:
            return _decode_open(opened, name, limits, at_least)
    opened = io.BytesIO(file) if isinstance(file, bytes) else file
    return _decode_open(opened, name or "the picture", limits, at_least)


def printable(path: str | os.PathLike[str]) -> str:
    """A path as text that can be printed and stored: odd bytes as \\xNN, slashes forward."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return text if os.sep == "/" else text.replace(os.sep, "/")


def unprintable(text: str) -> str:
    """The path that `printable` made this text of: the text itself where that exists."""
    if "\\x" not in text or os.sep != "/" or os.path.lexists(text):
        return text
    odd = re.compile(rb"\\x([89a-f][0-9a-f])")
    return os.fsdecode(odd.sub(lambda digits: bytes.fromhex(digits[1].decode()), os.fsencode(text)))


def open_regular(path: Path, name: str) -> BinaryIO:
    """A file to read; a pipe or a device, which may never end, is refused."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableImage(name, "it is a folder, not a file")
        if not stat.S_ISREG(mode):
            raise UnreadableImage(name, "it is not a regular file (a pipe, socket or device)")
        return path.open("rb")
    except (OSError, ValueError) as error:
        if isinstance(error, UnreadableImage):
            raise
        raise UnreadableImage(name, f"cannot be opened: {_cause(error)}") from error


def _decode_open(file: BinaryIO, name: str, limits: Limits, at_least: int | None) -> Image.Image:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size == 0:
        raise UnreadableImage(name, "the file is empty (0 bytes)")
    if size > limits.file_bytes:
        raise UnreadableImage(
            name, f"the file has {size:,} bytes, the limit is {limits.file_bytes:,}"
        )
    try:
        with open_picture(file, limits.megapixels) as image:
            is_reduced = at_least is not None and image.format in ("JPEG", "MPO")
            _check_pixels(image, name, limits, REDUCED if is_reduced else 1.0)
            if at_least is not None:
                _reduce(image, at_least)
                _check_pixels(image, name, limits)
            image.load()
            return to_rgb(_upright(image))
    except UnreadableImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadableImage(name, f"too many pixels, refused from its header: {error}") from error
    except MissingLibrary as error:
        raise UnreadableImage(name, str(error)) from error
    except UnidentifiedImageError as error:
        raise UnreadableImage(name, "not a picture in any format that can be read here") from error
    except Exception as error:  # a damaged file makes Pillow's parsers raise almost anything
        raise UnreadableImage(name, f"damaged or truncated: {_cause(error)}") from error


def _cause(error: BaseException) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text or type(error).__name__


def _check_pixels(image: Image.Image, name: str, limits: Limits, times: float = 1.0) -> None:
    width, height = image.size
    limit, why = limits.megapixels * times, ""
    if limits.slow_megapixels < limit and any(
        tile[0] in Image.DECODERS for tile in getattr(image, "tile", ())
    ):
        limit, why = limits.slow_megapixels, f" for {image.format}, which is slow to decode"
    if width * height > limit * 1e6:
        raise UnreadableImage(
            name,
            f"{width} x {height} is {width * height / 1e6:,.1f} megapixels, "
            f"the limit is {limit:g}{why}{' (DDH_MEGAPIXELS)' if limits is DEFAULT_LIMITS else ''}",
        )


def reduction(size: tuple[int, int], at_least: int) -> int:
    """How many times smaller `decode` makes a JPEG of this size."""
    times = min(size) / at_least
    return next((scale for scale, larger in REDUCTIONS if times >= larger), 1)


def _reduce(image: Image.Image, at_least: int) -> None:
    """Have a JPEG decoded at a smaller scale; other formats know no such thing."""
    scale = reduction(image.size, at_least)
    if scale > 1:
        image.draft(None, (image.width // scale, image.height // scale))


def _upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF orientation; one that cannot be read counts as upright."""
    if is_upright(image):
        return image
    try:
        orientation = image.getexif().get(ORIENTATION, 1)
    except Exception:  # damaged metadata does not spoil good pixels
        return image
    operation = UPRIGHT.get(orientation) if isinstance(orientation, int) else None
    if operation is None:
        return image
    turned = image.transpose(operation)
    turned.format = image.format
    return turned


def to_rgb(image: Image.Image) -> Image.Image:
    """Any Pillow mode as 8-bit RGB; transparent parts lie on white."""
    mode = image.mode
    if mode in ("I", "F") or mode.startswith("I;16"):
        deep = np.asarray(image)
        grey = _grey_to_8_bit(deep, mode)
        if isinstance(clear := image.info.get("transparency"), int):
            grey[deep == clear] = 255
        return Image.fromarray(grey).convert("RGB")
    if mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info:
        image = ImageChops.invert(image)  # Pillow takes every CMYK JPEG for an inverted one
    if image.has_transparency_data:
        layer = image if mode == "RGBA" else image.convert("RGBA")
        white = Image.new("RGB", layer.size, "white")
        white.paste(layer, mask=layer)
        return white
    if mode == "RGB":
        return image
    return image.convert("RGB")


def _grey_to_8_bit(values: NDArray[Any], mode: str) -> NDArray[np.uint8]:
    """Scale deep grey to 0..255 by the range of its kind, or its own range where that is left."""
    values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError("pixels are NaN or infinite")
    low, high = float(values.min()), float(values.max())
    if mode == "F" and low >= 0 and high <= 1:
        scale = 255.0
    elif mode == "F" and low >= 0 and high <= 255:
        scale = 1.0
    elif low >= 0 and high <= 65535:
        scale = 255 / 65535
    else:
        values -= np.float32(low)
        scale = 255 / (high - low) if high - low > 1e-30 else 0.0  # flat: black
    values *= np.float32(scale)
    rounded: NDArray[np.uint8] = np.rint(values, out=values).astype(np.uint8)
    return rounded
