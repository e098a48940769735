"""CNN-F, the paper's own network (its Table 1), and a loader for MatConvNet's imagenet-vgg-f.mat.

Table 1 pools 2x2; the published ImageNet file pools 3x3 at stride 2, padded right and below, which
at these sizes is ceil-mode pooling. For a 224-pixel input the maps are

    Table 1    conv1 54 -> 27    conv2 27 -> 14    conv5 14 -> 7    full6 reads 256 x 7 x 7
    the file   conv1 54 -> 27    conv2 27 -> 13    conv5 13 -> 6    full6 reads 256 x 6 x 6
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from ddh._core.errors import ModelError
from ddh.backbones.base import Backbone
from ddh.backbones.variants import checked_file, file_digest
from ddh.images import Preprocessing

Pooling = Literal["table 1", "matconvnet"]
SIZE = 224
MAP_SIZES = {"table 1": 7, "matconvnet": 6}
# MatConvNet's [N kappa alpha beta] = [5 2 1e-4 0.75] divides by (kappa + alpha * sum)^beta; torch
# averages over the window, so its alpha is 5 times as large.
LRN = {"size": 5, "k": 2.0, "alpha": 5e-4, "beta": 0.75}
CHANNELS = (64, 256, 256, 256, 256)


class ResponseNorm(nn.LocalResponseNorm):
    """The same by sums of shifted channels: torch pools in three dimensions, which is slow."""

    def forward(self, input: Tensor) -> Tensor:
        before = self.size // 2
        squares = pad(input.square(), (0, 0, 0, 0, before, self.size - 1 - before))
        total = sum(squares[:, i : i + input.shape[1]] for i in range(self.size))
        return input / (self.k + self.alpha / self.size * total) ** self.beta


class CNNF(Backbone):
    """Five convolutions and two full layers of 4,096; the output is full7 after its ReLU."""

    dimensions = 4096
    name = "cnn-f"
    mean_image: Tensor

    def __init__(self, pooling: Pooling = "table 1", *, width: float = 1.0) -> None:
        super().__init__(
            Preprocessing(
                size=SIZE, resize=SIZE, interpolation="bicubic",
                mean=(123.68, 116.78, 103.94), std=(1.0, 1.0, 1.0),
            )
        )  # fmt: skip
        self.pooling: Pooling = pooling
        self.width = width
        c1, c2, c3, c4, c5 = (round(c * width) for c in CHANNELS)
        full = self.dimensions = round(4096 * width)
        kernel = 2 if pooling == "table 1" else 3

        def pool() -> nn.Module:
            return nn.MaxPool2d(kernel, 2, ceil_mode=True)

        self.conv1 = nn.Conv2d(3, c1, 11, stride=4)
        self.conv2 = nn.Conv2d(c1, c2, 5, padding=2)
        self.conv3 = nn.Conv2d(c2, c3, 3, padding=1)
        self.conv4 = nn.Conv2d(c3, c4, 3, padding=1)
        self.conv5 = nn.Conv2d(c4, c5, 3, padding=1)
        self.norm1, self.pool1 = ResponseNorm(**LRN), pool()  # type: ignore[arg-type]
        self.norm2, self.pool2 = ResponseNorm(**LRN), pool()  # type: ignore[arg-type]
        self.pool5 = pool()
        self.full6 = nn.Linear(c5 * MAP_SIZES[pooling] ** 2, full)
        self.full7 = nn.Linear(full, full)
        # The file subtracts a mean picture, not a mean colour; zero until one is loaded.
        self.register_buffer("mean_image", torch.zeros(1, 3, SIZE, SIZE))

    def options(self) -> dict[str, Any]:
        return {"pooling": self.pooling, "width": self.width}

    def maps(self, pixels: Tensor) -> Tensor:
        """Everything up to pool5."""
        x = pixels - self.mean_image
        x = self.pool1(self.norm1(torch.relu(self.conv1(x))))
        x = self.pool2(self.norm2(torch.relu(self.conv2(x))))
        x = torch.relu(self.conv4(torch.relu(self.conv3(x))))
        pooled: Tensor = self.pool5(torch.relu(self.conv5(x)))
        return pooled

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.maps(pixels).flatten(1)
        return torch.relu(self.full7(torch.relu(self.full6(x))))

    def last_stage(self) -> list[nn.Module]:
        return [self.full6, self.full7]


def load_matconvnet(path: str | Path) -> CNNF:
    """CNN-F from `imagenet-vgg-f.mat`, with that file's own pooling, LRN and mean picture."""
    from scipy.io import loadmat

    file = checked_file(path)
    try:
        content = loadmat(file, squeeze_me=True, struct_as_record=False)
        layers = {str(layer.name): layer for layer in np.atleast_1d(content["layers"])}
        width = _weights(layers["conv1"])[0].shape[-1] / CHANNELS[0]
        network = CNNF("matconvnet", width=width)
        for ours, theirs in _LAYERS.items():
            _load_layer(getattr(network, ours), *_weights(layers[theirs]))
        for norm, layer in ((network.norm1, layers["norm1"]), (network.norm2, layers["norm2"])):
            size, norm.k, alpha, norm.beta = (float(value) for value in layer.param)
            norm.size, norm.alpha = int(size), alpha * size
    except (KeyError, AttributeError, ValueError, NotImplementedError) as error:
        raise ModelError(f"{file} is not a MatConvNet VGG-F file: {error!r}") from error
    _load_mean(network, content)
    network.origin = f"file sha256:{file_digest(file)[:16]}"
    return network


_LAYERS = {f"conv{i}": f"conv{i}" for i in range(1, 6)} | {"full6": "fc6", "full7": "fc7"}


def _weights(layer: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """(filters h x w x in x out, biases); the file's older form has fields, the newer a cell."""
    old = hasattr(layer, "filters")
    filters, biases = (layer.filters, layer.biases) if old else layer.weights
    filters = np.asarray(filters)
    if filters.ndim != 4:  # Matlab drops axes of length one at reading: fc7 arrives as in x out
        filters = filters.reshape((1, 1) + filters.shape[-2:])
    return filters, np.asarray(biases).ravel()


def _load_layer(layer: nn.Module, filters: NDArray[Any], biases: NDArray[Any]) -> None:
    """h x w x in x out -> out x in x h x w; a full layer reads its map in the order in, h, w."""
    weight = torch.from_numpy(np.ascontiguousarray(filters.transpose(3, 2, 0, 1)))
    assert isinstance(layer, nn.Conv2d | nn.Linear)
    assert layer.bias is not None
    if weight.numel() != layer.weight.numel():
        raise ValueError(f"filters of shape {filters.shape} do not fit {tuple(layer.weight.shape)}")
    with torch.no_grad():
        layer.weight.copy_(weight.reshape(layer.weight.shape))
        layer.bias.copy_(torch.from_numpy(biases))


def _load_mean(network: CNNF, content: dict[str, Any]) -> None:
    """The mean picture (h x w x 3) replaces the mean colour; pixels stay in 0..255."""
    meta = content.get("meta")
    normalization = getattr(meta, "normalization", content.get("normalization"))
    average = getattr(normalization, "averageImage", None)
    if average is None:
        return
    mean = torch.from_numpy(np.asarray(average, np.float32).reshape(-1, 3))
    colour = torch.tensor(network.preprocessing.mean)
    picture = mean.expand(SIZE * SIZE, 3) if len(mean) == 1 else mean
    offset = (picture - colour).reshape(SIZE, SIZE, 3).permute(2, 0, 1)
    network.mean_image.copy_(offset[None])
