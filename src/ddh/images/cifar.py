"""CIFAR-10 (Krizhevsky 2009) from its official Python batches, checked by their md5 digests."""

import hashlib
import io
import os
import pickle
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.images.labelled import LabelledImages, find_folder
from ddh.images.sources import ImageArray

FOLDER = "cifar-10-batches-py"
WHERE = (
    "get cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html "
    "and unpack it there: tar xzf cifar-10-python.tar.gz"
)
MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
BATCHES = {"train": tuple(MD5)[:5], "test": tuple(MD5)[5:], "all": tuple(MD5)}
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


class _ArraysOnly(pickle.Unpickler):
    """Reads NumPy arrays and plain values; refuses every other object, so no code can run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _empty_array
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a batch of images")


def _empty_array(kind: type, shape: tuple[int, ...], dtype: bytes) -> np.ndarray:
    """What NumPy's pickles call to make the array that their state then fills."""
    return np.ndarray(shape, np.dtype(dtype.decode("ascii")))


def cifar10(
    root: str | os.PathLike[str], split: Literal["train", "test", "all"] = "train"
) -> LabelledImages:
    """50,000 training or 10,000 test pictures of 32 x 32, or all 60,000 in that order.

    `root` is the folder with the batches or the one that holds it. Memory: 3 KB a picture.
    """
    if split not in BATCHES:
        raise InputError(f"the splits of CIFAR-10 are {', '.join(BATCHES)}, not {split!r}")
    folder = find_folder(root, ("", FOLDER), "CIFAR-10 batches", WHERE, *MD5)
    batches = [_read_batch(folder / name, MD5[name]) for name in BATCHES[split]]
    pixels, labels, names = zip(*batches, strict=True)
    images = ImageArray(np.concatenate(pixels), names=list(chain(*names)))
    return LabelledImages(images, np.concatenate(labels), f"CIFAR-10 {split}", CLASSES)


def _read_batch(path: Path, md5: str) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]:
    """(pixels, labels, names)."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {WHERE}") from error
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise InputError(f"{path} is damaged or not the official file (md5 {found}): {WHERE}")
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        planes = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32)  # red, green, blue
        labels = np.asarray(batch[b"labels"], np.int64)
        names = [name.decode("ascii") for name in batch[b"filenames"]]
    except Exception as error:  # a strange pickle makes the reader raise almost anything
        raise InputError(f"{path} does not hold a batch of CIFAR-10: {error}") from error
    return planes.transpose(0, 2, 3, 1), labels, names
