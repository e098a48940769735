"""Random crops and mirror images of a batch on its device; the affine maps behind all views."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample


def augment(
    pixels: Tensor,
    seed: int,
    *,
    min_scale: float = 0.5,
    part: tuple[NDArray[np.int64], int] | None = None,
) -> Tensor:
    """Crop `min_scale` to all of each image's area at random, and mirror half of the images.

    Drawn on the CPU, so a run repeats on every device. With `part` (places, n) the images are
    those at some places of a batch of n, and get what they would get there.
    """
    places, n = (slice(None), len(pixels)) if part is None else part
    generator = torch.Generator().manual_seed(seed)
    area = torch.empty(n).uniform_(min_scale, 1.0, generator=generator)
    aspect = torch.empty(n).uniform_(-0.25, 0.25, generator=generator).exp()
    offset = torch.empty(2, n).uniform_(-1.0, 1.0, generator=generator)
    mirrored = torch.rand(n, generator=generator) < 0.5
    transform = crop_transform(area, aspect, offset, mirrored)[places].to(pixels.device)
    return warp(pixels, transform, pixels.shape[2:]).contiguous(memory_format=torch.channels_last)


def crop_transform(
    area: Tensor, aspect: Tensor, offset: Tensor, mirrored: Tensor, overhang: float = 0.0
) -> Tensor:
    """Affine maps (n, 2, 3) of crops of a relative `area`; `offset` (2, n) in [-1, 1] moves a crop
    from edge to edge, and beyond by the fraction `overhang` of half a side."""
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    transform = torch.zeros(len(area), 2, 3, device=area.device)
    transform[:, 0, 0] = torch.where(mirrored, -width, width)
    transform[:, 0, 2] = offset[0] * (1 - width + overhang)
    transform[:, 1, 1] = height
    transform[:, 1, 2] = offset[1] * (1 - height + overhang)
    return transform


def warp(pixels: Tensor, transform: Tensor, size: Sequence[int]) -> Tensor:
    """Sample images (n, c, h, w) at (height, width); beyond an edge lies their reflection."""
    grid = affine_grid(transform, [*pixels.shape[:2], *size], align_corners=False)
    return grid_sample(pixels, grid, align_corners=False, padding_mode="reflection")
