"""Edits that photographs meet on their way through the world, to test duplicate finders with."""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

Random = np.random.Generator
Change = Callable[[Image.Image, Random], Image.Image]
QUALITY = 90  # JPEG, where an edit says nothing else: edited pictures are saved again


@dataclass(frozen=True)
class Edit:
    """A change of the pixels, and how the result is saved."""

    name: str
    family: str
    change: Change
    format: str = "JPEG"
    quality: int = QUALITY

    def __call__(self, image: Image.Image, rng: Random) -> tuple[bytes, str]:
        """Content of the edited file, and the ending of its name."""
        return encode(self.change(image, rng), self.format, self.quality)


def encode(image: Image.Image, format: str, quality: int) -> tuple[bytes, str]:
    """An image as the content of a file, and the ending of its name."""
    stream = io.BytesIO()
    image.save(stream, format, quality=quality)
    return stream.getvalue(), {"JPEG": ".jpg", "WEBP": ".webp"}[format]


def _same(image: Image.Image, rng: Random) -> Image.Image:
    return image


def _resize(share: float) -> Change:
    def change(image: Image.Image, rng: Random) -> Image.Image:
        size = [max(1, round(side * share)) for side in image.size]
        return image.resize((size[0], size[1]), Image.Resampling.LANCZOS)

    return change


def _crop(area: float) -> Change:
    """A window of this share of the area, of the same shape, anywhere."""

    def change(image: Image.Image, rng: Random) -> Image.Image:
        width, height = (max(1, round(side * math.sqrt(area))) for side in image.size)
        left = int(rng.integers(image.width - width + 1))
        top = int(rng.integers(image.height - height + 1))
        return image.crop((left, top, left + width, top + height))

    return change


def _turn(how: Image.Transpose) -> Change:
    return lambda image, rng: image.transpose(how)


def _enhance(kind: Any) -> Change:
    """Darker or brighter, flatter or harder, by up to a half."""

    def change(image: Image.Image, rng: Random) -> Image.Image:
        factor = rng.uniform(0.6, 0.8) if rng.random() < 0.5 else rng.uniform(1.25, 1.5)
        enhanced: Image.Image = kind(image).enhance(float(factor))
        return enhanced

    return change


def _grey(image: Image.Image, rng: Random) -> Image.Image:
    return image.convert("L").convert("RGB")


def _write(
    image: Image.Image, text: str, height: float, place: tuple[float, float], opacity: float
) -> Image.Image:
    """White text with a dark edge; `height` and `place` are shares of the picture's sides."""
    size = max(6, round(height * image.height))
    font = ImageFont.load_default(size)
    layer = Image.new("RGBA", image.size)
    draw = ImageDraw.Draw(layer)
    edge = max(1, size // 14)
    box = draw.textbbox((0, 0), text, font, stroke_width=edge)
    x = place[0] * (image.width - (box[2] - box[0])) - box[0]
    y = place[1] * (image.height - (box[3] - box[1])) - box[1]
    alpha = round(255 * opacity)
    draw.text(
        (x, y), text, (255, 255, 255, alpha), font, stroke_width=edge, stroke_fill=(0, 0, 0, alpha)
    )
    return Image.alpha_composite(image.convert("RGBA"), layer).convert("RGB")


def _watermark(image: Image.Image, rng: Random) -> Image.Image:
    """Half transparent, in the middle or in a corner."""
    places = [(0.5, 0.5), (0.5, 0.95), (0.95, 0.95), (0.05, 0.05)]
    place = places[rng.integers(len(places))]
    return _write(image, "© example", float(rng.uniform(0.08, 0.14)), place, 0.5)


def _text(image: Image.Image, rng: Random) -> Image.Image:
    """A caption, opaque, above or below."""
    words = ["TOP OF THE LIST", "when it works", "SALE -50 %", "Happy Monday!"]
    place = (0.5, 0.04 if rng.random() < 0.5 else 0.96)
    return _write(image, words[rng.integers(len(words))], 0.12, place, 1.0)


def _border(image: Image.Image, rng: Random) -> Image.Image:
    """A frame of one colour, 3 to 10 % of the longer side wide."""
    width = max(1, round(max(image.size) * float(rng.uniform(0.03, 0.1))))
    red, green, blue = rng.integers(0, 256, 3).tolist()
    colours: list[str | tuple[int, int, int]] = ["white", "black", (red, green, blue)]
    framed = Image.new(
        "RGB", (image.width + 2 * width, image.height + 2 * width), colours[rng.integers(3)]
    )
    framed.paste(image, (width, width))
    return framed


SINGLE = (
    Edit("half size", "size", _resize(1 / 2)),
    Edit("quarter size", "size", _resize(1 / 4)),
    Edit("JPEG 75", "codec", _same, quality=75),
    Edit("JPEG 40", "codec", _same, quality=40),
    Edit("JPEG 20", "codec", _same, quality=20),
    Edit("WebP", "codec", _same, "WEBP", 80),
    Edit("crop 95 %", "crop", _crop(0.95)),
    Edit("crop 80 %", "crop", _crop(0.8)),
    Edit("crop 60 %", "crop", _crop(0.6)),
    Edit("turn 90", "turn", _turn(Image.Transpose.ROTATE_90)),
    Edit("turn 180", "turn", _turn(Image.Transpose.ROTATE_180)),
    Edit("turn 270", "turn", _turn(Image.Transpose.ROTATE_270)),
    Edit("mirror", "turn", _turn(Image.Transpose.FLIP_LEFT_RIGHT)),
    Edit("brightness", "light", _enhance(ImageEnhance.Brightness)),
    Edit("contrast", "light", _enhance(ImageEnhance.Contrast)),
    Edit("grey", "light", _grey),
    Edit("watermark", "overlay", _watermark),
    Edit("text", "overlay", _text),
    Edit("border", "overlay", _border),
)


def _combined(image: Image.Image, rng: Random) -> Image.Image:
    """Two edits of different families, in random order, each saved as its own file."""
    families = rng.choice(sorted({edit.family for edit in SINGLE}), 2, replace=False)
    for family in families:
        edits = [edit for edit in SINGLE if edit.family == family]
        content, _ = edits[rng.integers(len(edits))](image, rng)
        image = Image.open(io.BytesIO(content)).convert("RGB")
    return image


EDITS = (*SINGLE, Edit("two combined", "combined", _combined))
