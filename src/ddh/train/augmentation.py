"""Random crops and mirror images, a whole batch at once on the device, in pure torch."""

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
    """Each picture: a random part of `min_scale` to all of its area, perhaps mirrored.

    Parameters are drawn on the CPU from `seed`, so a run repeats on every device. With `part`
    (places, n) the pictures are those at some places of a batch of n, and get what they would
    get there.
    """
    places, n = (slice(None), len(pixels)) if part is None else part
    device = pixels.device
    generator = torch.Generator().manual_seed(seed)
    area = torch.empty(n).uniform_(min_scale, 1.0, generator=generator)
    aspect = torch.empty(n).uniform_(-0.25, 0.25, generator=generator).exp()
    width = (area * aspect).sqrt().clamp(max=1.0)
    height = (area / aspect).sqrt().clamp(max=1.0)
    shift = torch.empty(2, n).uniform_(-1.0, 1.0, generator=generator)
    mirror = torch.where(torch.rand(n, generator=generator) < 0.5, -1.0, 1.0)
    transform = torch.zeros(n, 2, 3)
    transform[:, 0, 0] = width * mirror
    transform[:, 0, 2] = shift[0] * (1 - width)
    transform[:, 1, 1] = height
    transform[:, 1, 2] = shift[1] * (1 - height)
    grid = affine_grid(transform[places].to(device), list(pixels.shape), align_corners=False)
    cropped = grid_sample(pixels, grid, align_corners=False, padding_mode="reflection")
    return cropped.contiguous(memory_format=torch.channels_last)
