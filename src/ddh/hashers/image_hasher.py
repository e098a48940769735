"""A hasher that reads pictures: a backbone before its hash functions, encoded and saved with it."""

import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.arrays import sgn
from ddh._core.errors import InputError, ModelError
from ddh._core.lazy import needs_torch
from ddh.backbones import ExportedNetwork, Network, OnnxNetwork, rebuild
from ddh.codes import pack
from ddh.hashers import storage
from ddh.hashers.base import Floats, Hasher, as_float32, check_features
from ddh.images import Failure, ImageSource, Preprocessing, is_images, open_images
from ddh.train.device import device_type
from ddh.train.features import Extractor, Features, Pictures, extract
from ddh.train.run_folder import Run, run_folder
from ddh.train.settings import DEPTHS, RENAMED, Depth, current_names

if TYPE_CHECKING:
    import torch

BACKBONE = "backbone."
ONNX_FILE = BACKBONE + "onnx"  # bytes of an exported network


@dataclass(frozen=True)
class EncodedBatch:
    """Codes of the pictures `indices` of a source, and the pictures it could not read.

    `codes` are packed; `outputs` are the real values (n, bits) whose signs they are, and
    `features` (n, dimensions) are what the network gives to the hash functions.
    """

    indices: NDArray[np.int64]
    codes: NDArray[np.uint8]
    outputs: NDArray[np.float32]
    features: NDArray[np.float32]
    failures: list[Failure]


class ImageHasher(Hasher):
    """A method that is fitted on pictures or on features, and encodes the same kind."""

    depth: Depth = "head"
    device: str = "auto"
    renamed_settings = RENAMED
    _encoding_device: str | None = field(init=False, default=None)
    _extractor: Extractor | None = field(init=False, default=None)

    def _check(self, pictures: bool) -> None:
        """Find a wrong setting before the long work, not after it."""
        device_type(self.device)
        if self.depth not in DEPTHS:
            raise InputError(f"depth is one of {', '.join(DEPTHS)}, not {self.depth!r}")
        if self.depth != "head" and not pictures:
            raise InputError(f"depth {self.depth!r} trains a network: fit on images, not features")

    @abstractmethod
    def _create_backbone(self, source: ImageSource, run: Run) -> "Network":
        """The network whose features are learned from."""

    @abstractmethod
    def _learn(
        self, features: Features, y: NDArray[np.int64] | None, pictures: Pictures | None, run: Run
    ) -> None:
        """Learn from features, and the pictures that they are of; trains the backbone in place."""

    def _views(self) -> int:
        """Random views per picture to take features of."""
        return 0

    def _extract(self, backbone: "Network", source: ImageSource, run: Run) -> Features:
        folder, resume = run.folder, run.resume
        views, device = self._views(), self.device
        return extract(backbone, source, views=views, device=device, folder=folder, resume=resume)

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> Self:
        """Learn codes from images or features.

        Parameters
        ----------
        X : path, list of paths, or array
            A folder or files of images, an array of images (n, h, w, 3), or features (n, d).
        y : array-like, optional
            Labels: classes or a 0/1 matrix with a column per concept.
        checkpoint_dir : path, optional
            Folder for features, graph and checkpoints of a long run. What we have written there
            is deleted when the run has ended.
        resume : bool
            Continue with what an interrupted run has left in `checkpoint_dir`.

        Returns
        -------
        self
        """
        self._check_code()
        self._check(is_images(X))
        directory = None if checkpoint_dir is None else Path(checkpoint_dir)
        folder = run_folder(directory, resume, self.random_state)
        with self._unless_it_fails(), folder as run:
            self.seed_, pictures = run.seed, None
            if is_images(X):
                source = open_images(X)
                targets = self._targets(y, len(source))
                backbone = self._create_backbone(source, run)
                features = self._extract(backbone, source, run)
                pictures = Pictures(backbone, source, features.usable)
            else:
                values = check_features(X, least_rows=2, half=True)
                targets = self._targets(y, len(values))
                features = Features(values, np.arange(len(values)))
            self.n_features_in_, self._loaded_id = features.values.shape[1], None
            self.skipped_ = [vars(failure) for failure in features.failures]
            y = None if targets is None else targets[features.usable]
            self._learn(features, y, pictures, run)
        self._set_backbone(None if pictures is None else pictures.backbone)
        return self

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        raise AssertionError("methods on pictures have a fit of their own")

    def encode_on(self, device: str) -> None:
        """Encode on `device` from now on; unlike the setting `device` it is not saved."""
        self._encoding_device, self._extractor = device, None

    def _try(self) -> Floats:
        self.encode_on("cpu")  # the model may have been made for a device that is not here
        outputs = super()._try()
        self._encoding_device = None
        return outputs

    def _set_backbone(self, backbone: "Network | None") -> None:
        """The network before the hash functions; None for a model of features."""
        self._backbone, self._extractor = backbone, None

    def transform(self, X: Any) -> NDArray[np.int8]:
        """Codes of pictures or ready features as -1 and +1, int8 (n, bits).

        A picture that cannot be read is an error here; `encode_images` reports and goes on.
        """
        return sgn(self.outputs(X)) if is_images(X) else super().transform(X)

    def outputs(self, X: Any) -> NDArray[np.float32]:
        """Real values of pictures or ready features whose signs are the codes, float32 (n, bits).

        A picture that cannot be read is an error here; `encode_images` reports and goes on.
        """
        if not is_images(X):
            return super().outputs(X)
        source = open_images(X)
        values = np.empty((len(source), self.bits), np.float32)
        for batch in self.encode_images(source):
            if batch.failures:
                raise InputError(f"{batch.failures[0].name}: {batch.failures[0].reason}")
            values[batch.indices] = batch.outputs
        return values

    def encode_images(self, images: Any, batch_size: int | None = None) -> Iterator[EncodedBatch]:
        """Codes, outputs and features batch by batch, bad files reported beside them.

        For folders of any size; all come from one pass of the network.
        """
        columns = self._fitted_columns()
        if self._backbone is None:
            raise InputError(
                f"this model was fitted on ready features of {columns} dimensions; "
                "give such features, or fit a model on images"
            )
        if self._extractor is None:
            self._extractor = Extractor(self._backbone, self._encoding_device or self.device)
        for batch in self._extractor.stream(open_images(images), batch_size=batch_size):
            outputs = as_float32(self._outputs(batch.features))
            codes = pack(sgn(outputs))
            yield EncodedBatch(batch.indices, codes, outputs, batch.features, batch.failures)

    def _state(self) -> tuple[dict[str, Any], storage.Arrays]:
        scalars, arrays = super()._state()
        network = self._backbone
        if network is None:
            return scalars, arrays
        # Weights that come with a package are named by their digest, not copied.
        packaged = network.origin.startswith("imagenet")
        packaged = packaged and not isinstance(network, ExportedNetwork)
        scalars["backbone"] = {
            "name": network.name,
            "origin": network.origin,
            "options": network.options(),
            "preprocessing": network.preprocessing.to_dict(),
            "packaged": packaged,
        }
        if isinstance(network, OnnxNetwork):
            scalars["backbone"]["encoder"] = network.encoder
            if isinstance(network, ExportedNetwork):
                arrays[ONNX_FILE] = np.frombuffer(network.content, np.uint8)
        elif not packaged:
            for name, tensor in network.state_dict().items():
                arrays[BACKBONE + name] = tensor.detach().cpu().numpy()
        return scalars, arrays

    def _restore(self, scalars: dict[str, Any], arrays: storage.Arrays) -> None:
        described = scalars.get("backbone")
        if "settings_" in scalars:
            scalars = scalars | {"settings_": current_names(scalars["settings_"])}
        own = {name: array for name, array in arrays.items() if not name.startswith(BACKBONE)}
        super()._restore({k: v for k, v in scalars.items() if k != "backbone"}, own)
        self._set_backbone(None if described is None else _rebuilt(described, arrays))


def tensors_below(arrays: storage.Arrays, prefix: str) -> "dict[str, torch.Tensor]":
    """Arrays whose names begin with a prefix, without it, as tensors."""
    import torch

    return {
        name.removeprefix(prefix): torch.from_numpy(array.copy())
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _rebuilt(described: dict[str, Any], arrays: storage.Arrays) -> "Network":
    """The backbone of a saved model, from its own arrays or from the package it came with."""
    preprocessing = Preprocessing.from_dict(described["preprocessing"])
    if "encoder" in described:  # none: a model of torch
        file = arrays.get(ONNX_FILE)
        if file is None:
            encoder = OnnxNetwork(described["encoder"])
        else:
            encoder = ExportedNetwork(file.tobytes())
        encoder.preprocessing = preprocessing
        _check_origin(encoder, described["origin"])
        return encoder
    with needs_torch("this model"):
        import torch

    with torch.random.fork_rng(devices=[]):
        network = rebuild(described["name"], preprocessing.size, described["options"])
    if described["packaged"]:
        network.load_imagenet()  # type: ignore[operator]
        _check_origin(network, described["origin"])
    else:
        try:
            network.load_state_dict(tensors_below(arrays, BACKBONE))
        except RuntimeError as error:
            raise ModelError(f"the weights of the backbone do not fit it: {error}") from error
        network.origin = described["origin"]
    network.preprocessing = preprocessing
    return network.eval()


def _check_origin(network: "Network", expected: str) -> None:
    if network.origin != expected:
        raise ModelError(
            f"this model needs the weights {expected} of {network.name}, installed are "
            f"{network.origin}"
        )
