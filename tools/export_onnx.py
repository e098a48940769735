"""Make the networks that travel with the package: EfficientNet-Lite0 as ONNX, float and int8.

    python tools/export_onnx.py --calibration photos/ --calibration more/ src/ddh/backbones/networks

Both take uint8 pixels (n, height, width, 3), as `Preprocessing.apply` gives them, and return float
features (n, 1280). The graph is written node by node, batch norms folded into the convolutions:

- `efficientnet-lite0.onnx`: weights stored in half precision and computed with in single;
- `efficientnet-lite0-int8.onnx`: weights and activations in 8 bits (quantise-dequantise pairs,
  which ONNX Runtime fuses into integer kernels). Weights have a scale per channel, activations
  one per tensor, whose range is the one of least squared error on the calibration pictures. The
  bias of each convolution is corrected for the mean error that rounding leaves in its outputs.
  Pixels need no rounding: (pixel - 127) / 128 is what the network takes.

Needs `pip install 'ddh[train]' onnx`.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ddh.backbones import create, fold_batch_norm
from ddh.backbones.variants import lite_preprocessing
from ddh.images import load_batches, open_images

NAME, DIMENSIONS = "efficientnet-lite0", 1280
OPSET, IR_VERSION = 13, 8
LEVELS, WEIGHT_LEVELS = 255, 127
BATCH = 32
BINS = 2048
Floats = NDArray[np.float32]
Pixels = NDArray[np.uint8]


@dataclass
class Conv:
    """A convolution with its folded batch norm; `relu6` clips its outputs."""

    name: str
    source: str
    weight: Floats
    bias: Floats
    stride: int
    groups: int
    relu6: bool


@dataclass
class Add:
    name: str
    first: str
    second: str


@dataclass
class Quantisation:
    """Scale and zero point per activation, and corrected biases."""

    scales: dict[str, tuple[float, int]]
    biases: dict[str, Floats]


def layers_of(network: Any) -> list[Conv | Add]:
    """The layers of an EfficientNet-Lite, from the tensor "pixels" on, in order."""
    from torch import nn

    found: list[Conv | Add] = []

    def conv(name: str, module: Any, source: str) -> str:
        layer = next(part for part in module if isinstance(part, nn.Conv2d))
        relu6 = any(isinstance(part, nn.ReLU6) for part in module)
        weight, bias = (value.detach().numpy() for value in (layer.weight, layer.bias))
        found.append(Conv(name, source, weight, bias, layer.stride[0], layer.groups, relu6))
        return name

    x = conv("stem", network.stem, "scaled")
    for number, stage in enumerate(network.stages):
        for place, block in enumerate(stage):
            start, prefix = x, f"stage{number}.{place}"
            if not isinstance(block.expand, nn.Identity):
                x = conv(f"{prefix}.expand", block.expand, x)
            x = conv(f"{prefix}.depthwise", block.depthwise, x)
            x = conv(f"{prefix}.project", block.project, x)
            if block.shortcut:
                found.append(Add(f"{prefix}.sum", start, x))
                x = f"{prefix}.sum"
    conv("head", network.head, x)
    return found


class Graph:
    """An ONNX graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str, **options: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **options))
        return output

    def model(self, outputs: Sequence[str]) -> Any:
        pixels = helper.make_tensor_value_info(
            "pixels", TensorProto.UINT8, ["n", "height", "width", 3]
        )
        shapes = [
            ["n", DIMENSIONS] if n == "features" else ["n", None, None, None] for n in outputs
        ]
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(outputs, shapes, strict=True)
        ]
        graph = helper.make_graph(self.nodes, NAME, [pixels], values, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version, model.producer_name = IR_VERSION, "ddh"
        onnx.checker.check_model(model)
        return model


def build(
    layers: Sequence[Conv | Add],
    quantisation: Quantisation | None = None,
    *,
    half: bool = False,
    outputs: Sequence[str] = ("features",),
) -> Any:
    """The layers as an ONNX model; with `half`, weights are stored in half precision."""
    graph = Graph()
    graph.node("Transpose", ["pixels"], "channels", perm=[0, 3, 1, 2])
    graph.constant("pixel_scale", np.float32(1 / 128))
    graph.constant("pixel_zero", np.uint8(127))
    graph.node("DequantizeLinear", ["channels", "pixel_scale", "pixel_zero"], "scaled")
    graph.constant("zero", np.float32(0))
    graph.constant("six", np.float32(6))
    quantised = {"scaled": 1 / 128}  # scales of the tensors that are quantised

    def weights(name: str, value: Floats) -> str:
        if not half:
            return graph.constant(name, value)
        graph.constant(f"{name}.half", value.astype(np.float16))
        return graph.node("Cast", [f"{name}.half"], name, to=TensorProto.FLOAT)

    def rounded(layer: Conv) -> tuple[str, str]:
        assert quantisation is not None
        W, bias = layer.weight, quantisation.biases[layer.name]
        scale = np.abs(W).max(axis=(1, 2, 3)) / WEIGHT_LEVELS
        # a channel of zeros still has a bias, which must fit into 32 bits
        scale = np.maximum(scale, np.abs(bias) / quantised[layer.source] / 2**30)
        scale = np.maximum(scale, 1e-12).astype(np.float32)
        codes = np.rint(W / scale[:, None, None, None]).astype(np.int8)
        bias_scale = (scale * np.float32(quantised[layer.source])).astype(np.float32)
        bias_codes = np.rint(bias / bias_scale).clip(-(2**31), 2**31 - 1).astype(np.int32)
        names = []
        for part, values, factor in (("weight", codes, scale), ("bias", bias_codes, bias_scale)):
            name = f"{layer.name}.{part}"
            graph.constant(f"{name}.codes", values)
            graph.constant(f"{name}.scale", factor)
            graph.constant(f"{name}.zero", np.zeros(len(factor), values.dtype))
            inputs = [f"{name}.codes", f"{name}.scale", f"{name}.zero"]
            names.append(graph.node("DequantizeLinear", inputs, name, axis=0))
        return names[0], names[1]

    def activation(name: str, produced: str) -> None:
        """Round a tensor to its scale, where it has one."""
        if quantisation is None:
            graph.node("Identity", [produced], name)
            return
        scale, zero = quantisation.scales[name]
        graph.constant(f"{name}.scale", np.float32(scale))
        graph.constant(f"{name}.zero", np.uint8(zero))
        graph.node("QuantizeLinear", [produced, f"{name}.scale", f"{name}.zero"], f"{name}.codes")
        graph.node("DequantizeLinear", [f"{name}.codes", f"{name}.scale", f"{name}.zero"], name)
        quantised[name] = scale

    for layer in layers:
        if isinstance(layer, Add):
            activation(
                layer.name, graph.node("Add", [layer.first, layer.second], f"{layer.name}.raw")
            )
            continue
        if quantisation is None:
            W = weights(f"{layer.name}.weight", layer.weight)
            c = weights(f"{layer.name}.bias", layer.bias)
        else:
            W, c = rounded(layer)
        kernel = layer.weight.shape[-1]
        out = graph.node(
            "Conv", [layer.source, W, c], f"{layer.name}.linear", kernel_shape=[kernel, kernel],
            strides=[layer.stride] * 2, group=layer.groups, auto_pad="SAME_UPPER",
        )  # fmt: skip
        if layer.relu6:
            out = graph.node("Clip", [out, "zero", "six"], f"{layer.name}.clipped")
        activation(layer.name, out)
    if "features" in outputs:
        graph.node("ReduceMean", [layers[-1].name], "features", axes=[2, 3], keepdims=0)
    return graph.model(outputs)


def session(model: Any) -> ort.InferenceSession:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def batches(pixels: Pixels) -> Iterator[Pixels]:
    for start in range(0, len(pixels), BATCH):
        yield pixels[start : start + BATCH]


def histograms(layers: Sequence[Conv | Add], pixels: Pixels) -> dict[str, Any]:
    """Of each activation of the float network: (counts, edges) over the calibration pictures."""
    names = [layer.name for layer in layers]
    run = session(build(layers, outputs=names))
    bounds = {name: [0.0, 0.0] for name in names}
    for part in batches(pixels):
        for name, values in zip(names, run.run(names, {"pixels": part}), strict=True):
            low, high = bounds[name]
            bounds[name] = [min(low, float(values.min())), max(high, float(values.max()))]
    counts = {name: np.zeros(BINS) for name in names}
    for part in batches(pixels):
        for name, values in zip(names, run.run(names, {"pixels": part}), strict=True):
            counts[name] += np.histogram(values, BINS, bounds[name])[0]
    return {name: (counts[name], np.linspace(*bounds[name], BINS + 1)) for name in names}


def best_range(counts: Any, edges: Any) -> tuple[float, int]:
    """(scale, zero point) of the least squared error."""
    middles = (edges[1:] + edges[:-1]) / 2
    best = (np.inf, 1.0, 0)
    shares = np.linspace(0.3, 1.0, 36)
    for low in edges[0] * shares if edges[0] < 0 else [0.0]:
        for high in edges[-1] * shares:
            scale = (high - low) / LEVELS
            zero = int(np.rint(-low / scale))
            codes = np.clip(np.rint(middles / scale) + zero, 0, LEVELS)
            error = float((counts * ((codes - zero) * scale - middles) ** 2).sum())
            best = min(best, (error, scale, zero))
    return best[1], best[2]


def quantise(layers: Sequence[Conv | Add], found: dict[str, Any], pixels: Pixels) -> Quantisation:
    """Ranges from `histograms`, and biases corrected one convolution after another."""
    scales = {name: best_range(*histogram) for name, histogram in found.items()}
    convs = {k: layer for k, layer in enumerate(layers) if isinstance(layer, Conv)}
    result = Quantisation(scales, {conv.name: conv.bias for conv in convs.values()})
    wanted = means(build(layers, outputs=[f"{c.name}.linear" for c in convs.values()]), pixels)
    for place, conv in convs.items():
        name = f"{conv.name}.linear"
        got = means(build(layers[: place + 1], result, outputs=[name]), pixels)
        result.biases[conv.name] = conv.bias + (wanted[name] - got[name])
    return result


def means(model: Any, pixels: Pixels) -> dict[str, Floats]:
    """Mean per channel of each output of a model."""
    run = session(model)
    names = [output.name for output in run.get_outputs()]
    totals = dict.fromkeys(names, np.zeros(()))
    for part in batches(pixels):
        for name, values in zip(names, run.run(names, {"pixels": part}), strict=True):
            totals[name] = totals[name] + values.mean(axis=(2, 3), dtype=np.float64).sum(axis=0)
    return {name: (total / len(pixels)).astype(np.float32) for name, total in totals.items()}


def quantisation_of(model: Any) -> Quantisation:
    """Scales and biases of a quantised model, to build it again from the weights alone."""
    arrays = {array.name: numpy_helper.to_array(array) for array in model.graph.initializer}
    scales, biases = {}, {}
    for name, array in arrays.items():
        layer, _, kind = name.removesuffix(".scale").rpartition(".")
        if name.endswith(".bias.scale"):
            biases[layer] = (arrays[f"{layer}.bias.codes"] * array.astype(np.float64)).astype(
                np.float32
            )
        elif name.endswith(".scale") and kind != "weight":
            layer = name.removesuffix(".scale")
            scales[layer] = (float(array), int(arrays[f"{layer}.zero"]))
    return Quantisation(scales, biases)


def network_layers() -> list[Conv | Add]:
    """Layers of the default network with its ImageNet weights."""
    network = create(NAME).eval()
    fold_batch_norm(network)
    return layers_of(network)


def sample(folders: Sequence[str], count: int) -> Pixels:
    """So many pictures, evenly from all folders, as the network takes them."""
    found = []
    for folder in folders:
        source = open_images(folder)
        chosen = np.linspace(0, len(source) - 1, count // len(folders)).astype(int)
        for batch in load_batches(source, lite_preprocessing(NAME), BATCH, indices=chosen):
            found.append(batch.pixels)
    return np.concatenate(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", type=Path, help="folder for both files")
    parser.add_argument("--calibration", action="append", required=True, metavar="PICTURES")
    parser.add_argument("--count", type=int, default=128, help="calibration pictures")
    options = parser.parse_args()
    layers, pixels = network_layers(), sample(options.calibration, options.count)
    onnx.save(build(layers, half=True), options.target / f"{NAME}.onnx")
    result = quantise(layers, histograms(layers, pixels), pixels)
    onnx.save(build(layers, result), options.target / f"{NAME}-int8.onnx")


if __name__ == "__main__":
    main()
