"""Codes of uploaded pictures, by the index's own model."""

from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import DDHError
from ddh.images import Limits, Preprocessing, UnreadableImage
from ddh.images.isolated import IsolatedDecoder
from ddh.images.sources import PreparedArray
from ddh.serve.settings import Settings

NAME = "the picture"  # file names of uploads are not repeated
SLOW_MEGAPIXELS = 0.3  # of formats that are decoded in Python: a second or two

Code = NDArray[np.uint8]
Pixels = NDArray[np.uint8]


class Encoding(NamedTuple):
    """What a model makes of a picture: its code, the real values whose signs it is, features."""

    code: Code
    values: NDArray[np.float32]
    features: NDArray[np.float32]
    model_id: str | None


class Decoders:
    """Processes that decode uploads, which threads take in turn."""

    def __init__(self, preprocessing: Preprocessing, settings: Settings, processes: int) -> None:
        self.preprocessing = preprocessing
        limits = Limits(settings.megapixels, settings.body_bytes, SLOW_MEGAPIXELS)
        seconds = settings.decode_seconds
        self._all = [IsolatedDecoder(preprocessing, limits, seconds) for _ in range(processes)]
        self._free: SimpleQueue[IsolatedDecoder] = SimpleQueue()
        for decoder in self._all:
            self._free.put(decoder)

    def decode(self, files: Sequence[bytes]) -> list[Pixels | Exception]:
        """The network's input for each file, or why there is none."""
        decoder = self._free.get()
        try:
            return [_decode(decoder, file) for file in files]
        finally:
            self._free.put(decoder)

    def close(self) -> None:
        """End the processes."""
        for decoder in self._all:
            decoder.close()


def _decode(decoder: IsolatedDecoder, file: bytes) -> Pixels | Exception:
    try:
        return decoder.decode(file, NAME)
    except UnreadableImage as error:
        return error


class Encoder:
    """A model that is loaded when the first picture arrives. For one thread."""

    def __init__(self, folder: Path, model_id: str | None, device: str) -> None:
        self._folder, self._model_id, self._device = folder, model_id, device
        self._model: Any = None

    def encode(self, pictures: Sequence[Pixels]) -> list[Encoding | Exception]:
        """The code and outputs of each decoded picture."""
        if self._model is None:
            from ddh.hashers import load_image_encoder

            self._model = load_image_encoder(
                self._folder, device=self._device, model_id=self._model_id
            )
        results: list[Encoding | Exception] = [DDHError("not encoded")] * len(pictures)
        images = PreparedArray(np.stack(pictures))
        for batch in self._model.encode_images(images, batch_size=len(pictures)):
            encoded = zip(batch.codes, batch.outputs, batch.features, strict=True)
            for position, values in zip(batch.indices.tolist(), encoded, strict=True):
                results[position] = Encoding(*values, self._model_id)
        return results


def picture_preprocessing(folder: Path, model_id: str | None) -> Preprocessing | None:
    """How this model prepares pictures; None where it is another one, or reads features."""
    from ddh.hashers import storage

    description, _, found = storage.read(folder)
    backbone = description.get("fitted", {}).get("backbone")
    if found != model_id or not backbone:
        return None
    return Preprocessing.from_dict(backbone["preprocessing"])
