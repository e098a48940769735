"""Random views of pictures, a whole batch at once on the device, in pure torch.

Crop, mirror, colours, grey, blur and solarisation are those of BYOL (Grill et al., 2020). Colour
changes are affine, so brightness, contrast, saturation, hue and grey are one 3 x 3 matrix and
one offset a picture. Warps, changes of tone and holes are those of RandAugment (Cubuk et al.,
2020) and Cutout (DeVries & Taylor, 2017); crop, mirror and warp are one affine map.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, conv2d, grid_sample, pad

# NTSC: luminance and two axes of colour; a turn in the plane of the two is a change of hue.
_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


LARGEST_TURN = math.pi / 6
LARGEST_SHEAR = 0.3
FAR_SHIFT = 0.35
SHARPER = 0.9


@dataclass(frozen=True)
class ViewSettings:
    """How much a view may differ from its picture; what has a chance of 0 costs nothing."""

    min_scale: float = 0.2
    """The crop has this share of the area, or more."""
    shift: float = 0.0
    """The crop may leave the picture by this share of half a side; beyond it lies its mirror."""
    jitter: float = 0.4
    """Brightness, contrast and saturation change by this share at most."""
    hue: float = 0.1
    """The hue turns by this share of the circle at most."""
    jitter_prob: float = 0.8
    grayscale_prob: float = 0.2
    blur_prob: float = 0.0
    solarise_prob: float = 0.0
    affine_prob: float = 0.0
    """Of each of a turn by up to 30 degrees, two shears, and two further shifts."""
    tone_prob: float = 0.0
    """Of each of fewer levels of brightness, levels stretched to the full range, and a change of
    sharpness."""
    hole: float = 0.0
    """A grey square covers this share of the side at most."""


def random_view(
    pictures: Tensor, size: int, settings: ViewSettings, generator: torch.Generator
) -> Tensor:
    """uint8 (n, h, w, 3) -> one view of each, float (n, 3, size, size) of values in [0, 1].

    `generator` lives on the device of the pictures. Memory: about five times that of the result.
    """
    x = pictures.permute(0, 3, 1, 2).float() / 255
    x = _crop(x, size, settings, generator)
    x = _recolour(x, settings, generator)
    if settings.blur_prob > 0:
        x = _blur(x, settings.blur_prob, generator)
    if settings.solarise_prob > 0:
        x = torch.where(_of(x, settings.solarise_prob, generator) & (x >= 0.5), 1 - x, x)
    if settings.tone_prob > 0:
        x = _change_tone(x, settings.tone_prob, generator)
    if settings.hole > 0:
        x = _hide(x, settings.hole, generator)
    return x.contiguous(memory_format=torch.channels_last)


def _uniform(n: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    draw = torch.rand(n, generator=generator, device=generator.device)
    return low + (high - low) * draw


def _chosen(n: int, chance: float, generator: torch.Generator) -> Tensor:
    return torch.rand(n, generator=generator, device=generator.device) < chance


def _of(x: Tensor, chance: float, generator: torch.Generator) -> Tensor:
    """Which pictures of a batch (n, c, h, w), to be broadcast over their values."""
    return _chosen(len(x), chance, generator)[:, None, None, None]


def _crop(x: Tensor, size: int, settings: ViewSettings, generator: torch.Generator) -> Tensor:
    """A random part of each picture, sides 3:4 to 4:3, perhaps mirrored, sampled at `size`."""
    n = len(x)
    area = _uniform(n, settings.min_scale, 1.0, generator)
    aspect = _uniform(n, math.log(3 / 4), math.log(4 / 3), generator).exp()
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    transform = torch.zeros(n, 2, 3, device=x.device)
    mirror = torch.where(_chosen(n, 0.5, generator), -1.0, 1.0)
    transform[:, 0, 0] = width * mirror
    transform[:, 0, 2] = _uniform(n, -1, 1, generator) * (1 - width + settings.shift)
    transform[:, 1, 1] = height
    transform[:, 1, 2] = _uniform(n, -1, 1, generator) * (1 - height + settings.shift)
    if settings.affine_prob > 0:
        _warp(transform, settings.affine_prob, generator)
    grid = affine_grid(transform, [n, 3, size, size], align_corners=False)
    return grid_sample(x, grid, align_corners=False, padding_mode="reflection")


def _warp(transform: Tensor, chance: float, generator: torch.Generator) -> None:
    """Turn, shear and shift on top of affine maps (n, 2, 3), in place."""
    n = len(transform)

    def some(largest: float) -> Tensor:
        return _uniform(n, -largest, largest, generator) * _chosen(n, chance, generator)

    turn, across, along = some(LARGEST_TURN), some(LARGEST_SHEAR), some(LARGEST_SHEAR)
    cos, sin, one = turn.cos(), turn.sin(), torch.ones_like(turn)
    turned = torch.stack([cos, -sin, sin, cos], dim=1).reshape(n, 2, 2)
    sheared = torch.stack([one, across, along, one], dim=1).reshape(n, 2, 2)
    transform[:, :, :2] = turned @ sheared @ transform[:, :, :2]
    transform[:, 0, 2] += some(FAR_SHIFT)
    transform[:, 1, 2] += some(FAR_SHIFT)


def _change_tone(x: Tensor, chance: float, generator: torch.Generator) -> Tensor:
    levels = 2.0 ** torch.randint(3, 6, (len(x), 1, 1, 1), generator=generator, device=x.device)
    coarse = ((x * levels).floor() / (levels - 1)).clamp(max=1)
    x = torch.where(_of(x, chance, generator), coarse, x)
    low, high = x.amin(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
    x = torch.where(_of(x, chance, generator), (x - low) / (high - low).clamp(min=1e-3), x)
    around = avg_pool2d(pad(x, [1] * 4, mode="reflect"), 3, 1)
    strength = _uniform(len(x), -SHARPER, SHARPER, generator)[:, None, None, None]
    return torch.where(_of(x, chance, generator), (x + strength * (x - around)).clamp(0, 1), x)


def _hide(x: Tensor, largest: float, generator: torch.Generator) -> Tensor:
    n, _, height, width = x.shape
    radius = _uniform(n, 0, largest / 2, generator)[:, None]

    def covered(length: int) -> Tensor:
        places = (torch.arange(length, device=x.device) + 0.5) / length
        return (places - _uniform(n, 0, 1, generator)[:, None]).abs() < radius

    hole = covered(height)[:, None, :, None] & covered(width)[:, None, None, :]
    return torch.where(hole, 0.5, x)


def _recolour(x: Tensor, settings: ViewSettings, generator: torch.Generator) -> Tensor:
    n = len(x)
    changed = _chosen(n, settings.jitter_prob, generator).float()
    low, high = max(0.0, 1 - settings.jitter), 1 + settings.jitter

    def factor() -> Tensor:
        return 1 + changed * (_uniform(n, low, high, generator) - 1)

    brightness, contrast, saturation = factor(), factor(), factor()
    turn = 2 * math.pi * changed * _uniform(n, -settings.hue, settings.hue, generator)
    saturation = torch.where(_chosen(n, settings.grayscale_prob, generator), 0.0, saturation)
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
