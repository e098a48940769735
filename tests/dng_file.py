"""A camera RAW file (DNG), written for the tests."""

import io
import struct

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

# Tag: (code of struct, type of TIFF, values). Bytes of text have type 2, pairs of numbers 5 and 10.
XYZ_TO_SRGB = (32406, -15372, -4986, -9689, 18758, 415, 557, -2040, 10570)

Tags = dict[int, tuple[str, int, list[int]]]


def dng(sensor: ArrayLike, preview: bytes = b"", orientation: int = 1) -> bytes:
    """A DNG of sensor values (height, width), of red, green, green and blue; a JPEG as preview."""
    height, width = np.shape(sensor)
    to_srgb = [value for number in XYZ_TO_SRGB for value in (number, 10_000)]
    tags: Tags = {
        254: ("I", 4, [0]), 256: ("I", 4, [width]), 257: ("I", 4, [height]), 258: ("H", 3, [16]),
        259: ("H", 3, [1]), 262: ("H", 3, [32803]), 271: ("B", 2, [*b"ddh\0"]),
        272: ("B", 2, [*b"test\0"]), 273: ("I", 4, [0]), 274: ("H", 3, [orientation]),
        277: ("H", 3, [1]), 278: ("I", 4, [height]), 279: ("I", 4, [2 * width * height]),
        33421: ("H", 3, [2, 2]), 33422: ("B", 1, [0, 1, 1, 2]), 50706: ("B", 1, [1, 4, 0, 0]),
        50708: ("B", 2, [*b"ddh test\0"]), 50717: ("H", 3, [65535]), 50721: ("i", 10, to_srgb),
        50728: ("I", 5, [1, 1] * 3), 50778: ("H", 3, [21]),
    }  # fmt: skip
    if preview:
        tags[330] = ("I", 4, [0])
    content = bytearray(b"II*\0\x08\0\0\0")
    values = _write_directory(content, tags)
    struct.pack_into("<I", content, values[273], len(content))
    content += np.asarray(sensor, "<u2").tobytes()
    if preview:
        across, down = Image.open(io.BytesIO(preview)).size
        struct.pack_into("<I", content, values[330], len(content))
        small: Tags = {
            254: ("I", 4, [1]), 256: ("I", 4, [across]), 257: ("I", 4, [down]),
            258: ("H", 3, [8, 8, 8]), 259: ("H", 3, [7]), 262: ("H", 3, [6]), 273: ("I", 4, [0]),
            277: ("H", 3, [3]), 278: ("I", 4, [down]), 279: ("I", 4, [len(preview)]),
        }  # fmt: skip
        values = _write_directory(content, small)
        struct.pack_into("<I", content, values[273], len(content))
        content += preview
    return bytes(content)


def _write_directory(content: bytearray, tags: Tags) -> dict[int, int]:
    """Append a directory of TIFF; where the value of each tag lies."""
    start, places = len(content), {}
    content += struct.pack("<H", len(tags)) + bytes(12 * len(tags) + 4)
    for number, (tag, (code, kind, values)) in enumerate(sorted(tags.items())):
        packed, at = struct.pack(f"<{len(values)}{code}", *values), start + 2 + 12 * number
        struct.pack_into(
            "<HHI", content, at, tag, kind, len(values) // (2 if kind in (5, 10) else 1)
        )
        places[tag] = at + 8
        if len(packed) > 4:
            places[tag] = len(content)
            struct.pack_into("<I", content, at + 8, len(content))
            content += packed
        else:
            content[at + 8 : at + 8 + len(packed)] = packed
    return places
