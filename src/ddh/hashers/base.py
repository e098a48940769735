"""The contract of every hashing method: scikit-learn's `fit` / `transform`, and packed `encode`.

A method is one file with one class that derives from `Hasher` and gives three things:

- `__init__(self, bits=64, ..., random_state=0)`, which only stores its arguments;
- `_fit(X, y, rng)`, which learns arrays and scalars into attributes that end with `_`;
- `_outputs(X)`, real values (n, bits) whose sign is the code; sgn(0) = +1 (the paper, Eq. 4).

Checking of input, signs, packing, batching, saving and loading are done here, once.
"""

import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

import ddh
from ddh._core.arrays import sgn
from ddh._core.errors import InputError, ModelError
from ddh.codes import code_bytes, pack
from ddh.hashers import storage

Kind = Literal[
    "data-independent",
    "unsupervised",
    "unsupervised deep",
    "semi-supervised",
    "supervised",
    "supervised deep",
]
Labels = Literal["none", "optional", "required"]

BATCH_ROWS = 8192


def check_features(
    X: ArrayLike, *, columns: int | None = None, least_rows: int = 1, half: bool = False
) -> NDArray[np.floating]:
    """A finite 2-D float32 or float64 array, or an error that says what is wrong.

    With `half` float16 is left as it is. A mapped file that needs no conversion stays on disk.
    """
    array = np.asarray(X)
    if array.ndim != 2:
        raise InputError(
            f"features are an (images, dimensions) array, not one of shape {array.shape}; "
            "use X.reshape(len(X), -1) for images"
        )
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or np.iscomplexobj(array):
        raise InputError(f"features must be real numbers, not {array.dtype}")
    if array.shape[0] < least_rows or array.shape[1] < 1:
        raise InputError(f"{least_rows} or more rows of features are needed, got {array.shape}")
    if columns is not None and array.shape[1] != columns:
        raise InputError(f"the model was fitted on {columns} dimensions, got {array.shape[1]}")
    if array.dtype not in (np.float32, np.float64) and not (half and array.dtype == np.float16):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    blocks = (array[start : start + BATCH_ROWS] for start in range(0, len(array), BATCH_ROWS))
    bad = np.flatnonzero(np.concatenate([~np.isfinite(block).all(axis=1) for block in blocks]))
    if bad.size:
        raise InputError(
            f"features hold NaN or infinity in {bad.size} row(s), the first is row {bad[0]}; "
            "remove or repair them"
        )
    return array


def check_labels(y: ArrayLike, rows: int) -> NDArray[np.int64]:
    """Labels as a vector of classes (-1: unlabelled) or a 0/1 matrix (rows, concepts)."""
    labels = np.asarray(y)
    if labels.shape[:1] != (rows,) or labels.ndim > 2:
        raise InputError(f"labels must have {rows} rows, got shape {labels.shape}")
    if labels.ndim == 2:
        if not np.isin(labels, (0, 1)).all():
            raise InputError("a label matrix holds 0 and 1 only, one column a concept")
        return labels.astype(np.int64)
    if labels.dtype.kind in "iub":
        return labels.astype(np.int64)
    if labels.dtype.kind == "f" and np.array_equal(labels, np.round(labels)):
        return labels.astype(np.int64)
    if labels.dtype.kind in "UO":
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)
    raise InputError(f"labels are classes or a 0/1 matrix, not {labels.dtype}")


class Hasher(TransformerMixin, BaseEstimator, ABC):
    """Base of all methods. `kind`, `labels`, `paper` and `year` describe the method to people."""

    title: ClassVar[str]
    kind: ClassVar[Kind]
    labels: ClassVar[Labels] = "none"
    paper: ClassVar[str]
    year: ClassVar[int]

    bits: int
    random_state: int | None
    n_features_in_: int

    @abstractmethod
    def _fit(self, X: NDArray[Any], y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        """Learn from checked features (and labels where the method takes them)."""

    @abstractmethod
    def _outputs(self, X: NDArray[Any]) -> NDArray[np.floating]:
        """Real values (n, bits) whose sign is the code; each row independent of the others."""

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the hash functions from features X (n, d) and, where the method uses them, y."""
        code_bytes(self.bits)
        features = check_features(X, least_rows=2)
        if self.labels == "required" and y is None:
            raise InputError(f"{type(self).__name__} learns from labels: call fit(X, y)")
        targets = None
        if y is not None and self.labels != "none":
            targets = check_labels(y, len(features))
        self.n_features_in_ = features.shape[1]
        self._fit(features, targets, np.random.default_rng(self.random_state))
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.int8]:
        """Codes as -1 and +1, int8 (n, bits)."""
        features = check_features(X, columns=self._fitted_columns())
        codes = np.empty((len(features), self.bits), np.int8)
        for start in range(0, len(features), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            codes[part] = sgn(self._outputs(features[part]))
        return codes

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Codes as packed bytes (n, ceil(bits / 8)); `ddh.codes` documents the bit order."""
        return pack(self.transform(X))

    def _fitted_columns(self) -> int:
        if not hasattr(self, "n_features_in_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self.n_features_in_

    # -- saving ---------------------------------------------------------------------------

    def _state(self) -> tuple[dict[str, Any], storage.Arrays]:
        """Fitted attributes (names that end with `_`) as (scalars, arrays)."""
        scalars: dict[str, Any] = {}
        arrays: storage.Arrays = {}
        for name, value in vars(self).items():
            if not name.endswith("_") or name.startswith("_"):
                continue
            if isinstance(value, np.ndarray):
                arrays[name] = value
            else:
                scalars[name] = value.item() if isinstance(value, np.generic) else value
        return scalars, arrays

    def _restore(self, scalars: dict[str, Any], arrays: storage.Arrays) -> None:
        """The inverse of `_state`."""
        for name, value in (scalars | arrays).items():
            setattr(self, name, value)

    def _description(self) -> tuple[dict[str, Any], storage.Arrays]:
        self._fitted_columns()
        scalars, arrays = self._state()
        description = {
            "method": type(self).__name__,
            "bits": self.bits,
            "bit_order": "big",
            "settings": self.get_params(deep=False),
            "fitted": scalars,
            "library": ddh.__version__,
        }
        return description, arrays

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the model folder (`model.json`, `model.safetensors`) and return the model's id."""
        return storage.write(path, *self._description())

    @property
    def model_id(self) -> str:
        """The id that the saved model has: a digest of everything in it."""
        return storage.digest(*storage.serialise(*self._description()))

    @classmethod
    def _from_saved(cls, description: dict[str, Any], arrays: storage.Arrays) -> Self:
        try:
            model = cls(**description["settings"])
            model._restore(description["fitted"], arrays)
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelError(
                f"this {cls.__name__} model does not fit this version of the library ({error!r})"
            ) from error
        return model


class LinearHasher(Hasher):
    """A method whose codes are sgn((x - mean_) @ projection_)."""

    mean_: NDArray[np.floating]
    projection_: NDArray[np.floating]

    def _outputs(self, X: NDArray[Any]) -> NDArray[np.floating]:
        return (X - self.mean_) @ self.projection_
