"""Digests of decoded pixels: whether two pictures are the same, whatever files they came from."""

import hashlib
from collections.abc import Iterable

from PIL import Image

from ddh._core.progress import track
from ddh._core.threads import thread_imap
from ddh.images.sources import ImageArray, ImageSource

DIGEST_BYTES = 16


def pixel_digest(source: ImageSource, indices: Iterable[int] | None = None) -> list[str]:
    """One digest (32 hexadecimal digits) a picture of its size and upright RGB pixels.

    Two pictures have the same digest exactly when they decode to the same pixels: the check that
    a query is not also in the database. Raises `InputError` for a picture that cannot be read.
    Memory: one decoded picture a thread.
    """
    chosen = range(len(source)) if indices is None else list(indices)
    if isinstance(source, ImageArray):  # no need of threads, nor of a Pillow image each
        height, width = source.pixels.shape[1:3]
        return [_digest(width, height, source.pixels[i].tobytes()) for i in chosen]
    digests = thread_imap(lambda i: _image_digest(source.read(i)), chosen)
    return list(track(digests, "Pixel digests", total=len(chosen), unit="image"))


def _image_digest(image: Image.Image) -> str:
    return _digest(image.width, image.height, image.tobytes())


def _digest(width: int, height: int, rgb: bytes) -> str:
    content = f"{width}x{height}:".encode() + rgb  # the size too: 2 x 3 is not 3 x 2
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
