"""Codes of uploaded pictures, by the index's own model."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ddh._core.errors import DDHError
from ddh.images import ImageSource, Limits, UnreadableImage, decode
from ddh.serve.settings import Settings

NAME = "the picture"  # file names of uploads are not repeated

Code = NDArray[np.uint8]


class InMemoryImages(ImageSource):
    """Image files in memory."""

    def __init__(self, files: Sequence[bytes], limits: Limits) -> None:
        self._files, self._limits = files, limits

    @property
    def names(self) -> Sequence[str]:
        return [NAME] * len(self._files)

    def read(self, i: int) -> Image.Image:
        return decode(self._files[i], name=NAME, limits=self._limits)

    def read_reduced(self, i: int, at_least: int) -> Image.Image:
        return decode(self._files[i], name=NAME, limits=self._limits, at_least=at_least)

    def take(self, indices: Iterable[int]) -> "InMemoryImages":
        return InMemoryImages([self._files[i] for i in indices], self._limits)


class Encoder:
    """A model that is loaded when the first picture arrives. For one thread."""

    def __init__(self, folder: Path, model_id: str | None, settings: Settings) -> None:
        self._folder, self._model_id, self._device = folder, model_id, settings.device
        self._limits = Limits(settings.megapixels, settings.body_bytes)
        self._model: Any = None

    def encode(self, files: Sequence[bytes]) -> list[Code | Exception]:
        """The code of each picture, or why it has none."""
        if self._model is None:
            from ddh.hashers import load_image_encoder

            self._model = load_image_encoder(
                self._folder, device=self._device, model_id=self._model_id
            )
        results: list[Code | Exception] = [DDHError("not encoded")] * len(files)
        images = InMemoryImages(files, self._limits)
        for batch in self._model.encode_images(images, batch_size=len(files)):
            for position, code in zip(batch.indices.tolist(), batch.codes, strict=True):
                results[position] = code
            for failure in batch.failures:
                results[failure.index] = UnreadableImage(NAME, failure.reason)
        return results


def encodes_pictures(folder: Path, model_id: str | None) -> bool:
    """Whether a folder holds this model and it reads pictures, without loading torch or weights."""
    from ddh.hashers import storage

    description, _, found = storage.read(folder)
    return found == model_id and bool(description.get("fitted", {}).get("backbone"))
