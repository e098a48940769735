"""Classes of images for the command line: from a CSV file, or from the folders in their names."""

import csv
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ddh._core.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def classes_of(names: Sequence[str], labels: Path | None) -> "NDArray[Any]":
    """A class number for each name, or a 0/1 matrix where an image has several labels."""
    import numpy as np

    found = _from_folders(names) if labels is None else _from_csv(names, labels)
    classes = {label: number for number, label in enumerate(sorted({x for f in found for x in f}))}
    if all(len(own) == 1 for own in found):
        return np.array([classes[own[0]] for own in found], np.int64)
    matrix = np.zeros((len(found), len(classes)), np.uint8)
    for row, own in enumerate(found):
        matrix[row, [classes[label] for label in own]] = 1
    return matrix


def _from_folders(names: Sequence[str]) -> list[list[str]]:
    found = []
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if len(parts) < 2:
            raise InputError(
                f"{name!r} is in no folder that could be its class: sort the pictures into one "
                "folder a class, or give --labels CSV"
            )
        found.append([parts[0]])
    return found


def _from_csv(names: Sequence[str], path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.reader(stream) if len(row) >= 2]
    table = {name: _labels_in(cell) for name, cell, *_ in rows}
    missing = [name for name in names if name not in table]
    if missing:
        raise InputError(
            f"{path} has no label for {len(missing)} images, the first is {missing[0]!r}"
        )
    return [table[name] for name in names]


def _labels_in(cell: str) -> list[str]:
    """The labels of one image; an empty cell, or -1, has none."""
    return [label for part in cell.split(";") if (label := part.strip()) not in ("", "-1")]
