"""Mutated pictures: an image or our error, no crash, no hang, no growth of memory.

DDH_FUZZ_IMAGES sets their number.
"""

import io
import os
import random
import re
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ddh.images import Limits, UnreadableImage, decode, formats
from ddh.images.exif import photo_facts
from dng_file import dng

IMAGES = int(os.environ.get("DDH_FUZZ_IMAGES", "1500"))
CPU_SECONDS = 10.0  # of one picture of at most a megapixel
GROWTH_MB = 50
LIMITS = Limits(megapixels=1, slow_megapixels=0.05)
EXTRA = {"HEIF": "pillow_heif", "JXL": "pillow_jxl"}
MODES = {"GIF": "P", "MSP": "1", "XBM": "1", "SPIDER": "F", "BLP": "P"}
VALUES = (b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0")


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    out = io.BytesIO()
    image.convert(MODES.get(kind, "RGB")).save(out, kind, **options)
    return out.getvalue()


def seeds() -> list[bytes]:
    """A small picture in every format that can be written here."""
    rng = np.random.default_rng(0)
    rough = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    image = rough.resize((48, 36), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "ddh"
    exif.get_ifd(0x8769)[0x9003] = "2020:01:02 03:04:05"
    found = [
        encoded(image, "JPEG", exif=exif), encoded(image, "JPEG", progressive=True),
        encoded(image, "PNG", exif=exif), encoded(image, "TIFF", compression="tiff_lzw"),
        encoded(image, "TIFF", compression="jpeg"), encoded(image, "WEBP", lossless=True),
        b"P3 4 4 255 " + b"9 " * 48,
    ]  # fmt: skip
    readable = Image.OPEN.keys() & Image.SAVE.keys() - formats.NOT_PICTURES - EXTRA.keys()
    found += [encoded(image, kind) for kind in sorted(readable)]
    for kind, library in EXTRA.items():
        if formats.library(library):
            found.append(encoded(image, kind))
    if formats.library("rawpy"):
        found.append(dng(rng.integers(0, 65536, (48, 64)).astype(np.uint16)))
    return found


def mutated(rng: random.Random, pictures: list[bytes]) -> bytes:
    content = bytearray(rng.choice(pictures))
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        # Most structure is at the beginning.
        at = rng.randrange(min(len(content), rng.choice((40, 400, 1 << 20))) or 1)
        change = rng.random()
        if change < 0.5:
            content[at : at + 1] = rng.randbytes(1)
        elif change < 0.8:
            value = rng.choice(VALUES)
            content[at : at + len(value)] = value
        elif change < 0.9:
            content[at:at] = content[at : at + rng.choice((1, 8, 200))]
        else:
            del content[at : at + rng.choice((1, 8, 1 << 20))]
    return bytes(content)


def resident_mb() -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


@pytest.mark.timeout(300 + IMAGES // 20)
@pytest.mark.skipif(sys.platform != "linux", reason="measures memory in /proc")
def test_mutated_pictures_do_no_harm(tmp_path):
    counts, slowest, before = {"decoded": 0, "refused": 0}, 0.0, 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pictures, file = seeds(), tmp_path / "picture"
        for content in pictures:
            assert decode(content).mode == "RGB"
        for number in range(IMAGES):
            if number == IMAGES // 3:
                before = resident_mb()
            content = mutated(random.Random(number), pictures)
            started = time.process_time()
            try:
                assert decode(content, limits=LIMITS).mode == "RGB"
                counts["decoded"] += 1
            except UnreadableImage:
                counts["refused"] += 1
            if number % 10 == 0:
                file.write_bytes(content)
                photo_facts(file)
            slowest = max(slowest, time.process_time() - started)
            assert slowest < CPU_SECONDS, f"picture {number} takes {slowest:.0f} s"
    growth = resident_mb() - before
    print(f"{counts}, slowest {slowest:.2f} s, growth {growth:.1f} MB")
    assert min(counts.values()) > IMAGES // 20
    assert growth < GROWTH_MB
