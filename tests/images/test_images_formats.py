"""HEIC, AVIF, JPEG XL and camera RAW; pictures without an ending; what is not read is counted."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from ddh._core.errors import InputError
from ddh.images import ImageFolder, Limits, Preprocessing, UnreadableImage, decode, formats
from ddh.images.formats import describe_ignored, is_picture, needs_library, picture_extensions
from ddh.images.isolated import IsolatedDecoder
from dng_file import dng

EXTRA = {"HEIF": "pillow_heif", "JXL": "pillow_jxl", "RAW": "rawpy"}
LIMITS = Limits(megapixels=0.5)


@pytest.fixture(scope="module")
def scene():
    """A smooth picture without symmetry, 480 wide and 360 high."""
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (3, 4, 3), dtype=np.uint8))
    return small.resize((480, 360), Image.Resampling.BICUBIC)


def encoded(image, format, **options):
    if format in EXTRA:
        pytest.importorskip(EXTRA[format])
        formats.library(EXTRA[format])
    elif format not in formats.picture_formats():
        pytest.skip(f"this Pillow has no {format}")
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def raw(scene, *, preview=None, orientation=1):
    """A RAW file whose sensor sees the scene twice as large."""
    pytest.importorskip("rawpy")
    colours = np.asarray(scene.resize((960, 720))).astype(np.uint16) * 257
    sensor = colours[..., 1].copy()
    sensor[0::2, 0::2], sensor[1::2, 1::2] = colours[0::2, 0::2, 0], colours[1::2, 1::2, 2]
    return dng(sensor, encoded(preview, "JPEG") if preview else b"", orientation)


def similar(image, expected):
    """Whether two pictures go up and down together, whatever curve a converter has applied."""
    pairs = [np.asarray(each.convert("L"), float).ravel() for each in (image, expected)]
    return image.size == expected.size and np.corrcoef(*pairs)[0, 1] > 0.9


@pytest.mark.parametrize("format", ["HEIF", "AVIF", "JXL"])
def test_new_formats_are_decoded(scene, format):
    image = decode(encoded(scene, format, quality=90))
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image).astype(int) - np.asarray(scene)).mean() < 4


@pytest.mark.parametrize("format", ["HEIF", "AVIF"])
def test_new_formats_are_upright(scene, format):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = decode(encoded(scene, format, exif=exif.tobytes(), quality=90))
    assert similar(image, scene.transpose(Image.Transpose.ROTATE_270))


def test_orientation_of_jpeg_xl_is_that_of_its_codestream(scene):
    exif = Image.Exif()
    exif[0x0112] = 6  # not to be applied: ISO/IEC 18181-2
    assert decode(encoded(scene, "JXL", exif=exif.tobytes())).size == scene.size


def test_raw_sensor_at_half_size(scene):
    image = decode(raw(scene))
    assert similar(image, scene)


def test_raw_preview_where_it_is_large_enough(scene):
    preview = Image.new("RGB", (480, 360), (200, 30, 30))
    assert np.allclose(np.asarray(decode(raw(scene, preview=preview))), (200, 30, 30), atol=4)
    assert similar(decode(raw(scene, preview=preview.resize((160, 120)))), scene)


@pytest.mark.parametrize("of_preview", [None, 6])
def test_raw_preview_is_upright(scene, of_preview):
    """Turned as the camera was held, whether or not the preview says so itself; never twice."""
    preview = scene.copy()
    if of_preview:
        exif = Image.Exif()
        exif[0x0112] = of_preview
        preview.info["exif"] = exif.tobytes()
    pytest.importorskip("rawpy")
    buffer = io.BytesIO()
    preview.save(buffer, "JPEG", exif=preview.info.get("exif", b""))
    content = dng(np.zeros((720, 960), np.uint16), buffer.getvalue(), 6)
    assert similar(decode(content), scene.transpose(Image.Transpose.ROTATE_270))


def test_ordinary_tiff_with_the_tags_of_cameras_is_a_tiff(scene):
    tags = {271: "Scanner", 330: 0}
    content = encoded(scene, "TIFF", tiffinfo=tags)
    assert np.array_equal(np.asarray(decode(content)), np.asarray(scene))


@pytest.mark.parametrize("format", ["HEIF", "AVIF", "JXL", "RAW"])
def test_too_many_pixels_are_refused_before_decoding(scene, format, monkeypatch):
    if format == "RAW":
        content = raw(scene)
    else:
        content = encoded(scene.resize((960, 720)), format)
    if format == "JXL":
        opened = []
        monkeypatch.setattr(formats.Image, "open", lambda *args, **kw: opened.append(args))
    with pytest.raises(UnreadableImage, match="pixels") as refused:
        decode(content, limits=LIMITS)
    assert "960 x 720" in refused.value.reason
    assert format != "JXL" or not opened


@pytest.mark.parametrize("size", [(8, 8), (255, 256), (513, 700), (640, 360), (9000, 3)])
@pytest.mark.parametrize("container", [False, True])
def test_size_of_jpeg_xl_by_its_header(size, container):
    content = encoded(Image.new("RGB", size), "JXL", use_container=container)
    limit = size[0] * size[1] / 1e6
    formats._check_jxl_size(content, limit)
    with pytest.raises(Image.DecompressionBombError, match=f"{size[0]} x {size[1]}"):
        formats._check_jxl_size(content, limit * 0.99)


def test_box_that_names_another_does_not_mislead(scene):
    content = encoded(Image.new("RGB", (1600, 1200)), "JXL", use_container=True)
    box = b"jxlc\xff\x0a" + bytes(30)
    misleading = content[:12] + struct.pack(">I", 8 + len(box)) + b"free" + box + content[12:]
    with pytest.raises(UnreadableImage, match="1600 x 1200"):
        decode(misleading, limits=LIMITS)


@pytest.mark.parametrize("format", ["HEIF", "AVIF", "JXL", "RAW"])
def test_damaged_files_are_errors(scene, format):
    content = raw(scene) if format == "RAW" else encoded(scene, format)
    for length in (16, 40, len(content) // 2):
        with pytest.raises(UnreadableImage):
            decode(content[:length])


@pytest.mark.parametrize("format", ["HEIF", "JXL", "RAW"])
def test_missing_library_is_named(scene, format, monkeypatch):
    content = raw(scene) if format == "RAW" else encoded(scene, format)
    monkeypatch.setattr(formats, "library", lambda name: None)
    monkeypatch.setattr(formats, "picture_formats", lambda: ("JPEG", "PNG", "TIFF"))
    with pytest.raises(UnreadableImage, match=r"pip install 'ddh\[photos\]'"):
        decode(content)


@pytest.mark.parametrize("format", ["HEIF", "JXL", "RAW"])
def test_uploads_are_decoded_in_the_isolated_process(scene, format):
    content = raw(scene) if format == "RAW" else encoded(scene, format)
    assert needs_library(io.BytesIO(content))
    assert not needs_library(io.BytesIO(encoded(scene, "JPEG")))
    decoder = IsolatedDecoder(Preprocessing(32), Limits(), 60)
    try:
        assert decoder.decode(content, "upload").shape == (32, 32, 3)
    finally:
        decoder.close()


def test_pictures_without_an_ending_are_recognised(scene, tmp_path):
    for format in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000"):
        (tmp_path / format).write_bytes(encoded(scene, format))
    (tmp_path / "Photo 12.30.45").write_bytes(encoded(scene, "JPEG"))
    (tmp_path / "README").write_text("no picture")
    (tmp_path / "empty").touch()
    (tmp_path / "notes.txt").write_bytes(encoded(scene, "JPEG"))  # its ending says something else
    assert not is_picture(tmp_path / "absent")
    folder = ImageFolder(tmp_path)
    assert len(folder) == 8
    assert "Photo 12.30.45" in folder.names
    assert folder.ignored == {"": 2, ".txt": 1}


def test_other_files_are_counted(scene, tmp_path, monkeypatch):
    (tmp_path / "a.jpg").write_bytes(encoded(scene, "JPEG"))
    for name in ("a.mov", "b.MOV", "b.txt", ".hidden.mov", "c.HEIC", "d.nef"):
        (tmp_path / name).touch()
    readable = picture_extensions() - formats.HEIF - formats.RAW
    monkeypatch.setattr(formats, "picture_extensions", lambda: readable)
    folder = ImageFolder(tmp_path)
    assert folder.ignored == {".mov": 2, ".txt": 1, ".heic": 1, ".nef": 1, "hidden": 1}
    text = describe_ignored(folder.ignored)
    assert text.startswith("Not read: 2 .mov, 1 ")
    assert text.endswith("pip install 'ddh[photos]' reads .heic, .nef.")
    assert "pip" not in describe_ignored({".mov": 2})
    assert describe_ignored({"hidden": 2, "": 1}) == "Not read: 2 hidden, 1 without an ending."
    assert describe_ignored({}) == ""
    (tmp_path / "a.jpg").unlink()
    with pytest.raises(InputError, match=r"no images in .*2 \.mov"):
        ImageFolder(tmp_path)
