"""NUS-WIDE (Chua et al. 2009): Flickr pictures with 81 concepts, in the layout of its release.

ImageList/Imagelist.txt                       actor\\0001_2124494179.jpg, one per line
ImageList/TrainImagelist.txt, TestImagelist.txt
Groundtruth/AllLabels/Labels_<concept>.txt    0 or 1, one line per picture of Imagelist.txt
Groundtruth/TrainTestLabels/Labels_<concept>_Train.txt, ..._Test.txt
Flickr/actor/0001_2124494179.jpg              the pictures
"""

import os
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.images.labelled import LabelledImages, find_folder, read_lines

MOST_FREQUENT = 21  # the paper, section 3: "the 21 most frequent classes"
PICTURES = ("Flickr", "images")
WHERE = (
    "unpack NUS-WIDE's ImageList.zip and Groundtruth.zip there "
    "(https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html)"
)


def nus_wide(
    root: str | os.PathLike[str],
    split: Literal["all", "train", "test"] = "all",
    *,
    concepts: int = MOST_FREQUENT,
    images: str | os.PathLike[str] | None = None,
) -> LabelledImages:
    """The pictures that show at least one of the most frequent concepts, with those as labels.

    Concepts are counted over the whole release, so every split has the same classes (sorted by
    name). Pictures are looked for in `images`, or else below `root` in Flickr/ or images/; many
    are no longer to be had, so those that are not on disk are left out and counted in `missing`.
    Memory: one byte per picture and concept (22 MB for all 81).
    """
    if split not in ("all", "train", "test"):
        raise InputError(f"the splits of NUS-WIDE are all, train and test, not {split!r}")
    labels_folder = "Groundtruth/AllLabels"
    folder = find_folder(root, ("", "NUS-WIDE", "NUS_WIDE"), labels_folder, WHERE, labels_folder)
    files = sorted((folder / labels_folder).glob("Labels_*.txt"))
    if not files:
        raise InputError(f"no label files Labels_*.txt in {folder / labels_folder}: {WHERE}")
    if not 1 <= concepts <= len(files):
        raise InputError(f"{concepts} concepts were asked for, the label files name {len(files)}")
    everything = {path.stem.removeprefix("Labels_"): _read_vector(path) for path in files}
    ranked = sorted(everything, key=lambda concept: (-int(everything[concept].sum()), concept))
    chosen = tuple(sorted(ranked[:concepts]))
    if split == "all":
        vectors = [everything[concept] for concept in chosen]
        listing = _find(folder / "ImageList", "Imagelist.txt")
    else:
        part = split.capitalize()
        official = folder / "Groundtruth" / "TrainTestLabels"
        names = [f"Labels_{concept}_{part}.txt" for concept in chosen]
        vectors = [_read_vector(_find(official, name)) for name in names]
        listing = _find(folder / "ImageList", f"{part}Imagelist.txt")
    lengths = {concept: len(vector) for concept, vector in zip(chosen, vectors, strict=True)}
    if len(set(lengths.values())) != 1:
        raise InputError(f"the label files differ in length: {lengths}")
    labels = np.stack(vectors, axis=1)
    paths = [line.strip().replace("\\", "/") for line in read_lines(listing).values()]
    if len(paths) != len(labels):
        raise InputError(f"{listing} has {len(paths):,} images, its labels {len(labels):,} lines")
    shown = np.flatnonzero(labels.any(axis=1))
    below = next((folder / name for name in PICTURES if (folder / name).is_dir()), folder)
    name = f"NUS-WIDE {split}, {len(chosen)} concepts"
    relative = [paths[i] for i in shown]
    return LabelledImages.from_files(images or below, relative, labels[shown], name, chosen)


def _find(folder: Path, name: str) -> Path:
    """A file whatever the case of its name: copies of the release differ (ImageList.txt)."""
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name.lower() == name.lower():
                return path
    raise InputError(f"{folder / name} is missing: {WHERE}")


def _read_vector(path: Path) -> NDArray[np.uint8]:
    """A column of 0 and 1, one per line."""
    words = path.read_bytes().split()
    digits = np.frombuffer(b"".join(words), np.uint8) - np.uint8(ord("0"))
    if len(digits) != len(words) or (digits > 1).any():
        raise InputError(f"{path} should hold one 0 or 1 per line and nothing else")
    return digits
