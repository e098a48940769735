"""Lists as hashing research keeps them: one picture a line, "path 0 1 0 ...", a column a class."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.images.labelled import LabelledImages


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
    path = Path(file)
    try:
        lines = path.read_text("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise InputError(f"{path} is empty: it should hold lines such as 'images/a.jpg 0 1 0'")
    columns = _columns(rows[0][1])
    if columns == 0:
        raise InputError(f"{path}, line {rows[0][0]}: no 0/1 labels after the path")
    if classes is not None and len(classes) != columns:
        raise InputError(f"{path} has {columns} label columns, {len(classes)} classes were given")
    labels = np.empty((len(rows), columns), np.uint8)
    names = []
    for row, (number, line) in enumerate(rows):
        name, labels[row] = _parse(line, columns, f"{path}, line {number}")
        names.append(name)
    named = tuple(classes) if classes is not None else tuple(map(str, range(columns)))
    return LabelledImages.from_files(root, names, labels, path.stem, named)


def _columns(line: str) -> int:
    """How many 0/1 words end the line; its first word is the path whatever it is."""
    words = line.split()[1:]
    trailing = 0
    while words and words.pop() in ("0", "1"):
        trailing += 1
    return trailing


def _parse(line: str, columns: int, where: str) -> tuple[str, NDArray[np.uint8]]:
    found = _columns(line)
    if found != columns:
        raise InputError(f"{where}: {found} labels where the first line has {columns}")
    name, *labels = line.strip().rsplit(maxsplit=columns)
    return name.replace("\\", "/"), np.array(labels, np.uint8)
