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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ddh.backbones import create, fold_batch_norm

OPSET, IR_VERSION = 13, 8
BATCH = 32
# Activations of at most 127 levels above their zero: products with weights of 8 bits then cannot
# saturate in the 16-bit sums of processors without VNNI.
BINS = 2048
Floats = NDArray[np.float32]


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
    weight_levels: int = 127
    float_convs: frozenset[str] = field(default_factory=frozenset)


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

    def model(self, dimensions: int, outputs: Sequence[str] = ()) -> Any:
        pixels = helper.make_tensor_value_info(
            "pixels", TensorProto.UINT8, ["n", "height", "width", 3]
        )
        features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", dimensions])
        more = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", None, None, None])
            for n in outputs
        ]
        graph = helper.make_graph(
            self.nodes, "efficientnet-lite0", [pixels], [features, *more], self.constants
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version, model.producer_name = IR_VERSION, "ddh"
        onnx.checker.check_model(model)
        return model


def build(
    layers: Sequence[Conv | Add],
    quantisation: Quantisation | None = None,
    *,
    half: bool = False,
    outputs: Sequence[str] = (),
) -> Any:
    """The network as an ONNX model; with `half`, weights are stored in half precision."""
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
        levels = quantisation.weight_levels
        scale = np.abs(W).max(axis=(1, 2, 3)) / levels
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
        if quantisation is None or name not in quantisation.scales:
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
        if quantisation is None or layer.name in quantisation.float_convs:
            bias = layer.bias if quantisation is None else quantisation.biases[layer.name]
            W, c = (
                weights(f"{layer.name}.weight", layer.weight),
                weights(f"{layer.name}.bias", bias),
            )
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
    graph.node("ReduceMean", [layers[-1].name], "features", axes=[2, 3], keepdims=0)
    return graph.model(len(layers[-1].weight), outputs)


def session(model: Any, *, optimise: bool = True) -> ort.InferenceSession:
    options = ort.SessionOptions()
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def batches(pixels: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    for start in range(0, len(pixels), BATCH):
        yield pixels[start : start + BATCH]


def histograms(layers: Sequence[Conv | Add], pixels: NDArray[np.uint8]) -> dict[str, Any]:
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


def best_range(counts: Any, edges: Any, levels: int) -> tuple[float, int]:
    """(scale, zero point) of the least squared error."""
    middles = (edges[1:] + edges[:-1]) / 2
    best = (np.inf, 1.0, 0)
    shares = np.linspace(0.3, 1.0, 36)
    for low in edges[0] * shares if edges[0] < 0 else [0.0]:
        for high in edges[-1] * shares:
            scale = (high - low) / levels
            zero = int(np.rint(-low / scale))
            codes = np.clip(np.rint(middles / scale) + zero, 0, levels)
            error = float((counts * ((codes - zero) * scale - middles) ** 2).sum())
            best = min(best, (error, scale, zero))
    return best[1], best[2]


def quantise(
    layers: Sequence[Conv | Add],
    pixels: NDArray[np.uint8],
    *,
    levels: int = 255,
    weight_levels: int = 127,
    float_convs: frozenset[str] = frozenset(),
    float_outputs: frozenset[str] = frozenset(),
    correct: int = 128,
    found: Any = None,
) -> Quantisation:
    """Ranges by `histograms`, and biases corrected one convolution after another."""
    found = histograms(layers, pixels) if found is None else found
    scales = {n: best_range(*h, levels) for n, h in found.items() if n not in float_outputs}
    biases = {layer.name: layer.bias for layer in layers if isinstance(layer, Conv)}
    result = Quantisation(scales, biases, weight_levels, float_convs)
    if correct:
        some = pixels[np.linspace(0, len(pixels) - 1, correct).astype(int)]
        correct_biases(layers, result, some)
    return result


def correct_biases(
    layers: Sequence[Conv | Add], result: Quantisation, pixels: NDArray[np.uint8]
) -> None:
    """Take the mean error of each convolution's outputs into its bias, one after another."""
    convs = [layer for layer in layers if isinstance(layer, Conv)]
    wanted = means(build(layers, outputs=[f"{c.name}.linear" for c in convs]), convs, pixels)
    for conv in convs:
        got = means(build(layers, result, outputs=[f"{conv.name}.linear"]), [conv], pixels)
        result.biases[conv.name] = conv.bias + (wanted[conv.name] - got[conv.name])


def means(model: Any, convs: Sequence[Conv], pixels: NDArray[np.uint8]) -> dict[str, Floats]:
    """Mean output per channel of convolutions, before clipping."""
    run, totals = session(model), {conv.name: 0.0 for conv in convs}
    names = [f"{conv.name}.linear" for conv in convs]
    for part in batches(pixels):
        for name, values in zip(totals, run.run(names, {"pixels": part}), strict=True):
            totals[name] = totals[name] + values.mean(axis=(2, 3)).sum(axis=0)
    return {name: np.asarray(total / len(pixels), np.float32) for name, total in totals.items()}


def network_layers(name: str = "efficientnet-lite0") -> list[Conv | Add]:
    network = create(name).eval()
    fold_batch_norm(network)
    return layers_of(network)
