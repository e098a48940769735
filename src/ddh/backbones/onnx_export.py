"""Write a backbone of torch as an ONNX file, with all that is needed to encode pictures with it."""

import copy
import io
import json
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ddh._core.atomic import write_atomic
from ddh._core.errors import InputError, ModelError, optional
from ddh.backbones.base import Backbone
from ddh.backbones.onnx_network import METADATA, SUFFIX, ExportedNetwork

OPSET = 17
EXAMPLES = 3  # random pictures that both networks must agree on; one fewer is traced
TOLERANCE = 1e-3  # of the largest feature


def export_onnx(network: Backbone, path: str | Path) -> ExportedNetwork:
    """Write a backbone as ONNX, in single precision, for encoding without torch.

    The file takes uint8 pixels (n, size, size, 3), as `network.preprocessing` makes them. Its
    metadata hold name, preprocessing, dimensions and origin of the network.

    Parameters
    ----------
    network : Backbone
        The network; it is not changed.
    path : path
        The file, which ends in .onnx.

    Returns
    -------
    ExportedNetwork
        The file on ONNX Runtime. On random pixels it agrees with torch; a network that does not
        is a `ModelError`.

    Examples
    --------
    >>> from ddh.backbones import create, export_onnx
    >>> export_onnx(create("auto", "icons.safetensors"), "icons.onnx")  # doctest: +SKIP
    """
    path, size = Path(path), network.preprocessing.size
    if path.suffix != SUFFIX:
        raise InputError(f"the file ends in {SUFFIX}, not in {path.suffix or 'nothing'}")
    module = _FromPixels(copy.deepcopy(network).cpu().float()).eval().requires_grad_(False)
    drawn = np.random.default_rng(0).integers(0, 256, (EXAMPLES, size, size, 3), dtype=np.uint8)
    pixels = torch.from_numpy(drawn)
    content = _traced(module, pixels[1:], _description(network))
    exported = ExportedNetwork(content, path)
    expected = module(pixels).numpy()
    if np.abs(exported(drawn) - expected).max() > TOLERANCE * np.abs(expected).max():
        raise ModelError(f"{network.name} gives other features as ONNX than it does on torch")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content)
    return exported


class _FromPixels(nn.Module):
    """The network on pixels that are not normalised yet."""

    def __init__(self, network: Backbone) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.network(self.network.normalise(pixels))
        return features


def _description(network: Backbone) -> str:
    described = {
        "name": network.name,
        "options": network.options(),
        "preprocessing": network.preprocessing.to_dict(),
        "dimensions": network.dimensions,
        "origin": network.origin,
    }
    return json.dumps(described, sort_keys=True)


def _traced(module: nn.Module, pixels: Tensor, description: str) -> bytes:
    """The ONNX file of a module for any number of pictures of this size."""
    onnx = optional("onnx", "exporting a network needs onnx: pip install 'ddh[export]'")
    names = ["pixels", "features"]
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the newer exporter needs another package
        torch.onnx.export(
            module, (pixels,), stream,  # type: ignore[arg-type]
            dynamo=False, opset_version=OPSET,
            input_names=names[:1], output_names=names[1:],
            dynamic_axes={name: {0: "n"} for name in names},
        )  # fmt: skip
    model = onnx.load_from_string(stream.getvalue())
    onnx.helper.set_model_props(model, {METADATA: description})
    content: bytes = model.SerializeToString()
    return content
