"""Data sets: images with labels, from list files, and the digits that scikit-learn carries."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.images.sources import ImageArray, ImageFiles, ImageSource


@dataclass(frozen=True)
class LabelledImages:
    """Pictures, and for each a class number (n,) or a row of 0 and 1 over the classes (n, c).

    `missing` counts pictures that the data set names but that were not on disk and are left out.
    `parts` are the rows of "query", "database" and "train" where the data set itself names them.
    """

    images: ImageSource
    labels: NDArray[Any]
    name: str
    classes: tuple[str, ...]
    missing: int = 0
    parts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.images):
            raise InputError(f"{len(self.labels)} labels for {len(self.images)} images")
        if self.labels.ndim == 2 and self.labels.shape[1] != len(self.classes):
            raise InputError(
                f"{self.labels.shape[1]} label columns for {len(self.classes)} classes"
            )

    @classmethod
    def from_files(
        cls,
        root: str | os.PathLike[str],
        relative: Sequence[str],
        labels: NDArray[Any],
        name: str,
        classes: tuple[str, ...],
    ) -> Self:
        """Files below `root` with their labels; those that are not there are counted, not kept."""
        folder = Path(root)
        paths = [folder / path for path in relative]
        there = np.array(_exist(paths), dtype=bool)
        if not there.any():
            raise InputError(
                f"none of the {len(paths):,} images of {name} is in {folder}: "
                f"looked for {paths[0] if paths else 'any'}"
            )
        kept = [path for path, found in zip(paths, there, strict=True) if found]
        images = ImageFiles(kept, root=folder)
        return cls(images, labels[there], name, classes, missing=int((~there).sum()))

    def __len__(self) -> int:
        return len(self.images)

    @property
    def multi_label(self) -> bool:
        """Whether a picture may have several classes."""
        return self.labels.ndim == 2

    def take(self, indices: Iterable[int]) -> Self:
        """The pictures at `indices`, in that order, with their labels; without `parts`."""
        chosen = np.array(list(indices), dtype=np.int64)
        images, labels = self.images.take(chosen), self.labels[chosen]
        return replace(self, images=images, labels=labels, parts={})

    def with_parts(self, parts: Mapping[str, NDArray[np.int64]]) -> Self:
        """The same pictures, and which rows the data set names for what."""
        return replace(self, parts=parts)

    def with_classes_as_numbers(self) -> Self:
        """Class numbers instead of a matrix with one 1 in each row."""
        if (self.labels.sum(axis=1) != 1).any():
            raise InputError(f"{self.name}: every image has one class, and these lists differ")
        return replace(self, labels=self.labels.argmax(axis=1).astype(np.int64))


def find_folder(
    root: str | os.PathLike[str], below: Sequence[str], what: str, hint: str, *markers: str
) -> Path:
    """The first of the folders `below` the root that holds one of the marker files, or an error."""
    for folder in (Path(root) / name for name in below):
        if any((folder / marker).exists() for marker in markers):
            return folder
    places = " or ".join(str(Path(root) / name) for name in below)
    raise InputError(f"no {what} in {places}: {hint}")


def read_lines(path: Path) -> dict[int, str]:
    """The lines of a text file that are not blank, by their numbers from 1."""
    try:
        lines = path.read_text("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return {number: line for number, line in enumerate(lines, 1) if line.strip()}


def _exist(paths: Sequence[Path]) -> list[bool]:
    """Which paths exist; each folder is listed once, which is far faster than asking for each."""
    listed: dict[Path, frozenset[str]] = {}
    for folder in {path.parent for path in paths}:
        try:
            listed[folder] = frozenset(path.name for path in folder.iterdir())
        except OSError:
            listed[folder] = frozenset()
    return [path.name in listed[path.parent] for path in paths]


def multi_label_list(
    file: str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
) -> LabelledImages:
    """Read a list file; relative paths start at `root`, and may hold spaces or backslashes.

    The first line says how many label columns there are. Pictures that are not on disk are left
    out and counted in `missing`. Without `classes` they are called "0", "1", ...
    """
    names, labels = multi_label_rows(file)
    columns, path = labels.shape[1], Path(file)
    if classes is not None and len(classes) != columns:
        raise InputError(f"{path} has {columns} label columns, {len(classes)} classes were given")
    named = tuple(classes) if classes is not None else tuple(map(str, range(columns)))
    return LabelledImages.from_files(root, names, labels, path.stem, named)


def multi_label_rows(file: str | os.PathLike[str]) -> tuple[list[str], NDArray[np.uint8]]:
    """(paths, 0/1 labels) of a list file; the first line says how many label columns there are."""
    path = Path(file)
    lines = read_lines(path)
    if not lines:
        raise InputError(f"{path} is empty: it should hold lines such as 'images/a.jpg 0 1 0'")
    first = min(lines)
    columns = _label_count(lines[first])
    if columns == 0:
        raise InputError(f"{path}, line {first}: no 0/1 labels after the path")
    labels = np.empty((len(lines), columns), np.uint8)
    names = []
    for row, (number, line) in enumerate(lines.items()):
        if (found := _label_count(line)) != columns:
            raise InputError(
                f"{path}, line {number}: {found} labels where the first line has {columns}"
            )
        name, *labels[row] = line.strip().rsplit(maxsplit=columns)
        names.append(name.replace("\\", "/"))
    return names, labels


def _label_count(line: str) -> int:
    """How many 0/1 words end the line; its first word is the path whatever it is."""
    words = reversed(line.split()[1:])
    return len(list(takewhile(lambda word: word in ("0", "1"), words)))


def digits() -> LabelledImages:
    """8 x 8 grey pictures of ten digits; their 17 levels are spread over 0..255."""
    from sklearn.datasets import load_digits  # only here: it takes a second to import

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    classes = tuple(str(name) for name in bunch.target_names)
    return LabelledImages(ImageArray(pixels), labels, "digits", classes)
