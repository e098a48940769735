"""Each kind of bad file, made for real, is refused with a reason; none gives half a picture."""

import io
import os
import pickle
import struct
import tempfile
import threading
import time
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ddh._core.errors import DDHWarning, InputError
from ddh.images import ImageFiles, ImageFolder, Limits, UnreadableImage, decode, decoding
from ddh.images.exif import photo_facts


def encoded(image, format, **options):
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def photo():
    rng = np.random.default_rng(0)
    rough = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    return rough.resize((96, 64), Image.Resampling.BICUBIC)


def png_header(width, height):
    """A PNG that claims a size, with a few compressed bytes behind it."""

    def chunk(kind, body):
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(64)))


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("GIF", {}),
        ("BMP", {}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("PPM", {}),
        ("TGA", {}),
    ],
)
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data", "ignore:Truncated File Read")
def test_truncated_is_an_error_never_half_a_picture(format, options):
    content = encoded(photo(), format, **options)
    whole = np.asarray(decode(content))
    refused = 0
    for cut in [*np.linspace(1, len(content) - 1, 25).astype(int), len(content) - 2]:
        try:
            found = np.asarray(decode(content[:cut]))
        except UnreadableImage:
            refused += 1
        else:  # only an end mark was lost
            assert np.array_equal(found, whole)
            assert cut > 0.95 * len(content)
    assert refused >= 22


def test_jpeg_with_a_tail_of_zeros_is_refused():
    content = encoded(photo(), "JPEG")
    half = len(content) // 2
    with pytest.raises(UnreadableImage, match="truncated"):
        decode(content[:half] + bytes(len(content) - half))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_random_damage_never_escapes_as_another_error(format):
    rng = np.random.default_rng(0)
    content = np.frombuffer(encoded(photo(), format), np.uint8)
    for _ in range(60):
        damaged = content.copy()
        spots = rng.integers(0, min(len(content), 400), 4)
        damaged[spots] = rng.integers(0, 256, 4)
        with suppress(UnreadableImage):
            assert decode(damaged.tobytes(), limits=Limits(megapixels=1)).mode == "RGB"


def test_corrupt_png_checksum():
    content = bytearray(encoded(photo(), "PNG"))
    content[60] ^= 0xFF
    with pytest.raises(UnreadableImage, match="damaged"):
        decode(bytes(content))


def test_empty_file(tmp_path):
    path = tmp_path / "nothing.jpg"
    path.touch()
    with pytest.raises(UnreadableImage, match="0 bytes") as caught:
        ImageFiles([path]).read(0)
    assert caught.value.name.endswith("nothing.jpg")
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize(
    "content", [b"not a picture at all\n" * 20, b"%PDF-1.4\n", b"\xff\xd8\xff"]
)
def test_not_a_picture(content):
    with pytest.raises(UnreadableImage):
        decode(content)


def test_postscript_is_refused_without_running_anything():
    content = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n"
    with pytest.raises(UnreadableImage, match="not a picture"):
        decode(content, name="x.jpg")


@pytest.mark.parametrize("side", [12_000, 30_000, 2_000_000])
def test_huge_picture_is_refused_from_its_header(side):
    content = png_header(side, side)
    tracemalloc.start()
    started = time.perf_counter()
    with pytest.raises(UnreadableImage, match=r"megapixels|too many pixels"):
        decode(content)
    assert time.perf_counter() - started < 1
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()


def test_own_limit_counts_pixels():
    content = encoded(Image.new("L", (1001, 1000)), "PNG")
    assert decode(content).size == (1001, 1000)
    with pytest.raises(UnreadableImage, match=r"1001 x 1000 is 1\.0 megapixels, the limit is 1"):
        decode(content, limits=Limits(megapixels=1))


def test_a_jpeg_decoded_at_a_smaller_scale_may_be_larger():
    content = encoded(Image.new("L", (2000, 1200)), "JPEG")
    assert decode(content, limits=Limits(megapixels=1), at_least=100).size == (500, 300)
    for at_least, limit in ((None, 1), (1000, 1), (100, 0.9)):
        with pytest.raises(UnreadableImage, match=r"1200 is 2\.4 megapixels"):
            decode(content, limits=Limits(megapixels=limit), at_least=at_least)
    content = encoded(Image.new("L", (2000, 1200)), "PNG")
    with pytest.raises(UnreadableImage, match="the limit is 1"):
        decode(content, limits=Limits(megapixels=1), at_least=100)


def test_own_limit_is_in_the_place_of_pillow_s(monkeypatch, tmp_path):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    Image.new("L", (100, 100)).save(tmp_path / "a.png")
    opened = threading.Barrier(4)

    def read():
        opened.wait()
        for _ in range(50):
            assert decode(tmp_path / "a.png").size == (100, 100)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(read) for _ in range(4)]:
            done.result()
    assert photo_facts(tmp_path / "a.png").width == 100
    assert Image.MAX_IMAGE_PIXELS == 1000


def test_the_limit_of_all_commands_is_set_by_the_environment(monkeypatch):
    monkeypatch.setenv("DDH_MEGAPIXELS", "0.5")
    assert decoding._default_limits().megapixels == 0.5
    for wrong in ("many", "-1"):
        monkeypatch.setenv("DDH_MEGAPIXELS", wrong)
        with pytest.raises(InputError, match="DDH_MEGAPIXELS"):
            decoding._default_limits()


def test_decompression_bomb_in_a_text_chunk():
    bomb = zlib.compress(bytes(80_000_000), 9)
    body = b"Comment\x00\x00" + bomb
    chunk = struct.pack(">I", len(body)) + b"zTXt" + body
    chunk += struct.pack(">I", zlib.crc32(b"zTXt" + body))
    content = encoded(photo(), "PNG")
    with pytest.raises(UnreadableImage):
        decode(content[:33] + chunk + content[33:])


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
def test_huge_file_with_a_tiny_header(tmp_path, format):
    path = tmp_path / f"tiny.{format.lower()}"
    path.write_bytes(encoded(photo(), format))
    os.truncate(path, 5 << 30)  # sparse: no disk is used
    started = time.perf_counter()
    with pytest.raises(UnreadableImage, match="5,368,709,120 bytes, the limit is 1,073,741,824"):
        ImageFiles([path]).read(0)
    assert time.perf_counter() - started < 1


def test_limits_are_positive():
    with pytest.raises(InputError, match="positive"):
        Limits(megapixels=0)


def test_content_decides_not_the_extension(tmp_path):
    path = tmp_path / "really_a_png.jpg"
    path.write_bytes(encoded(photo(), "PNG"))
    assert np.array_equal(np.asarray(ImageFiles([path]).read(0)), np.asarray(photo()))


def test_missing_folder_pipe_and_null_byte(tmp_path):
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    reasons = {"absent.jpg": "No such file", "folder.jpg": "folder", "pipe.jpg": "regular file"}
    for name, reason in reasons.items():
        with pytest.raises(UnreadableImage, match=reason):
            ImageFiles([tmp_path / name]).read(0)
    with pytest.raises(UnreadableImage, match="null"):
        ImageFiles(["a\0.jpg"]).read(0)


@contextmanager
def as_ordinary_user():
    """Permissions bind nobody who is root: step down for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """A folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_unreadable_permissions(open_folder):
    path = open_folder / "secret.png"
    path.write_bytes(encoded(photo(), "PNG"))
    path.chmod(0)
    with as_ordinary_user(), pytest.raises(UnreadableImage, match="Permission denied"):
        ImageFiles([path]).read(0)


def test_unreadable_folder_below_is_left_out_aloud(open_folder):
    (open_folder / "a.png").write_bytes(encoded(photo(), "PNG"))
    (open_folder / "locked").mkdir(mode=0)
    with as_ordinary_user(), pytest.warns(DDHWarning, match="locked"):
        assert ImageFolder(open_folder).names == ("a.png",)
    (open_folder / "locked").chmod(0o755)


def test_the_error_travels_between_processes():
    error = pickle.loads(pickle.dumps(UnreadableImage("a.jpg", "empty")))
    assert (error.name, error.reason, str(error)) == ("a.jpg", "empty", "a.jpg: empty")
