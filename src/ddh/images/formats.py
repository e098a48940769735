"""Formats beyond Pillow's own: HEIC, JPEG XL and camera RAW, by the libraries of `ddh[photos]`.

`open_picture` stands for `PIL.Image.open`: what it returns knows its size and is not decoded yet.
Only JPEG XL, whose library decodes at once, and a RAW file without a usable preview are; their
sizes are read from their headers first.
"""

import io
import re
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image, UnidentifiedImageError

# Identified by Pillow but not pictures that it can draw by itself: documents, science containers,
# video, and formats that would start another program (EPS runs Ghostscript on a stranger's file).
NOT_PICTURES = frozenset({"BUFR", "EPS", "GRIB", "HDF5", "IPTC", "MPEG", "PDF", "WMF"})

PHOTOS = "pip install 'ddh[photos]'"
# Extensions of each library of that extra, whether it is installed or not.
HEIF = frozenset({".heic", ".heics", ".heif", ".heifs", ".hif"})
JPEG_XL = frozenset({".jxl"})
RAW = frozenset({
    ".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mef", ".mos",
    ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw",
    ".x3f",
})  # fmt: skip
LIBRARIES = {"pillow_heif": HEIF, "pillow_jxl": JPEG_XL, "rawpy": RAW}
AVIF = frozenset({".avif", ".avifs"})  # by Pillow itself from 11.3, which `ddh[photos]` asks for

HEAD_BYTES = 32
RAW_HEADS = re.compile(
    rb"FUJIFILMCCD-RAW|IIRO|IIRS|MMOR|IIU\0|FOVb|\0MRM|....ftypcrx |II\*\0....CR|II....HEAPCCDR",
    re.DOTALL,
)
HEIF_HEAD = re.compile(rb"....ftyp(hei[cxms]|hev[cx]|mif1|msf1)", re.DOTALL)
JXL_HEAD = re.compile(rb"\xff\x0a|\0\0\0\x0cJXL \r\n\x87\n")
LAZY_HEADS = re.compile(rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|II\*\0|MM\0\*")
LAZY_FORMATS = ("JPEG", "PNG", "TIFF")
# Formats whose first bytes say what they are, for files whose names do not.
KNOWN_HEADS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "JXL", "PNG", "TIFF", "WEBP")

MIN_PREVIEW = 320  # pixels of the shorter side of a RAW file's preview; smaller: its sensor is read
ORIENTATION = 0x0112
EXIF_OF_FLIP = {3: 3, 5: 8, 6: 6}  # LibRaw's turns as EXIF writes them
MAKE, PHOTOMETRIC, SUB_IFDS, DNG_VERSION = 271, 262, 330, 50706  # TIFF tags
COLOUR_FILTER_ARRAY = 32803
JXL_RATIOS = {1: (1, 1), 2: (12, 10), 3: (4, 3), 4: (3, 2), 5: (16, 9), 6: (5, 4), 7: (2, 1)}


class MissingLibrary(UnidentifiedImageError):
    """A picture whose format needs a library that is not installed."""


@cache
def library(name: str) -> Any:
    """A library of `ddh[photos]`, which adds its formats to Pillow; None where it is missing."""
    try:
        module = import_module(name)
    except ImportError:
        return None
    if name == "pillow_heif":
        module.register_heif_opener()
    return module


@cache
def picture_formats() -> tuple[str, ...]:
    """The formats that Pillow can read as pictures here."""
    Image.init()
    library("pillow_heif")
    library("pillow_jxl")
    return tuple(sorted(set(Image.OPEN) - NOT_PICTURES))


@cache
def picture_extensions() -> frozenset[str]:
    """File name endings (lower case, with the dot) of what can be read here."""
    formats = {*picture_formats(), "MPO"}  # MPO has no opener of its own: it starts as a JPEG
    extensions = {e for e, f in Image.registered_extensions().items() if f in formats}
    return frozenset(extensions | RAW if library("rawpy") else extensions - RAW)


def is_picture(path: Path) -> bool:
    """Whether a file counts as a picture: by its ending, or by content where it has none."""
    suffix = path.suffix.lower()
    if suffix in picture_extensions():
        return True
    if re.fullmatch(r"\.(?=.*[a-z])[a-z0-9_-]{1,8}", suffix):  # an ending that says something else
        return False
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return _has_known_head(file)
    except (OSError, ValueError):
        return False


def _has_known_head(file: BinaryIO) -> bool:
    head, names = file.read(HEAD_BYTES), set(picture_formats()) & set(KNOWN_HEADS)
    accepts = (Image.OPEN[name][1] for name in names)
    known = any(accept is not None and accept(head) for accept in accepts)
    return known or (library("rawpy") is not None and RAW_HEADS.match(head) is not None)


def describe_ignored(ignored: Mapping[str, int]) -> str:
    """Files that were not read, counted by their endings; empty where there are none."""
    if not ignored:
        return ""
    counted = [f"{n:,} {e or 'without an ending'}" for e, n in Counter(ignored).most_common()]
    wanted = [e for e in ignored if any(e in kinds for kinds in (*LIBRARIES.values(), AVIF))]
    hint = f": {PHOTOS} reads {', '.join(sorted(wanted))}" if wanted else ""
    return f"Not read: {', '.join(counted)}{hint}."


def open_picture(file: BinaryIO, megapixels: float) -> Image.Image:
    """Open a picture file of any format, as `PIL.Image.open` does; a RAW file is its preview.

    Raises what `PIL.Image.open` raises, `MissingLibrary`, or an error of a library.
    """
    head = file.read(HEAD_BYTES)
    file.seek(0)
    if RAW_HEADS.match(head) or _is_raw_tiff(file, head):
        rawpy = library("rawpy")
        if rawpy is None:
            raise MissingLibrary(f"a camera RAW file: {PHOTOS}")
        preview = _open_raw(rawpy, file, megapixels)
        if preview is not None:
            return preview
    file.seek(0)
    if JXL_HEAD.match(head) and library("pillow_jxl") is not None:
        _check_jxl_size(file.read(), megapixels)
        file.seek(0)
    try:
        return open_header(file)
    except UnidentifiedImageError:
        for pattern, name, kind in (
            (HEIF_HEAD, "pillow_heif", "HEIC"),
            (JXL_HEAD, "pillow_jxl", "JPEG XL"),
        ):
            if pattern.match(head) and library(name) is None:
                raise MissingLibrary(f"a picture in {kind}: {PHOTOS}") from None
        raise


class _WithoutLimit:
    """Pillow's own limit of pixels, one for the process, is off while any thread is inside."""

    def __init__(self) -> None:
        self._lock, self._inside, self._limit = threading.Lock(), 0, Image.MAX_IMAGE_PIXELS

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                Image.MAX_IMAGE_PIXELS = self._limit


_without_limit = _WithoutLimit()


def open_header(file: BinaryIO) -> Image.Image:
    """`PIL.Image.open`, for pictures of any size where it decodes nothing: whoever does so counts.

    Other formats are decoded at once, such as the picture inside an icon.
    """
    head = file.read(HEAD_BYTES)
    file.seek(0)
    if not LAZY_HEADS.match(head):
        return Image.open(file, formats=picture_formats())
    with _without_limit:
        return Image.open(file, formats=LAZY_FORMATS)


def needs_library(file: BinaryIO) -> bool:
    """Whether a picture is read by a library of `ddh[photos]` and not by Pillow's own code."""
    head = file.read(HEAD_BYTES)
    raw = RAW_HEADS.match(head) is not None or _is_raw_tiff(file, head)
    file.seek(0)
    return raw or any(pattern.match(head) for pattern in (HEIF_HEAD, JXL_HEAD))


def is_upright(image: Image.Image) -> bool:
    """Whether the EXIF orientation of an opened picture does not count: JPEG XL has its own."""
    return image.format == "JXL" and not getattr(image, "jpeg", False)


# -- camera RAW ------------------------------------------------------------------------------------


def _is_raw_tiff(file: BinaryIO, head: bytes) -> bool:
    """Whether a TIFF file is a RAW file, or may be one: LibRaw then decides."""
    if head[:4] not in (b"II*\0", b"MM\0*"):
        return False
    tags = dict(_first_directory(file, "<" if head[:2] == b"II" else ">"))
    if DNG_VERSION in tags or tags.get(PHOTOMETRIC) == COLOUR_FILTER_ARRAY:
        return True
    return MAKE in tags and SUB_IFDS in tags and library("rawpy") is not None


def _first_directory(file: BinaryIO, order: str) -> Iterator[tuple[int, int]]:
    """Tags of a TIFF file's first directory, with values as far as they are short numbers."""
    try:
        file.seek(4)
        file.seek(struct.unpack(f"{order}I", file.read(4))[0])
        (count,) = struct.unpack(f"{order}H", file.read(2))
        for _ in range(count):
            tag, _, _, value = struct.unpack(f"{order}HHIH2x", file.read(12))
            yield tag, value
    except (struct.error, OSError, OverflowError):
        return
    finally:
        file.seek(0)


def _open_raw(rawpy: Any, file: BinaryIO, megapixels: float) -> Image.Image | None:
    """A RAW file's preview, else its sensor at half size; None where LibRaw does not know it."""
    try:
        raw = rawpy.imread(file)
    except (rawpy.LibRawFileUnsupportedError, rawpy.LibRawDataError):
        return None
    with raw:
        preview = _preview(rawpy, raw)
        if preview is not None:
            return preview
        width, height = raw.sizes.width, raw.sizes.height
        if width * height > megapixels * 1e6:
            raise Image.DecompressionBombError(f"{width} x {height} pixels of a sensor")
        return Image.fromarray(raw.postprocess(half_size=True, use_camera_wb=True))


def _preview(rawpy: Any, raw: Any) -> Image.Image | None:
    """The embedded preview where it is large enough, with the turn that makes it upright."""
    try:
        found = raw.extract_thumb()
    except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError):
        return None
    if found.format == rawpy.ThumbFormat.JPEG:
        image = open_header(io.BytesIO(found.data))
    else:
        image = Image.fromarray(found.data)
    if min(image.size) < MIN_PREVIEW:
        return None
    turn = EXIF_OF_FLIP.get(raw.sizes.flip)
    if turn is not None and ORIENTATION not in image.getexif():
        image.getexif()[ORIENTATION] = turn
    return image


# -- JPEG XL ---------------------------------------------------------------------------------------


def _jxl_codestream(content: bytes) -> int:
    """Where the codestream begins: at once, or in the first box that holds a part of it."""
    at = 0
    while content[:2] != b"\xff\x0a":
        size, kind, head = int.from_bytes(content[at : at + 4]), content[at + 4 : at + 8], 8
        if size == 1:
            size, head = int.from_bytes(content[at + 8 : at + 16]), 16
        if kind in (b"jxlc", b"jxlp"):
            return at + head + (4 if kind == b"jxlp" else 0)
        if size < head:
            raise ValueError("a JPEG XL container without a codestream")
        at += size
    return 0


def _check_jxl_size(content: bytes, megapixels: float) -> None:
    """Refuse too many pixels by the size header of ISO/IEC 18181-1, before the library decodes."""
    start = _jxl_codestream(content)
    bits = int.from_bytes(content[start + 2 : start + 14], "little")

    def take(count: int) -> int:
        nonlocal bits
        value, bits = bits & ((1 << count) - 1), bits >> count
        return value

    def side(small: int) -> int:
        return 8 * (1 + take(5)) if small else 1 + take((9, 13, 18, 30)[take(2)])

    small = take(1)
    height, ratio = side(small), take(3)
    width = side(small) if ratio == 0 else height * JXL_RATIOS[ratio][0] // JXL_RATIOS[ratio][1]
    if width * height > megapixels * 1e6:
        raise Image.DecompressionBombError(f"{width} x {height} pixels")
