"""The default network as it travels with the package: it encodes on ONNX Runtime, without torch.

`tools/export_onnx.py` makes the files in `networks/` from the weights of the pip package.
"""

from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError, ModelError
from ddh._core.threads import omp_threads
from ddh.backbones.variants import file_digest, lite_preprocessing

#: Encoders of the bundled network: its file.
NETWORKS = {
    "onnx-int8": "efficientnet-lite0-int8.onnx",
    "onnx": "efficientnet-lite0.onnx",
}
NAME, DIMENSIONS = "efficientnet-lite0", 1280


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
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = omp_threads()
        # threads that decode pictures need the CPUs that would otherwise spin between layers
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            return onnxruntime.InferenceSession(
                self.path, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its own exceptions have no common base
            raise ModelError(f"{self.path} cannot be used: {error}; install ddh again") from error

    def __call__(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Features (n, 1280) of uint8 (n, size, size, 3) from `preprocessing.apply`."""
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
