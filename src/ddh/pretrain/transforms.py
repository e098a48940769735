"""Random transforms of images, a whole batch at once on its device, in pure torch.

Crop, mirror, colour, blur and solarisation are those of BYOL (Grill et al., 2020); affine maps and
tone changes those of RandAugment (Cubuk et al., 2020); cutout that of DeVries & Taylor (2017).
Colour changes are one 3 x 3 matrix and one offset per image; crop, mirror and affine map are one
transformation.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, pad

from ddh.train.augmentation import crop_transform, warp

# NTSC: luminance and two axes of colour; a rotation in the plane of the two changes the hue.
_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])

MAX_ROTATION = math.pi / 6
MAX_SHEAR = 0.3
MAX_TRANSLATION = 0.35
MAX_SHARPENING = 0.9


@dataclass(frozen=True)
class ViewSettings:
    """Strength of the random transforms of one view; a probability of 0 costs no time.

    Parameters
    ----------
    min_scale : float
        Smallest area of the crop, as a fraction of the image.
    shift : float
        How far the crop may leave the image, in half sides; beyond lies the image's reflection.
    jitter, hue : float
        Largest relative change of brightness, contrast and saturation; largest rotation of the
        hue, as a fraction of the colour circle.
    jitter_prob, grayscale_prob, blur_prob, solarise_prob : float
        Probabilities of colour jitter (`jitter` and `hue`) and of the other transforms.
    affine_prob : float
        Probability of each of: a rotation by up to 30 degrees, two shears, two translations.
    tone_prob : float
        Probability of each of: posterisation, autocontrast, a change of sharpness.
    cutout : float
        Largest side of a grey square, as a fraction of the image's side.
    """

    min_scale: float = 0.2
    shift: float = 0.0
    jitter: float = 0.4
    hue: float = 0.1
    jitter_prob: float = 0.8
    grayscale_prob: float = 0.2
    blur_prob: float = 0.0
    solarise_prob: float = 0.0
    affine_prob: float = 0.0
    tone_prob: float = 0.0
    cutout: float = 0.0


def random_view(
    images: Tensor, size: int, settings: ViewSettings, generator: torch.Generator
) -> Tensor:
    """One view of each image: uint8 (n, h, w, 3) -> values in [0, 1], float (n, 3, size, size).

    `generator` lives on the device of the images. Memory: about five times that of the result.
    """
    x = images.permute(0, 3, 1, 2).float() / 255
    x = _crop(x, size, settings, generator)
    x = _jitter(x, settings, generator)
    if settings.blur_prob > 0:
        x = _blur(x, settings.blur_prob, generator)
    if settings.solarise_prob > 0:
        x = torch.where(_mask(x, settings.solarise_prob, generator) & (x >= 0.5), 1 - x, x)
    if settings.tone_prob > 0:
        x = _change_tone(x, settings.tone_prob, generator)
    if settings.cutout > 0:
        x = _cutout(x, settings.cutout, generator)
    return x.contiguous(memory_format=torch.channels_last)


def _uniform(n: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(n, generator=generator, device=generator.device)


def _chosen(n: int, probability: float, generator: torch.Generator) -> Tensor:
    return _uniform(n, 0, 1, generator) < probability


def _mask(x: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """A random choice of the images of a batch (n, c, h, w), to broadcast over their values."""
    return _chosen(len(x), probability, generator)[:, None, None, None]


def _crop(x: Tensor, size: int, settings: ViewSettings, generator: torch.Generator) -> Tensor:
    """A random crop of aspect 3:4 to 4:3, mirrored or not, sampled at `size`."""
    n = len(x)
    area = _uniform(n, settings.min_scale, 1.0, generator)
    aspect = _uniform(n, math.log(3 / 4), math.log(4 / 3), generator).exp()
    mirrored = _chosen(n, 0.5, generator)
    offset = torch.stack([_uniform(n, -1, 1, generator), _uniform(n, -1, 1, generator)])
    transform = crop_transform(area, aspect, offset, mirrored, settings.shift)
    if settings.affine_prob > 0:
        _add_affine(transform, settings.affine_prob, generator)
    return warp(x, transform, (size, size))


def _add_affine(transform: Tensor, probability: float, generator: torch.Generator) -> None:
    """Rotate, shear and translate on top of the maps (n, 2, 3), in place."""
    n = len(transform)

    def draw(largest: float) -> Tensor:
        return _uniform(n, -largest, largest, generator) * _chosen(n, probability, generator)

    angle, shear_x, shear_y = draw(MAX_ROTATION), draw(MAX_SHEAR), draw(MAX_SHEAR)
    cos, sin, one = angle.cos(), angle.sin(), torch.ones_like(angle)
    rotation = torch.stack([cos, -sin, sin, cos], dim=1).reshape(n, 2, 2)
    shear = torch.stack([one, shear_x, shear_y, one], dim=1).reshape(n, 2, 2)
    transform[:, :, :2] = rotation @ shear @ transform[:, :, :2]
    transform[:, 0, 2] += draw(MAX_TRANSLATION)
    transform[:, 1, 2] += draw(MAX_TRANSLATION)


def _change_tone(x: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Posterise, stretch to the full range, and sharpen or smooth, each with this probability."""
    levels = 2.0 ** torch.randint(3, 6, (len(x), 1, 1, 1), generator=generator, device=x.device)
    posterised = ((x * levels).floor() / (levels - 1)).clamp(max=1)
    x = torch.where(_mask(x, probability, generator), posterised, x)
    low, high = x.amin(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
    x = torch.where(_mask(x, probability, generator), (x - low) / (high - low).clamp(min=1e-3), x)
    smooth = avg_pool2d(pad(x, [1] * 4, mode="reflect"), 3, 1)
    amount = _uniform(len(x), -MAX_SHARPENING, MAX_SHARPENING, generator)[:, None, None, None]
    sharpened = (x + amount * (x - smooth)).clamp(0, 1)
    return torch.where(_mask(x, probability, generator), sharpened, x)


def _cutout(x: Tensor, largest: float, generator: torch.Generator) -> Tensor:
    n, _, height, width = x.shape
    radius = _uniform(n, 0, largest / 2, generator)[:, None]

    def covered(length: int) -> Tensor:
        centres = (torch.arange(length, device=x.device) + 0.5) / length
        return (centres - _uniform(n, 0, 1, generator)[:, None]).abs() < radius

    square = covered(height)[:, None, :, None] & covered(width)[:, None, None, :]
    return torch.where(square, 0.5, x)


def _jitter(x: Tensor, settings: ViewSettings, generator: torch.Generator) -> Tensor:
    """Brightness, contrast (about the mean luminance), saturation, hue and greyscale."""
    n = len(x)
    changed = _chosen(n, settings.jitter_prob, generator).float()
    low, high = max(0.0, 1 - settings.jitter), 1 + settings.jitter

    def factor() -> Tensor:
        return 1 + changed * (_uniform(n, low, high, generator) - 1)

    brightness, contrast, saturation = factor(), factor(), factor()
    angle = 2 * math.pi * changed * _uniform(n, -settings.hue, settings.hue, generator)
    saturation = torch.where(_chosen(n, settings.grayscale_prob, generator), 0.0, saturation)
    yiq, inverse = _colour_axes(x.device)
    change = torch.zeros(n, 3, 3, device=x.device)  # keeps the luminance, rotates the hue
    change[:, 0, 0] = 1
    change[:, 1, 1] = change[:, 2, 2] = saturation * angle.cos()
    change[:, 1, 2], change[:, 2, 1] = -saturation * angle.sin(), saturation * angle.sin()
    matrix = (inverse @ change @ yiq) * (brightness * contrast)[:, None, None]
    mean = torch.einsum("nchw,c->n", x, yiq[0]) / (x.shape[2] * x.shape[3])
    offset = brightness * (1 - contrast) * mean
    recoloured = torch.einsum("nij,njhw->nihw", matrix, x) + offset[:, None, None, None]
    return recoloured.clamp(0, 1)


@cache
def _colour_axes(device: torch.device) -> tuple[Tensor, Tensor]:
    """The YIQ matrix and its inverse on a device; cached, for each copy synchronises with it."""
    return _YIQ.to(device), torch.linalg.inv(_YIQ).to(device)


def _blur(x: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Gaussian blur of standard deviation 0.1 to 2 at 224 pixels, in proportion at other sizes."""
    n, channels, height, width = x.shape
    largest = 2.0 * width / 224
    radius = max(1, math.ceil(3 * largest))
    deviation = _uniform(n, 0.05 * largest, largest, generator)
    chosen = _chosen(n, probability, generator)
    positions = torch.arange(-radius, radius + 1, device=x.device)
    kernel = torch.exp(-0.5 * (positions / deviation[:, None]).square())
    kernel = torch.where(chosen[:, None], kernel, (positions == 0).float())
    kernel = (kernel / kernel.sum(dim=1, keepdim=True)).repeat_interleave(channels, dim=0)
    padded = pad(x, [radius] * 4, mode="reflect")
    flat = padded.reshape(1, n * channels, height + 2 * radius, width + 2 * radius)
    flat = conv2d(flat, kernel[:, None, None, :], groups=n * channels)
    flat = conv2d(flat, kernel[:, None, :, None], groups=n * channels)
    return flat.reshape(x.shape)
