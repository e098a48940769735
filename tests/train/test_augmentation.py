"""Random crops: repeatable from a seed, within bounds, and half of them mirrored."""

import numpy as np
import torch

from ddh.train.augmentation import augment


def test_about_half_of_the_images_are_mirrored():
    """The whole area is kept, so a view is the image or its mirror image, nearly."""
    ramp = torch.linspace(0, 1, 32).expand(400, 3, 32, 32)  # brighter to the right
    views = augment(ramp.contiguous(), 0, min_scale=0.999)
    rising = views[..., -1].mean(dim=(1, 2)) > views[..., 0].mean(dim=(1, 2))
    assert 150 < int(rising.sum()) < 250


def test_a_part_of_a_batch_gets_what_it_would_get_there():
    pixels = torch.rand(8, 3, 16, 16)
    places = np.array([1, 4, 5])
    assert torch.equal(augment(pixels, 3)[places], augment(pixels[places], 3, part=(places, 8)))
