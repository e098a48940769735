"""What a camera wrote into a picture's file: date, camera, exposure, place."""

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ddh.images.formats import ORIENTATION, open_header

EXIF, GPS = 0x8769, 0x8825  # the directories inside the directory
MAKE, MODEL, CHANGED, TAKEN = 0x010F, 0x0110, 0x0132, 0x9003
EXPOSURE, APERTURE, ISO, FOCAL_LENGTH, LENS = 0x829A, 0x829D, 0x8827, 0x920A, 0xA434
LATITUDE, LONGITUDE = (1, 2), (3, 4)  # hemisphere; degrees, minutes, seconds
MAX_TEXT = 100  # characters of a name
TURNED = (5, 6, 7, 8)  # orientations that exchange width and height


@dataclass(frozen=True)
class PhotoFacts:
    """Facts of a picture; None for whatever its file does not say.

    `taken` is the camera's own clock as ISO 8601, `place` is latitude and longitude in degrees,
    `exposure` is time, aperture, sensitivity and focal length in words.
    """

    width: int | None = None
    height: int | None = None
    taken: str | None = None
    camera: str | None = None
    lens: str | None = None
    exposure: str | None = None
    place: tuple[float, float] | None = None

    def metadata(self) -> dict[str, Any]:
        """What is worth keeping in an index: `taken`, `camera`, `latitude`, `longitude`."""
        latitude, longitude = self.place or (None, None)
        found: dict[str, Any] = {"taken": self.taken, "camera": self.camera}
        found |= {"latitude": latitude, "longitude": longitude}
        return {name: value for name, value in found.items() if value is not None}


def photo_facts(file: str | os.PathLike[str]) -> PhotoFacts:
    """The facts in the header of a picture file, without decoding its pixels.

    Nothing is raised: a file that cannot be read has no facts, and damaged ones are left out.
    """
    try:
        with Path(file).open("rb") as opened, open_header(opened) as image:
            width, height = image.size
            try:
                found = image.getexif()
                main, photo, gps = dict(found), found.get_ifd(EXIF), found.get_ifd(GPS)
            except Exception:  # damaged metadata does not spoil the size
                return PhotoFacts(width, height)
    except Exception:  # Pillow's parsers raise almost anything
        return PhotoFacts()
    if main.get(ORIENTATION) in TURNED:
        width, height = height, width
    return PhotoFacts(
        width,
        height,
        _date(photo.get(TAKEN)) or _date(main.get(CHANGED)),
        _camera(_text(main.get(MAKE)), _text(main.get(MODEL))),
        _text(photo.get(LENS)),
        _exposure(photo),
        _place(gps),
    )


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        return None
    text = " ".join("".join(c if c.isprintable() else " " for c in value).split())
    return text[:MAX_TEXT] or None


def _date(value: Any) -> str | None:
    """The date of EXIF's "2024:05:03 10:22:31" as ISO 8601."""
    with suppress(ValueError):
        return datetime.strptime(_text(value) or "", "%Y:%m:%d %H:%M:%S").isoformat()
    return None


def _camera(make: str | None, model: str | None) -> str | None:
    """The model with its maker before it, unless it says so itself."""
    if not make or not model:
        return model or make
    return model if model.lower().startswith(make.split()[0].lower()) else f"{make} {model}"


def _number(value: Any) -> float | None:
    with suppress(TypeError, ValueError, ZeroDivisionError):
        number = float(value)
        return number if math.isfinite(number) else None
    return None


def _exposure(photo: dict[int, Any]) -> str | None:
    iso = photo.get(ISO)
    seconds, aperture, sensitivity, length = (
        number if number is not None and number > 0 else None
        for number in map(
            _number,
            (
                photo.get(EXPOSURE),
                photo.get(APERTURE),
                iso[0] if isinstance(iso, tuple) and iso else iso,
                photo.get(FOCAL_LENGTH),
            ),
        )
    )
    parts = [
        seconds and (f"1/{1 / seconds:.0f} s" if seconds < 0.4 else f"{seconds:g} s"),
        aperture and f"f/{aperture:.2g}",
        sensitivity and f"ISO {sensitivity:.0f}",
        length and f"{length:.3g} mm",
    ]
    return " · ".join(part for part in parts if part) or None


def _place(gps: dict[int, Any]) -> tuple[float, float] | None:
    latitude, longitude = _degrees(gps, *LATITUDE), _degrees(gps, *LONGITUDE)
    if latitude is None or longitude is None or abs(latitude) > 90 or abs(longitude) > 180:
        return None
    return (latitude, longitude) if latitude or longitude else None  # 0, 0 means: not known


def _degrees(gps: dict[int, Any], hemisphere: int, angle: int) -> float | None:
    parts = gps.get(angle)
    numbers = [_number(part) for part in parts] if isinstance(parts, tuple) else []
    if len(numbers) != 3 or None in numbers:
        return None
    degrees: float = sum((part or 0.0) / 60**power for power, part in enumerate(numbers))
    return round(-degrees if gps.get(hemisphere) in ("S", "W", b"S", b"W") else degrees, 6)
