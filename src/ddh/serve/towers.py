"""A CLIP-style pair of ONNX networks: an image tower and a text tower into one space.

The folder holds `vision_model.onnx`, `text_model.onnx` and `tokenizer.json`, as such pairs are
usually exported, here or in its folder `onnx`; `preprocessor_config.json` may give the mean and the
deviation of pixels, which are CLIP's otherwise.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ddh._core.arrays import l2_normalize
from ddh._core.errors import InputError, MissingDependency

Vectors = NDArray[np.float32]

FILES = ("vision_model.onnx", "text_model.onnx", "tokenizer.json")
CLIP_MEAN, CLIP_DEVIATION = (
    (0.48145466, 0.4578275, 0.40821073),
    (0.26862954, 0.26130258, 0.27577711),
)
SIZE = 224  # of the image tower's input, where it does not say
MAX_TOKENS = 77
EMBEDDINGS = "embed"  # in the name of the output, where there are several
HASHED = 1 << 20  # bytes of each file that go into the id


class Towers:
    """Unit vectors of pictures and of texts, which can be compared. For one thread at a time."""

    def __init__(self, folder: Path) -> None:
        vision, text, words = (_find(folder, name) for name in FILES)
        try:
            from onnxruntime import InferenceSession
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise MissingDependency(
                f'searching by text needs {error.name}: pip install "ddh[text]"'
            ) from error
        providers = ["CPUExecutionProvider"]
        try:
            self._vision = InferenceSession(str(vision), providers=providers)
            self._text = InferenceSession(str(text), providers=providers)
            self._tokenizer = Tokenizer.from_file(str(words))
        except Exception as error:  # these libraries have errors of their own
            raise InputError(f"{folder} is not a pair of image and text tower: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        mean, deviation = _pixel_scale(folder)
        self._mean, self._deviation = np.float32(mean), np.float32(deviation)
        side = self._vision.get_inputs()[0].shape[-1]
        self.size = side if isinstance(side, int) else SIZE
        self.id = _digest(vision, text, words)

    def pictures(self, images: list[Image.Image]) -> Vectors:
        """Unit vectors of upright RGB pictures."""
        pixels = np.stack([self._prepare(image) for image in images])
        name = self._vision.get_inputs()[0].name
        return _embeddings(self._vision, {name: pixels})

    def text(self, text: str) -> Vectors:
        """The unit vector of a text."""
        ids = np.array([self._tokenizer.encode(text).ids], np.int64)
        if not ids.size:
            raise InputError("this text has no word that the model knows")
        inputs = {entry.name: entry for entry in self._text.get_inputs()}
        length = inputs["input_ids"].shape[-1] if "input_ids" in inputs else None
        mask = np.ones_like(ids)
        if isinstance(length, int) and length > ids.shape[1]:
            missing = ((0, 0), (0, length - ids.shape[1]))
            ids, mask = np.pad(ids, missing), np.pad(mask, missing)
        given = {"input_ids": ids, "attention_mask": mask}
        vector: Vectors = _embeddings(self._text, {n: given[n] for n in inputs if n in given})[0]
        return vector

    def _prepare(self, image: Image.Image) -> NDArray[np.float32]:
        """The middle square of a picture, scaled as the image tower expects it."""
        times = self.size / min(image.size)
        wide, high = (max(self.size, round(side * times)) for side in image.size)
        image = image.resize((wide, high), Image.Resampling.BICUBIC)
        left, top = (wide - self.size) // 2, (high - self.size) // 2
        square = image.crop((left, top, left + self.size, top + self.size))
        pixels = (np.asarray(square, np.float32) / 255 - self._mean) / self._deviation
        return np.ascontiguousarray(pixels.transpose(2, 0, 1), np.float32)


def _find(folder: Path, name: str) -> Path:
    for place in (folder / name, folder / "onnx" / name):
        if place.is_file():
            return place
    raise InputError(f"{folder} holds no {name}: a text model is a folder with {', '.join(FILES)}")


def _pixel_scale(folder: Path) -> tuple[Any, Any]:
    try:
        said = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
        mean, deviation = said["image_mean"], said["image_std"]
    except (OSError, ValueError, KeyError, TypeError):
        return CLIP_MEAN, CLIP_DEVIATION
    if len(mean) != 3 or len(deviation) != 3:
        raise InputError(f"preprocessor_config.json of {folder} names no mean of three channels")
    return mean, deviation


def _embeddings(session: Any, inputs: dict[str, Any]) -> Vectors:
    """The unit rows of the output that holds one vector per input."""
    outputs = [output.name for output in session.get_outputs()]
    named = [name for name in outputs if EMBEDDINGS in name] or outputs
    found = session.run(named[:1], inputs)[0]
    if found.ndim != 2:
        raise InputError(f"the output {named[0]} of the text model is no vector per input")
    return np.asarray(l2_normalize(found.astype(np.float32)), np.float32)


def _digest(*files: Path) -> str:
    """An id of the pair: the sizes and first bytes of its files."""
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        with file.open("rb") as stream:
            digest.update(f"{file.stat().st_size}\0".encode() + stream.read(HASHED))
    return digest.hexdigest()
