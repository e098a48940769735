"""Compact features beside the codes: a fixed projection, and one byte per component.

Features are scaled to length 1 and projected on the directions in which a sample of them is
largest (PCA about zero, which keeps inner products, so cosines). Each component has a scale of
its own. A linear model fitted on components z = P x is one of the features: w z = (w P) x.
"""

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.arrays import l2_normalize
from ddh._core.errors import DDHError, InputError
from ddh._core.spans import spans

# The default number: with it the ranking by stored features is never more than 0.002 in mAP below
# that by the features themselves, and no neighbour is lost (`docs/recall.md`).
COMPONENTS = 128
SETTING = "features_transform_"  # with the number of the part
SETTING_CHARACTERS = 60_000  # what Milvus keeps in one value
SAMPLE_ROWS = 4096  # enough to fit the projection
MARGIN = 1.5  # of the range over the largest value of the sample
LEVELS = 127

Stored = NDArray[np.int8]
Vectors = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FeatureTransform:
    """Projection (components, dimensions) with orthonormal rows, and the scale of a step."""

    projection: Vectors
    scales: Vectors

    @classmethod
    def fit(cls, features: ArrayLike, components: int) -> Self:
        """Directions of the largest mean square over a sample of features."""
        from ddh._core.linear_algebra import top_eigenvectors  # SciPy, which no search needs

        sample = check_features(features, None)
        if components > sample.shape[1]:
            raise InputError(
                f"features of {sample.shape[1]} dimensions have at most as many components, "
                f"not {components}"
            )
        unit = l2_normalize(sample[: 8 * SAMPLE_ROWS])
        _, vectors = top_eigenvectors((unit.T @ unit).astype(np.float64), components)
        projection = np.ascontiguousarray(vectors.T, np.float32)
        largest = np.abs(unit @ projection.T).max(axis=0)
        # A direction that the sample does not show still has room for later features.
        largest = np.maximum(largest, largest.max() / LEVELS)
        return cls(projection, (MARGIN * largest / LEVELS).astype(np.float32))

    def encode(self, features: ArrayLike) -> Stored:
        """Features as they are stored, int8 (n, components), which pass through themselves."""
        if getattr(features, "dtype", None) == np.int8:
            stored: Stored = np.asarray(features)
            if stored.ndim != 2 or stored.shape[1] != len(self.scales):
                raise InputError(f"stored features have {len(self.scales)} components")
            return stored
        values = check_features(features, self.projection.shape[1])
        out = np.empty((len(values), len(self.scales)), np.int8)
        for rows in spans(len(values), SAMPLE_ROWS):
            steps = l2_normalize(values[rows]) @ self.projection.T / self.scales
            out[rows] = np.clip(np.rint(steps), -LEVELS, LEVELS)
        return out

    def decode(self, stored: Stored) -> Vectors:
        """Components (..., components) of stored features."""
        return stored * self.scales

    def unit(self, features: ArrayLike) -> Vectors:
        """Components of queries, each scaled to length 1; zeros stay."""
        if getattr(features, "dtype", None) == np.int8:
            return l2_normalize(self.decode(self.encode(features)))
        values = check_features(features, self.projection.shape[1])
        return l2_normalize(values @ self.projection.T)

    def cosines(self, unit: Vectors, stored: Stored) -> NDArray[np.float64]:
        """Cosines (q, n) of queries as `unit` gives them and the stored features of each."""
        components = self.decode(stored)
        length = np.linalg.norm(components, axis=2)
        products = (components @ unit[:, :, None])[:, :, 0]
        cosines = products / np.where(length > 0, length, 1)
        return np.asarray(np.clip(cosines, -1, 1), np.float64)  # rounding goes beyond 1

    def save(self, path: Path) -> None:
        """Write a file that `load` reads."""
        np.savez_compressed(path, projection=self.projection.astype(np.float16), scales=self.scales)

    @classmethod
    def load(cls, path: Path) -> Self:
        """The inverse of `save`."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(arrays["projection"].astype(np.float32), arrays["scales"])

    def as_settings(self) -> dict[str, str]:
        """Text values for an index, which every engine can keep."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, projection=self.projection, scales=self.scales)
        text = base64.b64encode(buffer.getvalue()).decode()
        starts = range(0, len(text), SETTING_CHARACTERS)
        return {f"{SETTING}{i}": text[at : at + SETTING_CHARACTERS] for i, at in enumerate(starts)}

    @classmethod
    def from_settings(cls, settings: dict[str, str]) -> Self | None:
        """The inverse of `as_settings`; None where there is none yet."""
        parts = {name: text for name, text in settings.items() if name.startswith(SETTING)}
        if not parts:
            return None
        try:
            text = "".join(parts[f"{SETTING}{i}"] for i in range(len(parts)))
            with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as arrays:
                return cls(arrays["projection"], arrays["scales"])
        except Exception as error:  # zip files have many ways to be damaged
            raise DDHError(
                "the projection of the stored features is damaged: restore the index from a copy, "
                "or make it again"
            ) from error


def check_features(features: ArrayLike, dimensions: int | None) -> NDArray[Any]:
    """A finite (n, dimensions) array of real numbers."""
    values = np.asarray(features)
    if values.ndim != 2 or values.dtype.kind != "f":
        raise InputError(
            f"features are real numbers, an (n, dimensions) array, not {values.dtype} of shape "
            f"{values.shape}"
        )
    if dimensions is not None and values.shape[1] != dimensions:
        raise InputError(
            f"the features have {values.shape[1]} dimensions and those of the index {dimensions}: "
            "they must come from the same model"
        )
    if not np.isfinite(values).all():
        raise InputError("the features hold NaN or infinity")
    return values
