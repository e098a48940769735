"""The one way from a picture to the square of pixels that a network takes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ddh._core.errors import InputError
from ddh.images.decoding import to_rgb

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes the network's input; saved with the model.

    `apply` is the only place where pictures are resized and cropped, so that a picture has the
    same code as a file, as an array and as a Pillow image. `Backbone.normalise` does the rest on
    the device: (pixel - mean) / std.

    Parameters
    ----------
    size
        Side of the network's square input, in pixels.
    mode
        "crop" resizes the shorter side to `resize` pixels and takes the centre square; "squash"
        resizes the whole picture to a square and gives up its proportions. Of tiny pictures,
        with a shorter side below half of `size`, "crop" keeps the whole centre square.
    resize
        Shorter side before cropping; `size` by default.
    interpolation
        "bilinear" or "bicubic", both antialiased.
    mean, std
        Per channel (red, green, blue), in pixel units from 0 to 255.
    flip_tta
        Average the features of a picture and of its mirror image: better features at twice the
        cost.
    """

    size: int
    mode: Literal["squash", "crop"] = "crop"
    resize: int | None = None
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: tuple[float, float, float] = (127.5, 127.5, 127.5)
    std: tuple[float, float, float] = (127.5, 127.5, 127.5)
    flip_tta: bool = False

    def __post_init__(self) -> None:
        if self.mode not in ("squash", "crop"):
            raise InputError(f"mode is 'squash' or 'crop', not {self.mode!r}")
        if self.interpolation not in FILTERS:
            raise InputError(f"interpolation is one of {list(FILTERS)}, not {self.interpolation!r}")
        if not isinstance(self.size, int) or self.size < 1:
            raise InputError(f"size is a positive number of pixels, not {self.size!r}")
        if self.resize is not None and (self.mode == "squash" or self.resize < self.size):
            raise InputError("resize belongs to mode 'crop' and is not smaller than size")
        for name in ("mean", "std"):
            values = tuple(float(value) for value in getattr(self, name))
            if len(values) != 3 or not np.isfinite(values).all():
                raise InputError(f"{name} has three finite numbers, one per channel, not {values}")
            object.__setattr__(self, name, values)
        if min(self.std) <= 0:
            raise InputError(f"std is positive, not {self.std}")

    @property
    def shorter_side(self) -> int:
        """Pixels of the shorter side after resizing."""
        return self.resize or self.size

    def keeps(self, height: int, width: int) -> bool:
        """Whether pictures of this size pass unchanged."""
        return height == width == self.size == self.shorter_side

    def apply(self, image: Image.Image) -> NDArray[np.uint8]:
        """Resize and crop a picture: uint8 (size, size, 3). Pictures that fit pass unchanged."""
        image = to_rgb(image)
        if self.keeps(image.height, image.width):
            return np.array(image)
        resized = image.resize(
            (self.size, self.size),
            FILTERS[self.interpolation],
            box=self._box(image.width, image.height),
            reducing_gap=3.0,  # box-reduce huge pictures first: faster, the same to the eye
        )
        return np.asarray(resized)

    def _box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """The part of the picture that is kept: resizing only that gives resize-then-crop."""
        if self.mode == "squash":
            return (0, 0, width, height)
        side: float = min(width, height)
        if 2 * side >= self.size:  # a tiny picture has no border to spare
            side *= self.size / self.shorter_side
        left, top = (width - side) / 2, (height - side) / 2
        return (left, top, left + side, top + side)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `flip_tta` only where it is on."""
        values = asdict(self) | {"mean": list(self.mean), "std": list(self.std)}
        return values if self.flip_tta else {k: v for k, v in values.items() if k != "flip_tta"}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; `mirror` is what version 0.1 called `flip_tta`."""
        values = {"flip_tta" if name == "mirror" else name: value for name, value in values.items()}
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InputError(f"unknown preprocessing settings: {', '.join(unknown)}")
        if "size" not in values:
            raise InputError("preprocessing settings need a size")
        return cls(**values)
