"""Two random views of each picture, a whole batch at once on the device, in pure torch.

Crop, mirror, colours, grey, blur and solarisation are those of BYOL (Grill et al., 2020). Colour
changes are affine, so brightness, contrast, saturation, hue and grey are one 3 x 3 matrix and
one offset a picture.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, pad

# NTSC: luminance and two axes of colour; a turn in the plane of the two is a change of hue.
_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


@dataclass(frozen=True)
class ViewSettings:
    """How much a view may differ from its picture; a pair of chances is for the two views."""

    least_area: float = 0.2
    """The crop has this share of the area, or more."""
    jitter: float = 0.4
    """Brightness, contrast and saturation change by this share at most."""
    hue: float = 0.1
    """The hue turns by this share of the circle at most."""
    jitter_chance: float = 0.8
    grey_chance: float = 0.2
    blur_chance: tuple[float, float] = (0.0, 0.0)
    solarise_chance: tuple[float, float] = (0.0, 0.0)


def random_view(
    pictures: Tensor, size: int, settings: ViewSettings, which: int, generator: torch.Generator
) -> Tensor:
    """uint8 (n, h, w, 3) -> one view of each, float (n, 3, size, size) of values in [0, 1].

    `generator` lives on the device of the pictures; `which` is 0 or 1, for the first view or
    the second. Memory: about five times that of the result.
    """
    x = pictures.permute(0, 3, 1, 2).float() / 255
    x = _crop(x, size, settings.least_area, generator)
    x = _recolour(x, settings, generator)
    if settings.blur_chance[which] > 0:
        x = _blur(x, settings.blur_chance[which], generator)
    if settings.solarise_chance[which] > 0:
        chosen = _chosen(len(x), settings.solarise_chance[which], generator)
        x = torch.where(chosen[:, None, None, None] & (x >= 0.5), 1 - x, x)
    return x.contiguous(memory_format=torch.channels_last)


def _uniform(n: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    draw = torch.rand(n, generator=generator, device=generator.device)
    return low + (high - low) * draw


def _chosen(n: int, chance: float, generator: torch.Generator) -> Tensor:
    return torch.rand(n, generator=generator, device=generator.device) < chance


def _crop(x: Tensor, size: int, least_area: float, generator: torch.Generator) -> Tensor:
    """A random part of each picture, sides 3:4 to 4:3, perhaps mirrored, sampled at `size`."""
    n = len(x)
    area = _uniform(n, least_area, 1.0, generator)
    aspect = _uniform(n, math.log(3 / 4), math.log(4 / 3), generator).exp()
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    transform = torch.zeros(n, 2, 3, device=x.device)
    mirror = torch.where(_chosen(n, 0.5, generator), -1.0, 1.0)
    transform[:, 0, 0] = width * mirror
    transform[:, 0, 2] = _uniform(n, -1, 1, generator) * (1 - width)
    transform[:, 1, 1] = height
    transform[:, 1, 2] = _uniform(n, -1, 1, generator) * (1 - height)
    grid = affine_grid(transform, [n, 3, size, size], align_corners=False)
    return grid_sample(x, grid, align_corners=False, padding_mode="reflection")


def _recolour(x: Tensor, settings: ViewSettings, generator: torch.Generator) -> Tensor:
    n = len(x)
    changed = _chosen(n, settings.jitter_chance, generator).float()
    low, high = max(0.0, 1 - settings.jitter), 1 + settings.jitter

    def factor() -> Tensor:
        return 1 + changed * (_uniform(n, low, high, generator) - 1)

    brightness, contrast, saturation = factor(), factor(), factor()
    turn = 2 * math.pi * changed * _uniform(n, -settings.hue, settings.hue, generator)
    saturation = torch.where(_chosen(n, settings.grey_chance, generator), 0.0, saturation)
    matrix = _colour_matrix(saturation, turn) * (brightness * contrast)[:, None, None]
    luminance = _colour_axes(x.device)[0][0]
    mean = torch.einsum("nchw,c->n", x, luminance) / (x.shape[2] * x.shape[3])
    offset = brightness * (1 - contrast) * mean
    recoloured = torch.einsum("nij,njhw->nihw", matrix, x) + offset[:, None, None, None]
    return recoloured.clamp(0, 1)


def _colour_matrix(saturation: Tensor, turn: Tensor) -> Tensor:
    """(n, 3, 3): keep the luminance, turn the colour and scale its strength."""
    yiq, back = _colour_axes(turn.device)
    middle = torch.zeros(len(turn), 3, 3, device=turn.device)
    middle[:, 0, 0] = 1
    middle[:, 1, 1] = middle[:, 2, 2] = saturation * turn.cos()
    middle[:, 1, 2], middle[:, 2, 1] = -saturation * turn.sin(), saturation * turn.sin()
    return back @ middle @ yiq


@cache
def _colour_axes(device: torch.device) -> tuple[Tensor, Tensor]:
    """The axes of colour and their inverse on a device; copied once, for a copy makes it wait."""
    return _YIQ.to(device), torch.linalg.inv(_YIQ).to(device)


def _blur(x: Tensor, chance: float, generator: torch.Generator) -> Tensor:
    """A Gaussian of deviation 0.1 to 2 at 224 pixels, and in proportion at other sizes."""
    n, channels, _, side = x.shape
    largest = 2.0 * side / 224
    radius = max(1, math.ceil(3 * largest))
    deviation = _uniform(n, 0.05 * largest, largest, generator)
    chosen = _chosen(n, chance, generator)
    places = torch.arange(-radius, radius + 1, device=x.device)
    kernel = torch.exp(-0.5 * (places / deviation[:, None]).square())
    kernel = torch.where(chosen[:, None], kernel, (places == 0).float())
    kernel = (kernel / kernel.sum(dim=1, keepdim=True)).repeat_interleave(channels, dim=0)
    flat = pad(x, [radius] * 4, mode="reflect").reshape(1, n * channels, *_padded(x, radius))
    flat = conv2d(flat, kernel[:, None, None, :], groups=n * channels)
    flat = conv2d(flat, kernel[:, None, :, None], groups=n * channels)
    return flat.reshape(x.shape)


def _padded(x: Tensor, radius: int) -> tuple[int, int]:
    return x.shape[2] + 2 * radius, x.shape[3] + 2 * radius
