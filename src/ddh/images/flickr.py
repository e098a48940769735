"""MIRFLICKR-25000 (Huiskes & Lew 2008): Flickr pictures with 24 concepts, as its release has it.

mirflickr/im1.jpg ... im25000.jpg                   the pictures
mirflickr25k_annotations_v080/clouds.txt, sea.txt   numbers of the pictures, one per line
mirflickr25k_annotations_v080/clouds_r1.txt         those where the concept is prominent: not used
"""

import os

import numpy as np

from ddh._core.errors import InputError
from ddh.images.labelled import LabelledImages, find_folder, read_lines

ANNOTATIONS = ("mirflickr25k_annotations_v080", "annotations")
PICTURES = ("mirflickr", "images")
IMAGES = 25_000
WHERE = (
    "unpack mirflickr25k.zip and mirflickr25k_annotations_v080.zip there "
    "(https://press.liacs.nl/mirflickr/mirdownload.html)"
)


def flickr25k(root: str | os.PathLike[str]) -> LabelledImages:
    """The pictures that show at least one concept, with a 0/1 column per concept (by name).

    `root` holds the folders of pictures and annotations; missing pictures are left out and counted.
    """
    what = "annotations of MIRFLICKR-25000"
    notes = find_folder(root, ANNOTATIONS, what, WHERE, "clouds.txt", "sky.txt", "people.txt")
    files = sorted(path for path in notes.glob("*.txt") if not path.stem.endswith("_r1"))
    files = [path for path in files if path.stem.lower() != "readme"]
    labels = np.zeros((IMAGES, len(files)), np.uint8)
    for column, path in enumerate(files):
        try:
            numbers = np.array([int(line) for line in read_lines(path).values()])
        except ValueError as error:
            raise InputError(f"{path} should hold one number per line: {WHERE}") from error
        if numbers.size and not (numbers.min() >= 1 and numbers.max() <= IMAGES):
            raise InputError(f"{path} names a picture outside 1 to {IMAGES:,}: {WHERE}")
        labels[numbers - 1, column] = 1
    shown = np.flatnonzero(labels.any(axis=1))
    folder = find_folder(root, PICTURES, "pictures of MIRFLICKR-25000", WHERE, "im1.jpg", "im2.jpg")
    names = [f"im{row + 1}.jpg" for row in shown]
    classes = tuple(path.stem for path in files)
    return LabelledImages.from_files(folder, names, labels[shown], "Flickr25k", classes)
