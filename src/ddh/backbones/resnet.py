"""ResNet-18, -34 and -50 (He et al., 2015), with a 3x3 stem for tiny pictures.

Names of the parameters are those of the common public state dicts (`conv1`, `layer1.0.conv1`,
`layer1.0.downsample.0`, ...), so such a file loads from disk as it is. The paper takes its
features for the labels from pool5 of a ResNet: that is this module's output.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ddh.backbones.base import Backbone
from ddh.images import Preprocessing

IMAGENET_MEAN = (255 * 0.485, 255 * 0.456, 255 * 0.406)
IMAGENET_STD = (255 * 0.229, 255 * 0.224, 255 * 0.225)
DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


class ResNet(Backbone):
    """Residual network up to pool5: 512 values for ResNet-18 and -34, 2,048 for ResNet-50.

    With `tiny_stem` the first convolution is 3x3 at stride 1 and there is no first pooling, the
    usual form for pictures of 32 pixels.
    """

    classifier = ("fc.",)
    layer1: nn.Module
    layer2: nn.Module
    layer3: nn.Module
    layer4: nn.Module

    def __init__(
        self, name: str, size: int | None = None, *, tiny_stem: bool = False, width: int = 64
    ) -> None:
        size = size or (32 if tiny_stem else 224)
        super().__init__(
            Preprocessing(
                size=size,
                resize=size if tiny_stem else round(size * 256 / 224),
                interpolation="bilinear",
                mean=IMAGENET_MEAN,
                std=IMAGENET_STD,
            )
        )
        self.name = name
        self.tiny_stem = tiny_stem
        self.width = width
        block: Callable[..., nn.Module] = Bottleneck if name == "resnet50" else BasicBlock
        expansion = 4 if name == "resnet50" else 1
        kernel, stride = (3, 1) if tiny_stem else (7, 2)
        self.conv1 = nn.Conv2d(3, width, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.Identity() if tiny_stem else nn.MaxPool2d(3, 2, 1)
        channels = width
        for number, repeats in enumerate(DEPTHS[name], start=1):
            inner = width * 2 ** (number - 1)
            first = block(channels, inner, 2 if number > 1 else 1)
            channels = inner * expansion
            others = (block(channels, inner, 1) for _ in range(repeats - 1))
            setattr(self, f"layer{number}", nn.Sequential(first, *others))
        self.dimensions = channels
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def options(self) -> dict[str, object]:
        return {"tiny_stem": self.tiny_stem, "width": self.width}

    def forward(self, pixels: Tensor) -> Tensor:
        x: Tensor = self.pool(torch.relu(self.bn1(self.conv1(pixels))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return x.mean(dim=(2, 3))

    def last_stage(self) -> list[nn.Module]:
        return [self.layer4]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, inner, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.downsample = shortcut(channels, inner, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut; the stride sits on the 3x3."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, 4 * inner, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * inner)
        self.downsample = shortcut(channels, 4 * inner, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def shortcut(channels: int, out: int, stride: int) -> nn.Module:
    """The identity, or a 1x1 projection where the shape changes."""
    if stride == 1 and channels == out:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
