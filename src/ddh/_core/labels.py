"""Labels of images: a vector of classes, or a 0/1 matrix with one column per concept.

A negative class, -1 among words, or a row of zeros means unlabelled. Two images are similar if they
share a label.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError

UNLABELLED = -1


def check_labels(
    labels: ArrayLike, rows: int | None = None, what: str = "labels"
) -> NDArray[np.int64]:
    """Labels as int64 classes (rows,), words numbered in order, or as a 0/1 matrix."""
    array = _plain(labels, what)
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise InputError(
            f"{what} are a vector of classes or a 0/1 matrix, not an array of shape {array.shape}"
        )
    if rows is not None and len(array) != rows:
        raise InputError(f"{what} must have {rows} rows, got shape {array.shape}")
    if array.ndim == 2:
        if not np.isin(array, (0, 1)).all():
            raise InputError("a label matrix holds 0 and 1 only, one column per concept")
        return array.astype(np.int64)
    if array.dtype.kind in "US":
        known = array != np.array(str(UNLABELLED), array.dtype.kind)
        numbers = np.full(len(array), UNLABELLED, np.int64)
        numbers[known] = np.unique(array[known], return_inverse=True)[1]
        return numbers
    if array.dtype.kind not in "iubf":
        raise InputError(f"{what} are classes or a 0/1 matrix, not {array.dtype}")
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.rint(array))).all():
        raise InputError(
            f"{what} hold fractions, NaN or infinity; mark unlabelled images by {UNLABELLED}"
        )
    return array.astype(np.int64)


def _plain(labels: ArrayLike, what: str) -> NDArray[Any]:
    """Labels as an array of words or of numbers, also where pandas keeps them as objects."""
    try:
        array = np.asarray(labels)
        if array.dtype != object or array.ndim == 0:
            return array
        values = array.ravel().tolist()
        if all(isinstance(value, str) or str(value) == str(UNLABELLED) for value in values):
            return array.astype(str)
        numbers = np.array(values)
    except ValueError as error:  # lists of different lengths
        raise InputError(f"{what} of several words per image are given as a 0/1 matrix") from error
    if numbers.dtype.kind not in "iubf" or numbers.shape != (array.size,):
        odd = next(value for value in values if not isinstance(value, str))
        raise InputError(
            f"{what} are words or numbers, one per image, or a 0/1 matrix, and not {odd!r}; mark "
            f"unlabelled images by {UNLABELLED}"
        )
    return numbers.reshape(array.shape)


def is_labelled(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows of checked labels carry a label."""
    return np.asarray(labels.any(axis=1) if labels.ndim == 2 else labels >= 0)


def indicators(labels: NDArray[Any]) -> NDArray[np.float32]:
    """Checked labels as a 0/1 matrix (rows, concepts); an unlabelled row is all zeros."""
    if labels.ndim == 2:
        return labels.astype(np.float32)
    classes = np.unique(labels[labels >= 0])
    return np.asarray((labels[:, None] == classes).astype(np.float32))


def shares_label(left: Any, right: Any) -> Any:
    """Which pairs of rows share a label: classes or float32 0/1 matrices, of NumPy or torch."""
    if left.ndim == 2:
        return left @ right.T > 0
    shared = left[:, None] == right[None, :]
    unlabelled = left < 0
    if unlabelled.any():
        shared[unlabelled] = False
    return shared
