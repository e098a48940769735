"""Data sets with the usual list files of hashing papers: MS COCO (80 concepts) and ImageNet-100.

test.txt, database.txt, train.txt     image_path 0 0 1 0 ...: queries, searched and training images
database0.txt ... database7.txt       a list may be in numbered parts, as HashNet's release has them
train2014/, val2014/ or image/, val_image/    the pictures, below the same folder
"""

import os
from pathlib import Path

import numpy as np

from ddh._core.errors import InputError
from ddh.images.labelled import LabelledImages, find_folder, multi_label_rows

LISTS = {"query": "test", "database": "database", "train": "train"}
# Lists name pictures below folders of the machine that they were made on.
ANCHORS = ("train2014", "val2014", "image", "val_image", "images")


def mscoco(root: str | os.PathLike[str]) -> LabelledImages:
    """MS COCO 2014 with its 80 concepts, split by test.txt, database.txt and train.txt.

    `parts` of the result names the rows of each list.
    """
    where = (
        "put the lists test.txt, database.txt and train.txt of HashNet's release "
        "(https://github.com/thuml/HashNet) there, and COCO's train2014/ and val2014/ "
        "(https://cocodataset.org) beside them"
    )
    return _listed(root, ("", "coco"), "MS COCO, 80 concepts", 80, where)


def imagenet100(root: str | os.PathLike[str]) -> LabelledImages:
    """100 classes of ImageNet, split by test.txt, database.txt and train.txt.

    `parts` of the result names the rows of each list; labels are class numbers.
    """
    where = (
        "put the lists test.txt, database.txt and train.txt of HashNet's release "
        "(https://github.com/thuml/HashNet) there, and its image/ and val_image/ beside them"
    )
    data = _listed(root, ("", "imagenet", "ImageNet"), "ImageNet-100", 100, where)
    return data.with_classes_as_numbers()


def _listed(
    root: str | os.PathLike[str], below: tuple[str, ...], name: str, columns: int, where: str
) -> LabelledImages:
    markers = [f"{stem}{number}.txt" for stem in LISTS.values() for number in ("", 0)]
    folder = find_folder(root, below, f"lists of {name}", where, *markers)
    rows: dict[str, int] = {}
    labels, parts = [], {}
    for part, stem in LISTS.items():
        files = _files(folder, stem)
        if not files:
            raise InputError(f"{folder / stem}.txt is missing: {where}")
        found = []
        for file in files:
            names, own = multi_label_rows(file)
            if own.shape[1] != columns:
                raise InputError(f"{file} has {own.shape[1]} label columns, not {columns}: {where}")
            for path, label in zip(map(_below_anchor, names), own, strict=True):
                if path not in rows:
                    rows[path] = len(rows)
                    labels.append(label)
                found.append(rows[path])
        parts[part] = np.array(found, np.int64)
    classes = tuple(map(str, range(columns)))
    data = LabelledImages.from_files(folder, list(rows), np.stack(labels), name, classes)
    if data.missing:  # another set of pictures would be split in another way
        raise InputError(
            f"{data.missing:,} of the {len(rows):,} images of {name} are missing below {folder}: "
            f"{where}"
        )
    return data.with_parts(parts)


def _files(folder: Path, stem: str) -> list[Path]:
    whole = folder / f"{stem}.txt"
    numbered = sorted(folder.glob(f"{stem}[0-9].txt"))
    return [whole] if whole.exists() else numbered


def _below_anchor(path: str) -> str:
    """The path from its picture folder on, without what another machine has put before it."""
    pieces = [piece for piece in path.split("/") if piece not in ("", ".")]
    places = [place for place, piece in enumerate(pieces) if piece in ANCHORS]
    return "/".join(pieces[places[0] :] if places else pieces)
