"""COCO-17: 12,000 photographs of COCO (Lin et al. 2014) with one or more of 17 concepts.

images/00000.webp ... images/11999.webp   the photographs
labels.csv                                image,concepts: 00004.webp,bicycle|car
"""

import os

import numpy as np

from ddh._core.errors import InputError
from ddh.images.labelled import LabelledImages, find_folder, read_lines

LABELS = "labels.csv"
COLUMNS = ["image", "concepts"]
WHERE = (
    "put the photographs into images/ and their concepts into labels.csv there, with the header "
    "image,concepts and lines such as 00004.webp,bicycle|car"
)


def coco17(root: str | os.PathLike[str]) -> LabelledImages:
    """The photographs, with a 0/1 column per concept (sorted by name).

    `root` is the folder that holds labels.csv or the one above it.
    """
    folder = find_folder(root, ("", "coco17"), f"COCO-17 ({LABELS})", WHERE, LABELS)
    listing = folder / LABELS
    lines = {number: line.strip().split(",") for number, line in read_lines(listing).items()}
    header, *rows = lines.values() or [[]]
    if header != COLUMNS:
        raise InputError(f"{listing} begins with {','.join(header)!r}: {WHERE}")
    for number, row in lines.items():
        if len(row) != len(COLUMNS) or not all(row):
            raise InputError(f"{listing}, line {number}: not an image and its concepts: {WHERE}")
    names = [name for name, _ in rows]
    concepts = [text.split("|") for _, text in rows]
    classes = tuple(sorted(set().union(*concepts)))
    column = {concept: place for place, concept in enumerate(classes)}
    labels = np.zeros((len(rows), len(classes)), np.uint8)
    for place, shown in enumerate(concepts):
        labels[place, [column[concept] for concept in shown]] = 1
    data = LabelledImages.from_files(folder / "images", names, labels, "COCO-17", classes)
    if data.missing:  # another set of photographs would be split in another way
        raise InputError(
            f"{data.missing:,} of the {len(rows):,} images of COCO-17 are missing in "
            f"{folder / 'images'}: {WHERE}"
        )
    return data
