"""Networks that encode on ONNX Runtime, without torch: the default one, and exported ones.

`tools/export_onnx.py` makes the files in `networks/` from the weights of the pip package;
`ddh.backbones.onnx_export` makes a file of any backbone.
"""

import hashlib
import json
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError, ModelError, optional
from ddh._core.threads import omp_threads
from ddh.backbones.variants import checked_file, file_digest, lite_preprocessing
from ddh.images.preprocessing import Preprocessing

#: Encoders of the bundled network: its file.
NETWORKS = {
    "onnx-int8": "efficientnet-lite0-int8.onnx",
    "onnx": "efficientnet-lite0.onnx",
}
NAME, DIMENSIONS = "efficientnet-lite0", 1280
#: Suffix of exported networks, and the key of their description in the metadata of the file.
SUFFIX, METADATA = ".onnx", "ddh"


class OnnxNetwork:
    """EfficientNet-Lite0 with its ImageNet weights, for encoding only.

    Parameters
    ----------
    encoder : {"onnx", "onnx-int8"}
        In floating point, or with weights and activations in 8 bits, which is faster and a little
        less exact.
    size : int, optional
        Side of the input in pixels, 224 by default.

    Examples
    --------
    >>> import numpy as np
    >>> network = OnnxNetwork()
    >>> network(np.zeros((1, 224, 224, 3), np.uint8)).shape
    (1, 1280)
    """

    name = NAME
    dimensions = DIMENSIONS
    _remedy = "install ddh again"

    def __init__(self, encoder: str = "onnx", size: int | None = None) -> None:
        if encoder not in NETWORKS:
            raise InputError(f"there is no encoder {encoder!r}; there are: {', '.join(NETWORKS)}")
        self.encoder = encoder
        self.preprocessing = lite_preprocessing(NAME, size)

    @property
    def path(self) -> Path:
        """The network's file in the package."""
        return Path(str(files("ddh.backbones") / "networks" / NETWORKS[self.encoder]))

    @cached_property
    def origin(self) -> str:
        """Where the weights come from, with a digest of the file."""
        if not self.path.is_file():
            raise ModelError(f"{self.path} is missing: install ddh again")
        return f"imagenet {self.encoder} sha256:{file_digest(self.path)[:16]}"

    def options(self) -> dict[str, Any]:
        """As of other backbones: nothing here shapes the network."""
        return {}

    @cached_property
    def session(self) -> Any:
        """The network in ONNX Runtime, on OMP_NUM_THREADS threads or as many as there are CPUs."""
        onnxruntime = optional(
            "onnxruntime",
            "this network runs on ONNX Runtime, which is not installed: pip install onnxruntime",
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = omp_threads()
        # threads that decode pictures need the CPUs that would otherwise spin between layers
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            return onnxruntime.InferenceSession(
                self._model(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its own exceptions have no common base
            raise ModelError(f"{self.path} cannot be used: {error}; {self._remedy}") from error

    def _model(self) -> Path | bytes:
        """The ONNX model, as ONNX Runtime takes it."""
        return self.path

    def __call__(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Features (n, dimensions) of uint8 (n, size, size, 3) from `preprocessing.apply`."""
        size = self.preprocessing.size
        if pixels.shape[1:] != (size, size, 3):
            raise InputError(
                f"{self.name} takes pictures of {size} x {size} pixels, got {pixels.shape}: "
                "resize them with preprocessing.apply"
            )
        found = self.session.run(None, {"pixels": np.ascontiguousarray(pixels)})[0]
        return np.asarray(found, np.float32)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "session"}


class ExportedNetwork(OnnxNetwork):
    """A backbone that `ddh export` has written as ONNX, with its weights and its preprocessing.

    Parameters
    ----------
    content : bytes
        The ONNX file.
    path : path, optional
        Where it is, for messages.

    Examples
    --------
    >>> ExportedNetwork.read("icons.onnx").dimensions  # doctest: +SKIP
    512
    """

    _remedy = "export it again with `ddh export`"
    path = Path("the network of the model")

    def __init__(self, content: bytes, path: str | Path | None = None) -> None:
        self.encoder, self.content = "onnx", content
        if path is not None:
            self.path = Path(path)
        metadata = self.session.get_modelmeta().custom_metadata_map
        try:
            described = json.loads(metadata[METADATA])
            self.name, self.dimensions = described["name"], described["dimensions"]
            self.preprocessing = Preprocessing.from_dict(described["preprocessing"])
            digest = hashlib.sha256(content).hexdigest()
            self.origin = f"{described['origin']}, onnx sha256:{digest[:16]}"
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"{self.path} does not say what pictures it takes: make it with `ddh export`"
            ) from error

    @classmethod
    def read(cls, path: str | Path, size: int | None = None) -> Self:
        """The network of a file; `size`, where it is given, must be that of its input."""
        network = cls(checked_file(path).read_bytes(), path)
        if size not in (None, network.preprocessing.size):
            raise InputError(
                f"{path} takes pictures of {network.preprocessing.size} pixels: for others, export "
                f"it again with `ddh export --size {size}`"
            )
        return network

    def _model(self) -> bytes:
        return self.content
