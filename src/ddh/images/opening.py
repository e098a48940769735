"""Whatever a caller passes as pictures, made into an `ImageSource`; and what counts as pictures."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from ddh._core.errors import InputError
from ddh.images.decoding import DEFAULT_LIMITS, Limits, printable
from ddh.images.labelled import LabelledImages
from ddh.images.sources import ImageArray, ImageFiles, ImageFolder, ImageSource


def _is_path(x: Any) -> bool:
    return isinstance(x, str | os.PathLike)


def is_images(x: Any) -> bool:
    """Whether `x` holds pictures (to be opened) and not ready features, which have two axes."""
    if isinstance(x, ImageSource | LabelledImages) or _is_path(x):
        return True
    if isinstance(x, list | tuple) and x and all(map(_is_path, x)):
        return True
    return (x.ndim if hasattr(x, "ndim") else np.asarray(x).ndim) in (3, 4)


def open_images(x: Any, *, limits: Limits = DEFAULT_LIMITS) -> ImageSource:
    """A folder, a file, a list of files, an array or a data set as an `ImageSource`."""
    if isinstance(x, ImageSource):
        return x
    if isinstance(x, LabelledImages):
        return x.images
    if _is_path(x):
        path = Path(x)
        if path.is_dir():
            return ImageFolder(path, limits=limits)
        if not path.exists():
            raise InputError(f"{printable(path)} does not exist: give an image or a folder of them")
        return ImageFiles([path], limits=limits)
    if isinstance(x, list | tuple) and all(map(_is_path, x)):
        return ImageFiles(x, limits=limits)
    if isinstance(x, list | tuple) and any(map(_is_path, x)):
        raise InputError("a list of images is a list of paths only")
    return ImageArray(x)
