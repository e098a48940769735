"""Decoding in a process of its own: the same pixels, and nothing that a picture can stop."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from ddh.images import Limits, Preprocessing, UnreadableImage, decode
from ddh.images.isolated import IsolatedDecoder

CROP = Preprocessing(size=32, resize=40)


def encoded(image: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def qoi(side: int) -> bytes:
    """A black picture in a format that Pillow decodes in Python."""
    return b"qoif" + struct.pack(">IIBB", side, side, 3, 0) + bytes(side * side + 8)


def icon(picture: bytes) -> bytes:
    """An ICO file that says its picture has 16 x 16 pixels."""
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(picture), 22)
    return struct.pack("<HHH", 0, 1, 1) + entry + picture


@pytest.fixture
def opened():
    decoders = []

    def open_decoder(seconds: float = 120.0, **limits) -> IsolatedDecoder:
        decoders.append(IsolatedDecoder(CROP, Limits(**limits), seconds))
        return decoders[-1]

    yield open_decoder
    for decoder in decoders:
        decoder.close()


def test_pixels_are_those_of_the_process_itself(opened):
    decoder = opened()
    noise = Image.effect_noise((400, 300), 90).convert("RGB")
    for content in (encoded(noise, "PNG"), encoded(noise, "JPEG"), encoded(noise, "WEBP"), qoi(50)):
        expected = CROP.apply(decode(content, at_least=CROP.shorter_side))
        np.testing.assert_array_equal(decoder.decode(content, "x"), expected)


def test_a_reason_is_told_and_the_next_picture_decoded(opened):
    decoder, good = opened(), encoded(Image.new("RGB", (64, 64)), "PNG")
    for bad in (b"", b"text", good[:40]):
        with pytest.raises(UnreadableImage) as caught:
            decoder.decode(bad, "the picture")
        with pytest.raises(UnreadableImage) as plain:
            decode(bad, name="the picture")
        assert str(caught.value) == str(plain.value)
        assert decoder.decode(good, "x").shape == (32, 32, 3)


def test_a_deadline_ends_it(opened):
    decoder = opened(seconds=0.5)
    with pytest.raises(UnreadableImage, match=r"it took over 0.5 s"):
        decoder.decode(qoi(4000), "x")  # a minute and more
    slow = opened(seconds=120.0)
    slow.decode(qoi(8), "x")
    slow._process.kill()  # as if a picture had brought it down
    slow._process.wait()
    assert slow.decode(qoi(8), "x").shape == (32, 32, 3)


def test_slow_formats_have_a_limit_of_their_own(opened):
    decoder = opened(slow_megapixels=0.01)
    assert decoder.decode(qoi(100), "x").shape == (32, 32, 3)
    plain = b"P3 101 100 255 " + b"9 " * 30_300
    runs = encoded(Image.new("P", (8, 8)), "BMP")
    assert decoder.decode(encoded(Image.new("RGB", (500, 500)), "PNG"), "x").any() == 0
    assert decoder.decode(runs, "x").shape == (32, 32, 3)
    for content, kind in ((qoi(101), "QOI"), (plain, "PPM")):
        with pytest.raises(UnreadableImage, match=f"limit is 0.01 for {kind}, which is slow"):
            decoder.decode(content, "x")


def test_the_picture_inside_an_icon_counts(opened):
    decoder = opened(megapixels=1.0)
    small = encoded(Image.new("RGBA", (16, 16)), "PNG")
    assert decoder.decode(icon(small), "x").shape == (32, 32, 3)
    large = encoded(Image.new("1", (1200, 1000)), "PNG")
    with pytest.raises(UnreadableImage, match="too many pixels, refused from its header"):
        decoder.decode(icon(large), "x")
    block = struct.pack(">4sI", b"ic08", 8 + len(large)) + large
    icns = struct.pack(">4sI", b"icns", 8 + len(block)) + block
    with pytest.raises(UnreadableImage, match="too many pixels, refused from its header"):
        decoder.decode(icns, "x")
