"""Where pictures come from: a folder, a list of files, an array; all of them an `ImageSource`."""

import os
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ddh._core.errors import DDHWarning, InputError
from ddh._core.spans import spans
from ddh.images.decoding import DEFAULT_LIMITS, Limits, decode, printable
from ddh.images.formats import describe_ignored, is_picture

ROWS = 1024  # pictures converted at a time, so that temporary floats stay small
EXPECTED = "images are arrays of shape (n, h, w), (n, h, w, 1), (n, h, w, 3) or (n, h, w, 4)"


class ImageSource(ABC):
    """A fixed sequence of pictures, each with a name; safe to read from several threads."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """One printable name a picture."""

    @abstractmethod
    def read(self, i: int) -> Image.Image:
        """Picture `i`, upright, in RGB. Raises `InputError` when it cannot be used."""

    @abstractmethod
    def take(self, indices: Iterable[int]) -> "ImageSource":
        """The pictures at `indices`, in that order, as a source of its own."""

    def read_reduced(self, i: int, at_least: int) -> Image.Image:
        """Picture `i`, perhaps at a smaller scale, its sides well above `at_least` pixels."""
        return self.read(i)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self):,} images>"


class ImageFiles(ImageSource):
    """A list of picture files; each is opened only when it is read.

    Names are the paths as given, or relative to `root` where one is given.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        root: str | os.PathLike[str] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.paths = tuple(Path(path) for path in paths)
        self.root = None if root is None else Path(root)
        self.limits = limits
        if not self.paths:
            raise InputError("the list of image files is empty")
        above = self.root
        self._names = tuple(
            printable(path.relative_to(above) if above and path.is_relative_to(above) else path)
            for path in self.paths
        )

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def read(self, i: int) -> Image.Image:
        return decode(self.paths[i], name=self.names[i], limits=self.limits)

    def read_reduced(self, i: int, at_least: int) -> Image.Image:
        return decode(self.paths[i], name=self.names[i], limits=self.limits, at_least=at_least)

    def take(self, indices: Iterable[int]) -> "ImageFiles":
        chosen = [self.paths[i] for i in indices]
        return ImageFiles(chosen, root=self.root, limits=self.limits)


class ImageFolder(ImageFiles):
    """All picture files below a folder, sorted by their name relative to it.

    A file counts when its ending is one of a format that can be read here, or, where its name has
    no ending, when its content begins as a picture does; `ignored` counts the other files by their
    endings. Hidden files and folders are skipped, and counted as "hidden"; pipes, sockets and
    devices as "pipe or device". Links are followed, and a folder reached by several ways is entered
    once.
    """

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> None:
        folder = Path(path)
        if not folder.is_dir():
            state = "is not a folder" if folder.exists() else "does not exist"
            raise InputError(f"{printable(folder)} {state}: give a folder that holds images")
        self.ignored: Counter[str] = Counter()
        files = picture_files(folder, self.ignored)
        found = sorted(files, key=lambda file: printable(file.relative_to(folder)))
        if not found:
            raise InputError(
                f"no images in {printable(folder)}: looked in it and below for files such as "
                ".jpg, .png, .webp, .gif or .tif (hidden ones are skipped). "
                + describe_ignored(self.ignored)
            )
        super().__init__(found, root=folder, limits=limits)

    def __repr__(self) -> str:
        return f"<ImageFolder {printable(self.root or '')} of {len(self):,} images>"


def picture_files(folder: Path, ignored: Counter[str] | None = None) -> Iterator[Path]:
    """Picture files below `folder`; real folders first, so that a loop of links adds nothing.

    Other files are counted in `ignored` by their endings, hidden files and folders as "hidden",
    and what reading may never come to an end of as "pipe or device".
    """
    pending, seen = [folder], set()
    linked: list[Path] = []
    while pending or linked:
        current = pending.pop() if pending else linked.pop()
        try:
            state = current.stat()
            if (state.st_dev, state.st_ino) in seen:
                continue
            seen.add((state.st_dev, state.st_ino))
            with os.scandir(current) as scan:
                entries = sorted(scan, key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            if current == folder:
                raise InputError(f"{printable(folder)} cannot be read: {error.strerror}") from error
            message = f"left out {printable(current)}, which cannot be read: {error.strerror}"
            warnings.warn(message, DDHWarning, stacklevel=2)
            continue
        for entry in entries:
            path, kind = Path(entry.path), _kind(entry)
            if kind == "folder":
                (linked if entry.is_symlink() else pending).append(path)
            elif kind == "file" and is_picture(path):
                yield path
            elif ignored is not None:
                ignored[path.suffix.lower() if kind == "file" else kind] += 1


def _kind(entry: os.DirEntry[str]) -> str:
    """What is there; a link that leads nowhere is a file, so that its reader names it."""
    if entry.name.startswith("."):
        return "hidden"
    try:
        if entry.is_dir():
            return "folder"
        return "file" if entry.is_file() or not Path(entry.path).exists() else "pipe or device"
    except OSError:  # a link to itself
        return "file"


def has_pictures(folder: Path) -> bool:
    """Whether there are picture files below `folder`."""
    return next(picture_files(folder), None) is not None


def require_pictures(folder: Path) -> None:
    """Refuse a folder without picture files, and say what is there instead."""
    if not has_pictures(folder):
        ImageFolder(folder)


class ImageArray(ImageSource):
    """Pictures held in memory: uint8 (n, h, w), (n, h, w, 1), (n, h, w, 3) or (n, h, w, 4).

    Boolean arrays and floats in [0, 1] are scaled to 0..255; a fourth channel is alpha, laid on
    white. `pixels` is uint8 (n, h, w, 3); for uint8 grey and RGB input it is a view, not a copy.
    """

    def __init__(self, images: Any, *, names: Sequence[str] | None = None) -> None:
        self.pixels: NDArray[np.uint8] = as_pixels(images)
        if names is not None and len(names) != len(self.pixels):
            raise InputError(f"{len(names)} names were given for {len(self.pixels)} images")
        self._names = tuple(names) if names is not None else None

    @property
    def names(self) -> Sequence[str]:
        if self._names is None:
            self._names = tuple(map(str, range(len(self.pixels))))
        return self._names

    def __len__(self) -> int:
        return len(self.pixels)

    def read(self, i: int) -> Image.Image:
        return Image.fromarray(np.ascontiguousarray(self.pixels[i]))

    def take(self, indices: Iterable[int]) -> "ImageArray":
        chosen = np.fromiter(indices, dtype=np.int64)
        names = None if self._names is None else [self._names[i] for i in chosen]
        return type(self)(self.pixels[chosen], names=names)


class PreparedArray(ImageArray):
    """Pictures that `Preprocessing.apply` has prepared: no more is done to them."""


def as_pixels(images: Any) -> NDArray[np.uint8]:
    """Check an array of pictures and give it as uint8 (n, h, w, 3); alpha is laid on white.

    uint8 grey or RGB is not copied (grey becomes a read-only view that repeats its channel); other
    types cost one uint8 copy.
    """
    array = np.asarray(images)
    _check_shape(array)
    if array.ndim == 3:
        array = array[..., None]
    array = _as_uint8(array)
    if array.shape[3] == 4:
        return _on_white(array)
    return np.broadcast_to(array, (*array.shape[:3], 3)) if array.shape[3] == 1 else array


def _check_shape(array: NDArray[Any]) -> None:
    shape = array.shape
    if array.ndim == 2:
        raise InputError(f"an array of shape {shape} holds features, not images; {EXPECTED}")
    if array.ndim not in (3, 4):
        raise InputError(f"{EXPECTED}, not {shape}")
    if 0 in shape:
        raise InputError(f"the array of images is empty: shape {shape}")
    if array.ndim == 3 and shape[2] in (3, 4):
        raise InputError(f"an array of shape {shape} looks like one picture: pass images[None]")
    if array.ndim == 4 and shape[3] not in (1, 3, 4):
        hint = "; channels come last here: pass images.transpose(0, 2, 3, 1)"
        raise InputError(f"{EXPECTED}, not {shape}{hint if shape[1] in (1, 3, 4) else ''}")


def _as_uint8(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype != bool and array.dtype.kind != "f":
        raise InputError(
            f"pixels are uint8, bool, or floats in [0, 1], not {array.dtype}; "
            "scale them to 0..255 and pass images.astype(np.uint8)"
        )
    pixels = np.empty(array.shape, np.uint8)
    for rows in spans(len(array), ROWS):
        part = array[rows]
        if array.dtype != bool and not (part.min() >= 0 and part.max() <= 1):  # NaN fails too
            raise InputError(
                f"float pixels must lie in [0, 1], these span {part.min():g} to {part.max():g}; "
                "divide by their largest value, or pass uint8"
            )
        pixels[rows] = np.rint(part * np.float32(255))
    return pixels


def _on_white(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    pixels = np.empty((*array.shape[:3], 3), np.uint8)
    for rows in spans(len(array), ROWS):
        alpha = array[rows, ..., 3:].astype(np.uint16)
        mixed = array[rows, ..., :3] * alpha + 255 * (255 - alpha)  # at most 255 * 255: fits
        pixels[rows] = (mixed + 127) // 255
    return pixels


def _is_path(x: Any) -> bool:
    return isinstance(x, str | os.PathLike)


def is_images(x: Any) -> bool:
    """Whether `x` holds pictures (to be opened) and not ready features, which have two axes."""
    if _is_path(x) or any(isinstance(s, ImageSource) for s in (x, getattr(x, "images", None))):
        return True
    if isinstance(x, list | tuple) and x and all(map(_is_path, x)):
        return True
    return (x.ndim if hasattr(x, "ndim") else np.asarray(x).ndim) in (3, 4)


def open_images(x: Any, *, limits: Limits = DEFAULT_LIMITS) -> ImageSource:
    """A folder, a file, a list of files, an array or a data set as an `ImageSource`."""
    if isinstance(x, ImageSource):
        return x
    if isinstance(images := getattr(x, "images", None), ImageSource):  # a data set
        return images
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
