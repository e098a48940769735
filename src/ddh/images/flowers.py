"""Oxford-17 (Nilsback and Zisserman 2006): 17 kinds of flowers, 80 pictures each, three splits."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import DDHWarning, InputError
from ddh.images.labelled import LabelledImages, find_folder
from ddh.images.sources import ImageFiles

PER_CLASS = 80
CLASSES = (
    "daffodil", "snowdrop", "lily of the valley", "bluebell", "crocus", "iris", "tiger lily",
    "tulip", "fritillary", "sunflower", "daisy", "coltsfoot", "dandelion", "cowslip", "buttercup",
    "windflower", "pansy",
)  # fmt: skip
IMAGES = PER_CLASS * len(CLASSES)
LABELS = np.arange(IMAGES, dtype=np.int64) // PER_CLASS
SPLITS_FILE = "datasplits.mat"
WHERE = "https://www.robots.ox.ac.uk/~vgg/data/flowers/17/"


@dataclass(frozen=True)
class Split:
    """Indices (from 0) of the pictures for training, validation and testing."""

    name: str
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def flowers17(root: str | os.PathLike[str]) -> LabelledImages:
    """The 1,360 pictures; `root` is the folder of the files or one above it."""
    folder = _folder(root)
    names = [f"image_{number:04d}.jpg" for number in range(1, IMAGES + 1)]
    missing = sorted(set(names) - {path.name for path in folder.iterdir()})
    if missing:
        raise InputError(
            f"{len(missing)} of the {IMAGES:,} flowers are missing in {folder}, the first is "
            f"{missing[0]}: get 17flowers.tgz from {WHERE}"
        )
    images = ImageFiles([folder / name for name in names], root=folder)
    return LabelledImages(images, LABELS.copy(), "Oxford-17", CLASSES)


def flowers17_splits(root: str | os.PathLike[str], *, seed: int = 0) -> tuple[Split, ...]:
    """The three official splits from datasplits.mat, near the pictures.

    Without that file: three random ones of the same shape (40 / 20 / 20 per class), and a warning,
    since their figures are not those of the official splits.
    """
    folder = _folder(root)
    for place in (Path(root), folder, folder.parent):
        if (place / SPLITS_FILE).is_file():
            return _official_splits(place / SPLITS_FILE)
    warnings.warn(
        f"no {SPLITS_FILE} beside the pictures (get it from {WHERE}): using three random "
        f"40/20/20 splits per class with seed {seed}, not the official ones",
        DDHWarning,
        stacklevel=2,
    )
    return seeded_splits(LABELS, seed)


def _folder(root: str | os.PathLike[str]) -> Path:
    below, first = ("", "jpg", "flowers17/jpg"), "image_0001.jpg"
    return find_folder(root, below, first, f"get 17flowers.tgz from {WHERE}", first)


def _official_splits(path: Path) -> tuple[Split, ...]:
    from scipy.io import loadmat  # only here: few need it

    try:
        content = loadmat(path)
    except Exception as error:  # a damaged file makes the parser raise almost anything
        raise InputError(f"{path} is not a MATLAB file: {error}; get it from {WHERE}") from error
    splits = []
    for number in (1, 2, 3):
        keys = [f"{part}{number}" for part in ("trn", "val", "tst")]
        if absent := [key for key in keys if key not in content]:
            raise InputError(f"{path} lacks {', '.join(absent)}: get it from {WHERE}")
        parts = [np.sort(content[key].ravel().astype(np.int64)) - 1 for key in keys]
        if not np.array_equal(np.sort(np.concatenate(parts)), np.arange(IMAGES)):
            raise InputError(f"{path}: split {number} does not name each of {IMAGES:,} images once")
        splits.append(Split(f"official {number}", *parts))
    return tuple(splits)


def seeded_splits(labels: NDArray[np.int64], seed: int = 0) -> tuple[Split, ...]:
    """Three random splits: half of each class for training, a quarter for validation."""
    _, kinds, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    half, quarter = sizes[kinds] // 2, sizes[kinds] // 4
    splits = []
    for number in (1, 2, 3):
        order = np.lexsort((np.random.default_rng((seed, number)).random(len(kinds)), kinds))
        place = np.empty(len(kinds), np.int64)  # of each image in the shuffled row of its class
        place[order] = np.concatenate([np.arange(size) for size in sizes])
        part = (place >= half).astype(int) + (place >= half + quarter)
        rows = (np.flatnonzero(part == number) for number in range(3))
        splits.append(Split(f"random {number} (seed {seed})", *rows))
    return tuple(splits)
