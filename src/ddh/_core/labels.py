"""Labels of images: a vector of classes, or a 0/1 matrix with one column per concept.

A negative class, or a row of zeros, means unlabelled. Two images are similar if they share a label.
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
    array = np.asarray(labels)
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
    if array.dtype.kind in "USO":
        return np.unique(array, return_inverse=True)[1].reshape(-1).astype(np.int64)
    if array.dtype.kind not in "iubf":
        raise InputError(f"{what} are classes or a 0/1 matrix, not {array.dtype}")
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.rint(array))).all():
        raise InputError(
            f"{what} hold fractions, NaN or infinity; mark unlabelled images by {UNLABELLED}"
        )
    return array.astype(np.int64)


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
