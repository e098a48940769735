"""Every kind of good file becomes the same upright 8-bit RGB picture."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from ddh.images import UnreadableImage, decode
from ddh.images.decoding import to_rgb
from ddh.images.formats import picture_extensions, picture_formats


def encoded(image, format, **options):
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def pixels(content):
    image = decode(content)
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


@pytest.fixture(scope="module")
def scene():
    """A smooth picture without symmetry, 48 wide and 32 high."""
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (4, 6, 3), dtype=np.uint8))
    return small.resize((48, 32), Image.Resampling.BICUBIC)


def test_lossless_formats_keep_every_pixel(scene):
    expected = np.asarray(scene).astype(int)
    for format in ("PNG", "BMP", "TIFF", "PPM", "TGA", "PCX", "SGI", "DIB"):
        assert np.array_equal(pixels(encoded(scene, format)), expected), format
    assert np.array_equal(pixels(encoded(scene, "WEBP", lossless=True)), expected)


@pytest.mark.parametrize("format", ["JPEG", "WEBP"])
def test_lossy_formats_stay_close(scene, format):
    difference = pixels(encoded(scene, format, quality=95)) - np.asarray(scene)
    assert np.abs(difference).mean() < 4


def test_grey_and_one_bit(scene):
    grey = scene.convert("L")
    assert np.array_equal(
        pixels(encoded(grey, "PNG")), np.repeat(np.asarray(grey)[..., None], 3, axis=2)
    )
    bits = scene.convert("1")
    assert np.array_equal(pixels(encoded(bits, "PNG"))[..., 0], np.asarray(bits) * 255)


@pytest.mark.parametrize("format", ["PNG", "GIF"])
def test_palette(scene, format):
    palette = scene.quantize(64)
    expected = np.asarray(palette.convert("RGB"))
    assert np.array_equal(pixels(encoded(palette, format)), expected)


@pytest.mark.parametrize("format", ["PNG", "GIF"])
def test_transparent_palette_entry_shows_white(format):
    image = Image.new("P", (4, 2), 0)
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 1), 1)
    found = pixels(encoded(image, format, transparency=0))
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[1, 1].tolist() == [200, 100, 50]


def test_palette_with_alpha_per_entry():
    image = Image.new("P", (2, 1), 0)
    image.putpalette([0, 0, 0, 0, 0, 0])
    image.putpixel((1, 0), 1)
    found = pixels(encoded(image, "PNG", transparency=bytes([51, 255])))
    assert found[0, 0].tolist() == [204, 204, 204]
    assert found[0, 1].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("mode", "colour"), [("RGBA", (0, 100, 200, 51)), ("LA", (100, 51))])
def test_alpha_lies_on_white(mode, colour):
    expected = [round(c * 0.2 + 255 * 0.8) for c in colour[:-1]]
    found = pixels(encoded(Image.new(mode, (3, 3), colour), "PNG"))
    assert np.allclose(found[1, 1], expected if mode == "RGBA" else expected * 3, atol=1)


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_colour_key_shows_white(mode):
    key = 7 if mode == "L" else (7, 8, 9)
    found = pixels(encoded(Image.new(mode, (3, 3), key), "PNG", transparency=key))
    assert (found == 255).all()


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM"])
def test_16_bit_grey_is_scaled_not_clipped(format):
    ramp = np.linspace(0, 65535, 32 * 16).astype(np.uint16).reshape(16, 32)
    found = pixels(encoded(Image.fromarray(ramp), format))[..., 0]
    assert np.array_equal(found, np.rint(ramp / 257).astype(int))


def test_dark_16_bit_grey_stays_dark():
    found = pixels(encoded(Image.fromarray(np.full((4, 4), 2570, np.uint16)), "PNG"))
    assert (found == 10).all()


def test_16_bit_grey_with_a_colour_key():
    ramp = np.array([[0, 500, 65535]], np.uint16)
    image = Image.fromarray(ramp)
    image.info["transparency"] = 500
    assert np.asarray(to_rgb(image))[0, :, 0].tolist() == [0, 255, 255]


def test_deep_grey_beyond_16_bits_is_stretched():
    deep = np.array([[-1000, 0, 9000]], np.int32)
    assert pixels(encoded(Image.fromarray(deep), "TIFF"))[0, :, 0].tolist() == [0, 26, 255]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.0, 0.5, 1.0], [0, 128, 255]), ([0, 100, 255], [0, 100, 255]), ([-1, 0, 1], [0, 128, 255])],
)
def test_float_grey(values, expected):
    image = Image.fromarray(np.array([values], np.float32))
    assert np.abs(pixels(encoded(image, "TIFF"))[0, :, 0] - expected).max() <= 1


def test_float_grey_with_nan_is_refused():
    content = encoded(Image.fromarray(np.array([[0, np.nan]], np.float32)), "TIFF")
    with pytest.raises(UnreadableImage, match="NaN"):
        decode(content)


def cmyk_scene(scene):
    return scene.convert("CMYK"), np.asarray(scene).astype(int)


def test_cmyk_tiff_and_adobe_jpeg(scene):
    cmyk, expected = cmyk_scene(scene)
    assert np.abs(pixels(encoded(cmyk, "TIFF")) - expected).max() <= 1
    jpeg = encoded(cmyk, "JPEG", quality=95)
    assert b"Adobe" in jpeg
    assert np.abs(pixels(jpeg) - expected).mean() < 4


def test_cmyk_jpeg_without_adobe_marker_is_not_inverted(scene):
    cmyk, expected = cmyk_scene(scene)
    jpeg = encoded(Image.eval(cmyk, lambda ink: 255 - ink), "JPEG", quality=95)
    start = jpeg.index(b"\xff\xee")
    length = int.from_bytes(jpeg[start + 2 : start + 4], "big")
    plain = jpeg[:start] + jpeg[start + 2 + length :]
    assert b"Adobe" not in plain
    assert np.abs(pixels(plain) - expected).mean() < 4


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(scene, format, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if format == "JPEG" else {}
    if format == "WEBP":
        options = {"lossless": True}
    content = encoded(scene, format, exif=exif, **options)
    scene_with_tag = Image.open(io.BytesIO(encoded(scene, "PNG", exif=exif)))
    expected = np.asarray(ImageOps.exif_transpose(scene_with_tag)).astype(int)
    found = pixels(content)
    assert found.shape == expected.shape == ((48, 32, 3) if orientation > 4 else (32, 48, 3))
    assert np.abs(found - expected).mean() < 3


def test_orientation_of_a_cmyk_photo(scene):
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(scene.convert("CMYK"), "JPEG", quality=95, exif=exif)
    expected = np.asarray(scene.transpose(Image.Transpose.ROTATE_270)).astype(int)
    assert np.abs(pixels(content) - expected).mean() < 4


@pytest.mark.parametrize("orientation", [0, 9, 4000])
def test_meaningless_orientation_is_ignored(scene, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert decode(encoded(scene, "PNG", exif=exif)).size == scene.size


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_does_not_spoil_the_picture(scene):
    content = encoded(scene, "JPEG", exif=b"Exif\x00\x00MM\x00*\x00\x00\xff\xff" + b"\xff" * 9)
    assert decode(content).size == scene.size


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_first_frame_of_an_animation(format):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((250, 0, 0), (0, 250, 0))]
    options = {"lossless": True} if format == "WEBP" else {}
    content = encoded(frames[0], format, save_all=True, append_images=frames[1:], **options)
    assert Image.open(io.BytesIO(content)).n_frames == 2
    assert pixels(content)[4, 4].tolist() == [250, 0, 0]


def test_open_file_bytes_and_path_agree(scene, tmp_path):
    content = encoded(scene, "PNG")
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with path.open("rb") as file:
        from_file = np.asarray(decode(file))
    assert np.array_equal(from_file, pixels(content))
    assert np.array_equal(np.asarray(decode(path)), from_file)


def test_reduced_decoding_is_close_and_never_too_small():
    rng = np.random.default_rng(1)
    rough = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
    photo = rough.resize((1600, 1200), Image.Resampling.BICUBIC)
    content = encoded(photo, "JPEG", quality=90)
    for at_least, side in (
        (64, 300),
        (150, 300),
        (151, 600),
        (480, 600),
        (481, 1200),
        (2000, 1200),
    ):
        reduced = decode(content, at_least=at_least)
        assert min(reduced.size) == side
        target = (64, 48)
        full = np.asarray(photo.resize(target, Image.Resampling.BILINEAR)).astype(int)
        small = np.asarray(reduced.resize(target, Image.Resampling.BILINEAR)).astype(int)
        assert np.abs(full - small).mean() < 2


def test_extensions_are_those_of_pictures():
    extensions = picture_extensions()
    assert {".jpg", ".jpeg", ".png", ".gif", ".webp", ".tif", ".bmp", ".mpo"} <= extensions
    assert not {".eps", ".pdf", ".mpg", ".h5", ".wmf"} & extensions
    assert "EPS" not in picture_formats()


@pytest.mark.parametrize("value", [70000, -3, 2**31 - 1, -0.5, 70000.5, 1e30, -1e-40])
def test_flat_deep_grey_outside_its_range_is_black(value, tmp_path):
    """No range to stretch: neither a division by zero nor a damaged file."""
    kind = np.int32 if isinstance(value, int) else np.float32
    Image.fromarray(np.full((5, 4), value, kind)).save(tmp_path / "flat.tif")
    assert (np.asarray(decode(tmp_path / "flat.tif")) == 0).all()
