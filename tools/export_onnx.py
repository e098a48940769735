"""Make the networks that travel with the package: EfficientNet-Lite0 as ONNX, float and int8.

    python tools/export_onnx.py --calibration photos/ --calibration more/ src/ddh/backbones/networks

Both take uint8 pixels (n, height, width, 3), as `Preprocessing.apply` gives them, and return float
features (n, 1280). The graph is written node by node, batch norms folded into the convolutions:

- `efficientnet-lite0.onnx`: weights stored in half precision and computed with in single;
- `efficientnet-lite0-int8.onnx`: weights and activations in 8 bits (quantise-dequantise pairs,
  which ONNX Runtime fuses into integer kernels). Pixels need no rounding: (pixel - 127) / 128 is
  what the network takes. Layer by layer, on calibration pictures:

  1. weights have a scale per output channel, activations one per tensor, of least squared error;
  2. weights are rounded one input after another, and those that are not rounded yet make up for
     the error in the outputs (GPTQ, Frantar et al., ICLR 2023);
  3. biases are corrected for the mean error that is left.

  Calibration pictures must not be queries of what the encoder is judged by.

Needs `pip install 'ddh[export]'`.
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
DAMPING = 0.01  # of the inputs' energy, against over-fitting to the calibration pictures
STEP = 7  # of the activations, one of so many goes into a histogram
PLACES = 128  # per picture, whose inputs are looked at
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
    """What `build` needs for a network in 8 bits.

    Scale and zero point per activation, codes and scales per weight, and biases.
    """

    activations: dict[str, tuple[float, int]]
    weights: dict[str, tuple[NDArray[np.int8], Floats]]
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

    def __init__(self, takes: tuple[str, list[Any]] = ("pixels", ["n", "height", "width", 3])):
        self.takes = takes
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str, **options: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **options))
        return output

    def model(self, outputs: Sequence[str]) -> Any:
        name, shape = self.takes
        taken = helper.make_tensor_value_info(name, TensorProto.UINT8, shape)
        shapes = [
            ["n", DIMENSIONS] if n == "features" else ["n", None, None, None] for n in outputs
        ]
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(outputs, shapes, strict=True)
        ]
        graph = helper.make_graph(self.nodes, NAME, [taken], values, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version, model.producer_name = IR_VERSION, "ddh"
        onnx.checker.check_model(model)
        return model


def _conv(graph: Graph, layer: Conv, inputs: Sequence[str], output: str) -> str:
    kernel = layer.weight.shape[-1]
    return graph.node(
        "Conv", inputs, output, kernel_shape=[kernel, kernel], strides=[layer.stride] * 2,
        group=layer.groups, auto_pad="SAME_UPPER",
    )  # fmt: skip


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
        (codes, scale), bias = quantisation.weights[layer.name], quantisation.biases[layer.name]
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
        scale, zero = quantisation.activations[name]
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
        out = _conv(graph, layer, [layer.source, W, c], f"{layer.name}.linear")
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


def tensors(layers: Sequence[Conv | Add], names: list[str], pixels: Pixels) -> Iterator[Any]:
    """(name, values) of tensors of the float network, batch by batch."""
    run = session(build(layers, outputs=names))
    for part in batches(pixels):
        yield from zip(names, run.run(names, {"pixels": part}), strict=True)


# -- rounding ----------------------------------------------------------------------------------


def histograms(layers: Sequence[Conv | Add], pixels: Pixels) -> dict[str, Any]:
    """Of each activation of the float network: (counts, edges) over the calibration pictures."""
    names = [layer.name for layer in layers]
    bounds = {name: [0.0, 0.0] for name in names}
    for name, values in tensors(layers, names, pixels):
        low, high = bounds[name]
        bounds[name] = [min(low, float(values.min())), max(high, float(values.max()))]
    counts = {name: np.zeros(BINS) for name in names}
    for name, values in tensors(layers, names, pixels):
        counts[name] += np.histogram(values.ravel()[::STEP], BINS, bounds[name])[0]
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


def quantise(layers: Sequence[Conv | Add], pixels: Pixels) -> Quantisation:
    """Round one layer after another, on what the rounded ones before it give."""
    activations = {name: best_range(*found) for name, found in histograms(layers, pixels).items()}
    result = Quantisation(activations, {}, {})
    convs = [f"{layer.name}.linear" for layer in layers if isinstance(layer, Conv)]
    wanted = dict.fromkeys(convs, np.zeros(()))
    for name, values in tensors(layers, convs, pixels):
        wanted[name] = wanted[name] + values.mean(axis=(2, 3), dtype=np.float64).sum(axis=0)
    scales = {"scaled": (1 / 128, 127), **activations}
    codes = {"scaled": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))}
    for place, layer in enumerate(layers):
        scale, zero = scales[layer.name]
        if isinstance(layer, Add):
            parts = [(codes[n], *scales[n]) for n in (layer.first, layer.second)]
            out = sum((c.astype(np.float32) - z) * np.float32(s) for c, s, z in parts)
        else:
            x = Rounded(codes[layer.source], *scales[layer.source])
            rounded = round_weights(layer, x)
            out = convolve(layer, rounded, x)
            error = wanted[f"{layer.name}.linear"] / len(pixels) - out.mean(axis=(0, 2, 3))
            bias = (layer.bias + error).astype(np.float32)
            out += error[:, None, None].astype(np.float32)
            # the bias of a channel must fit into 32 bits, even where its weights are all zero
            least = np.abs(bias) / np.float32(x.scale) / 2**30
            result.weights[layer.name] = rounded[0], np.maximum(rounded[1], least)
            result.biases[layer.name] = bias
            if layer.relu6:
                out = out.clip(0, 6)
        codes[layer.name] = (np.rint(out / scale) + zero).clip(0, LEVELS).astype(np.uint8)
        later = {name for rest in layers[place + 1 :] for name in _sources(rest)}
        codes = {name: values for name, values in codes.items() if name in later}
    return result


def _sources(layer: Conv | Add) -> tuple[str, ...]:
    return (layer.source,) if isinstance(layer, Conv) else (layer.first, layer.second)


@dataclass
class Rounded:
    """A tensor (n, channels, height, width) in 8 bits."""

    codes: Pixels
    scale: float
    zero: int


def convolve(layer: Conv, weights: tuple[Any, Floats], x: Rounded) -> Floats:
    """Outputs of a convolution with rounded weights, before the clip."""
    graph = Graph(("codes", ["n", layer.weight.shape[1] * layer.groups, None, None]))
    graph.constant("scale", np.float32(x.scale))
    graph.constant("zero", np.uint8(x.zero))
    graph.node("DequantizeLinear", ["codes", "scale", "zero"], "x")
    graph.constant("W", (weights[0] * weights[1][:, None, None, None]).astype(np.float32))
    graph.constant("c", layer.bias)
    _conv(graph, layer, ["x", "W", "c"], "y")
    run = session(graph.model(["y"]))
    return np.concatenate([run.run(None, {"codes": part})[0] for part in batches(x.codes)])


def round_weights(layer: Conv, x: Rounded) -> tuple[NDArray[np.int8], Floats]:
    """Codes and scales per output channel, with little error in the outputs of the layer."""
    H = _gram(layer, x)
    groups, inputs = len(H), H.shape[1]
    W = layer.weight.reshape(groups, -1, inputs).astype(np.float64)
    energy = np.einsum("gii->gi", H)
    energy[energy == 0] = 1
    H[:, range(inputs), range(inputs)] = energy + DAMPING * energy.mean(axis=1, keepdims=True)
    scale = _best_scales(W, energy)
    codes = np.empty_like(W)
    U = np.linalg.cholesky(np.linalg.inv(H)).transpose(0, 2, 1)  # H^-1 = U^T U
    for j in range(inputs):
        codes[:, :, j] = np.rint(W[:, :, j] / scale).clip(-WEIGHT_LEVELS, WEIGHT_LEVELS)
        error = (W[:, :, j] - codes[:, :, j] * scale) / U[:, j, j, None]
        W[:, :, j + 1 :] -= error[:, :, None] * U[:, None, j, j + 1 :]
    return codes.reshape(layer.weight.shape).astype(np.int8), scale.ravel().astype(np.float32)


def _best_scales(W: Any, energy: Any) -> Any:
    """Of each output channel: the scale of the least error, weighted by the inputs' energy."""
    peak = np.maximum(np.abs(W).max(axis=2), 1e-10) / WEIGHT_LEVELS
    best, least = peak, np.full(peak.shape, np.inf)
    for share in np.linspace(0.7, 1.0, 16):
        scale = peak * share
        codes = np.rint(W / scale[:, :, None]).clip(-WEIGHT_LEVELS, WEIGHT_LEVELS)
        error = ((W - codes * scale[:, :, None]) ** 2 * energy[:, None]).sum(axis=2)
        best, least = np.where(error < least, scale, best), np.minimum(error, least)
    return best


def _gram(layer: Conv, x: Rounded) -> Any:
    """X^T X of each group's inputs X, at random places of the pictures."""
    kernel, rng = layer.weight.shape[-1], np.random.default_rng(0)
    grown = []
    for length in x.codes.shape[2:]:
        missing = (-(-length // layer.stride) - 1) * layer.stride + kernel - length
        grown.append((max(missing, 0) // 2, max(missing, 0) - max(missing, 0) // 2))
    groups = layer.groups
    inputs = layer.weight.shape[1] * kernel**2
    H = np.zeros((groups, inputs, inputs))
    for part in batches(x.codes):
        padded = np.pad(part, ((0, 0), (0, 0), *grown), constant_values=x.zero)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))
        windows = windows[:, :, :: layer.stride, :: layer.stride]
        rows, columns = windows.shape[2:4]
        chosen = rng.permutation(rows * columns)[:PLACES]
        found = windows[:, :, chosen // columns, chosen % columns]  # n, channels, places, k, k
        X = (found.astype(np.float32) - x.zero) * np.float32(x.scale)
        X = X.reshape(len(part), groups, -1, len(chosen), kernel**2).transpose(1, 0, 3, 2, 4)
        X = X.reshape(groups, -1, inputs)
        H += X.transpose(0, 2, 1) @ X
    return H


def quantisation_of(model: Any) -> Quantisation:
    """What a quantised model was built from."""
    arrays = {array.name: numpy_helper.to_array(array) for array in model.graph.initializer}
    result = Quantisation({}, {}, {})
    for name, scale in arrays.items():
        tensor = name.removesuffix(".scale")
        layer, _, kind = tensor.rpartition(".")
        if not name.endswith(".scale"):
            continue
        if kind == "weight":
            result.weights[layer] = arrays[f"{tensor}.codes"], scale
        elif kind == "bias":
            result.biases[layer] = (arrays[f"{tensor}.codes"] * scale).astype(np.float32)
        else:
            result.activations[tensor] = float(scale), int(arrays[f"{tensor}.zero"])
    return result


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
    onnx.save(build(layers, quantise(layers, pixels)), options.target / f"{NAME}-int8.onnx")


if __name__ == "__main__":
    main()
