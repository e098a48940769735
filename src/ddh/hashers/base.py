"""The contract of every hashing method: scikit-learn's `fit` / `transform`, and packed `encode`.

A method is one file with one class that derives from `Hasher` and defines:

- its settings, as fields (every method is a dataclass), beside `bits` and `random_state`;
- `_fit(X, y, rng)`, which learns arrays and scalars into attributes that end with `_`;
- `_outputs(X)`, real values (n, bits) whose sign is the code; sgn(0) = +1 (the paper, Eq. 4).

Input checks, signs, packing, batching, saving and loading are done here, once.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self, dataclass_transform

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags, check_array

import ddh
from ddh._core.arrays import sgn
from ddh._core.errors import DDHError, InputError, ModelError
from ddh._core.labels import check_labels as check_labels
from ddh._core.spans import spans
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
Floats = NDArray[np.floating[Any]]

BATCH_ROWS = 8192


def check_features(X: ArrayLike, *, least_rows: int = 1, half: bool = False) -> Floats:
    """A finite 2-D float32 or float64 array, or an error that says what is wrong.

    With `half` float16 is left as it is. A mapped file that needs no conversion stays on disk.
    """
    kept = [np.float64, np.float32]
    if getattr(X, "dtype", None) == np.float16:
        kept = [np.float16] if half else [np.float32]
    try:
        array: Floats = check_array(
            X, dtype=kept, allow_nd=True, ensure_all_finite=False, ensure_min_samples=least_rows
        )
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    if array.ndim > 2:
        raise InputError(
            f"features are an (images, dimensions) array, not one of shape {array.shape}; "
            "use X.reshape(len(X), -1) for images"
        )
    blocks = spans(len(array), BATCH_ROWS)
    bad = np.flatnonzero(np.concatenate([~np.isfinite(array[rows]).all(axis=1) for rows in blocks]))
    if bad.size:
        raise InputError(
            f"features hold NaN or infinity in {bad.size} row(s), the first is row {bad[0]}; "
            "remove or repair them"
        )
    return array


def as_float32(outputs: Floats) -> NDArray[np.float32]:
    """Outputs in single precision; one that would round to zero keeps its sign."""
    values = outputs.astype(np.float32, copy=False)
    lost = (values == 0) & (outputs < 0)
    if lost.any():
        values = np.where(lost, -np.finfo(np.float32).smallest_subnormal, values)
    return values


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
@dataclass(eq=False, repr=False)
class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of all hashing methods, a scikit-learn transformer.

    Parameters
    ----------
    bits : int
        Length of the codes.
    random_state : int or None
        Seed of all random choices; None draws one.

    Attributes
    ----------
    title, kind, labels, paper, year
        Description of the method: its name in words, whether and how it is supervised, whether
        `fit` takes labels ("none", "optional", "required"), its reference.
    n_features_in_
        Number of dimensions of the features seen by `fit`.
    """

    title: ClassVar[str]
    kind: ClassVar[Kind]
    labels: ClassVar[Labels] = "none"
    paper: ClassVar[str]
    year: ClassVar[int]
    #: Settings that earlier versions saved under another name: old -> new.
    renamed_settings: ClassVar[Mapping[str, str]] = {}

    bits: int = 64
    _: KW_ONLY
    random_state: int | None = 0

    n_features_in_: int = field(init=False)
    _loaded_id: str | None = field(init=False, default=None)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(eq=False, repr=False, kw_only=True)(cls)

    @abstractmethod
    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        """Learn from checked features (and labels where the method takes them)."""

    @abstractmethod
    def _outputs(self, X: Floats) -> Floats:
        """Real values (n, bits) whose sign is the code; each row independent of the others."""

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the hash functions.

        Parameters
        ----------
        X : array of shape (n, dimensions)
            Features, one row per image.
        y : array of shape (n,) or (n, concepts), optional
            Classes (-1: unlabelled) or a 0/1 matrix with a column per concept. Required by
            supervised methods, ignored by unsupervised ones.

        Returns
        -------
        self
        """
        self._check_code()
        features = check_features(X, least_rows=2)
        targets = self._targets(y, len(features))
        with self._unless_it_fails():
            self.n_features_in_, self._loaded_id = features.shape[1], None
            self._fit(features, targets, np.random.default_rng(self.random_state))
        return self

    def _check_code(self) -> None:
        """Refuse a length of the codes that is none, and a seed that cannot be saved."""
        code_bytes(self.bits)
        seed = self.random_state
        whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0
        if seed is not None and not whole:
            raise InputError(f"random_state is a whole number of 0 or more, or None, not {seed!r}")

    @contextmanager
    def _unless_it_fails(self) -> Iterator[None]:
        """Keep what is learned, or after an error what was known before."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _targets(self, y: ArrayLike | None, rows: int) -> NDArray[np.int64] | None:
        """Checked labels, None where the method takes none."""
        if self.labels == "required" and y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: it "
                "learns from labels, call fit(X, y)"
            )
        return None if y is None or self.labels == "none" else check_labels(y, rows)

    def transform(self, X: ArrayLike) -> NDArray[np.int8]:
        """Compute codes as -1 and +1.

        Parameters
        ----------
        X : array of shape (n, dimensions)
            Features, one row per image.

        Returns
        -------
        codes : ndarray of int8, shape (n, bits)
        """
        features = self._check_features(X)
        codes = np.empty((len(features), self.bits), np.int8)
        for rows in spans(len(features), BATCH_ROWS):
            codes[rows] = sgn(self._outputs(features[rows]))
        return codes

    def outputs(self, X: ArrayLike) -> NDArray[np.float32]:
        """Compute the real values whose signs are the codes.

        As the `values` of a query they rank stored codes more finely than Hamming distances do:
        see `ddh.codes.search_asymmetric` and `ddh.index.Index.search`.

        Parameters
        ----------
        X : array of shape (n, dimensions)
            Features, one row per image.

        Returns
        -------
        values : ndarray of float32, shape (n, bits)
            `transform` is +1 where a value is 0 or more, else -1.
        """
        features = self._check_features(X)
        values = np.empty((len(features), self.bits), np.float32)
        for rows in spans(len(features), BATCH_ROWS):
            values[rows] = as_float32(self._outputs(features[rows]))
        return values

    def _check_features(self, X: ArrayLike) -> Floats:
        columns = self._fitted_columns()
        features = check_features(X)
        if features.shape[1] != columns:
            raise InputError(
                f"X has {features.shape[1]} features, but {type(self).__name__} is expecting "
                f"{columns} features as input: it was fitted on {columns} dimensions"
            )
        return features

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Compute packed codes, uint8 (n, ceil(bits / 8)); `ddh.codes` documents the bit order."""
        return pack(self.transform(X))

    @property
    def _n_features_out(self) -> int:
        """Columns of `transform`, for `get_feature_names_out` and with it `set_output`."""
        self._fitted_columns()
        return int(self.bits)

    def _fitted_columns(self) -> int:
        if not hasattr(self, "n_features_in_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self.n_features_in_

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.required = self.labels == "required"
        tags.transformer_tags.preserves_dtype = []  # codes are int8
        return tags

    def _state(self) -> tuple[dict[str, Any], storage.Arrays]:
        """Fitted attributes (names that end with `_`) as (scalars, arrays)."""
        fitted = {k: v for k, v in vars(self).items() if k.endswith("_") and not k.startswith("_")}
        arrays = {k: v for k, v in fitted.items() if isinstance(v, np.ndarray)}
        return {k: v for k, v in fitted.items() if k not in arrays}, arrays

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
        """Write a model folder that `ddh.load` opens; it holds no pickle.

        Parameters
        ----------
        path
            Folder for `model.json` and `model.safetensors`.

        Returns
        -------
        model_id : str
            Digest of everything in the model.
        """
        self._loaded_id = None
        return storage.write(path, *self._description())

    @property
    def model_id(self) -> str:
        """Id of the model: the one that it was loaded with, or will be saved with."""
        return self._loaded_id or storage.digest(*storage.serialise(*self._description()))

    @classmethod
    def _from_saved(cls, description: dict[str, Any], arrays: storage.Arrays) -> Self:
        try:
            settings = description["settings"]
            names = cls.renamed_settings
            model = cls(**{names.get(name, name): value for name, value in settings.items()})
            model._restore(description["fitted"], arrays)
            outputs = model._try()
        except DDHError:
            raise
        except Exception as error:
            raise ModelError(
                f"this {cls.__name__} model is damaged, or of another version of the library "
                f"({error!r})"
            ) from error
        bits = description["bits"]
        if outputs.shape != (1, bits) or bits != model.bits or not np.isfinite(outputs).all():
            raise ModelError(f"this {cls.__name__} model is damaged: it does not give {bits} bits")
        return model

    def _try(self) -> Floats:
        """Outputs of one row, which a damaged model does not give."""
        return self._outputs(np.ones((1, self._fitted_columns()), np.float32))


class LinearHasher(Hasher):
    """A method whose codes are sgn((x - mean_) @ projection_)."""

    mean_: Floats = field(init=False)
    projection_: Floats = field(init=False)

    def _outputs(self, X: Floats) -> Floats:
        return (X - self.mean_) @ self.projection_
