"""Random views: each transform against what it should do."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from small_network import generator

from ddh.pretrain import ViewSettings, random_view

STILL = ViewSettings(min_scale=1.0, jitter_prob=0.0, grayscale_prob=0.0)


def test_nothing_changes_but_the_side():
    pixels = torch.randint(0, 256, (20, 8, 8, 3), dtype=torch.uint8, generator=generator())
    view = random_view(pixels, 8, STILL, generator())
    plain = pixels.permute(0, 3, 1, 2) / 255
    mirrored = plain.flip(3)
    for got, a, b in zip(view, plain, mirrored, strict=True):
        # The proportions may change a little even at full area: width and height end at 1.
        assert min((got - a).abs().mean(), (got - b).abs().mean()) < 0.2


def test_grey_has_one_colour_and_the_luminance():
    pixels = torch.randint(0, 256, (5, 8, 8, 3), dtype=torch.uint8, generator=generator())
    all_grey = ViewSettings(min_scale=1.0, jitter_prob=0.0, grayscale_prob=1.0)
    grey, coloured = (
        random_view(pixels, 8, settings, generator(3)) for settings in (all_grey, STILL)
    )
    luminance = torch.einsum("nchw,c->nhw", coloured, torch.tensor([0.299, 0.587, 0.114]))
    for channel in range(3):
        torch.testing.assert_close(grey[:, channel], luminance, atol=2e-3, rtol=0)


def test_a_turn_of_the_hue_keeps_the_luminance():
    pixels = torch.randint(96, 160, (50, 8, 8, 3), dtype=torch.uint8, generator=generator())
    turned = ViewSettings(min_scale=1.0, jitter=0.0, hue=0.5, jitter_prob=1.0, grayscale_prob=0)
    a = random_view(pixels, 8, turned, generator(1))
    b = random_view(pixels, 8, STILL, generator(1))
    weights = torch.tensor([0.299, 0.587, 0.114])
    gaps = [torch.einsum("nchw,c->nhw", x, weights) for x in (a, b)]
    torch.testing.assert_close(*gaps, atol=3e-3, rtol=0)
    assert (a - b).abs().max() > 0.05


def test_blur_is_a_weighted_mean_and_solarisation_turns_light_over():
    pixels = torch.randint(0, 256, (6, 32, 32, 3), dtype=torch.uint8, generator=generator())
    plain = random_view(pixels, 32, STILL, generator(2))
    blurred = random_view(pixels, 32, replace(STILL, blur_prob=1.0), generator(2))
    assert blurred.var() < plain.var()
    torch.testing.assert_close(blurred.mean(), plain.mean(), atol=0.01, rtol=0)
    turned = random_view(pixels, 32, replace(STILL, solarise_prob=1.0), generator(2))
    assert turned.max() <= 0.5 + 1e-6


def test_a_warp_keeps_most_of_the_picture_and_a_hole_hides_some():
    pixels = torch.full((400, 16, 16, 3), 255, dtype=torch.uint8)
    still = replace(STILL, jitter=0.0)
    warped = random_view(pixels, 16, replace(still, affine_prob=1.0), generator())
    torch.testing.assert_close(warped, torch.ones_like(warped))  # beyond it lies its mirror
    holed = random_view(pixels, 16, replace(still, cutout=0.5), generator())
    hidden = (holed == 0.5).all(dim=1)
    assert ((holed > 0.999).all(dim=1) | hidden).all()
    assert 0 < hidden.sum(dim=(1, 2)).max() <= 8 * 8
    # a side has 4 pixels in the mean, less what lies outside
    assert 0.5 * 4 < hidden.any(dim=1).sum(dim=1).float().mean() < 4


def test_tones_stay_in_range_and_stretch_to_it():
    pixels = torch.randint(90, 160, (60, 8, 8, 3), dtype=torch.uint8, generator=generator())
    changed = random_view(pixels, 8, replace(STILL, tone_prob=1.0), generator())
    assert changed.min() == 0
    assert changed.max() == 1


def test_the_same_generator_gives_the_same_views():
    pixels = torch.randint(0, 256, (4, 8, 8, 3), dtype=torch.uint8, generator=generator())
    a, b = (random_view(pixels, 8, ViewSettings(), generator(7)) for _ in range(2))
    assert torch.equal(a, b)
    assert a.min() >= 0
    assert a.max() <= 1


@pytest.mark.parametrize("size", [112, 160])
def test_blur_has_the_standard_deviations_it_should(size):
    """Each blurred view is fitted by a Gaussian of known width: 0.1 to 2 at 224 pixels."""
    pixels = torch.randint(0, 256, (12, size, size, 3), dtype=torch.uint8, generator=generator())
    plain = random_view(pixels, size, STILL, generator(5))[:, 0].numpy()
    blurred = random_view(pixels, size, replace(STILL, blur_prob=1.0), generator(5))[:, 0].numpy()
    largest = 2 * size / 224
    widths = largest * np.concatenate([np.linspace(0.05, 1.05, 21), np.linspace(1.2, 4, 8)])
    fitted = []
    for before, after in zip(plain, blurred, strict=True):
        errors = [
            np.abs(gaussian_filter(before, width, mode="mirror", truncate=3.5) - after).mean()
            for width in widths
        ]
        assert min(errors) < 0.01
        fitted.append(widths[np.argmin(errors)])
    assert max(fitted) <= 1.05 * largest
    assert np.mean(fitted) == pytest.approx(0.525 * largest, rel=0.3)
    assert np.std(fitted) == pytest.approx(0.95 * largest / np.sqrt(12), rel=0.35)


def test_half_of_the_views_are_mirrored():
    pixels = torch.zeros(600, 8, 8, 3, dtype=torch.uint8)
    pixels[:, :, 4:] = 255
    view = random_view(pixels, 8, STILL, generator())
    left, right = view[..., :4].mean(dim=(1, 2, 3)), view[..., 4:].mean(dim=(1, 2, 3))
    assert ((left - right).abs() > 0.7).all()
    assert (left > right).float().mean() == pytest.approx(0.5, abs=0.06)


def test_brightness_contrast_and_saturation_change_by_the_jitter():
    """Their factors, read back from the colours of the views, are uniform and independent."""
    colours = torch.tensor([[100, 120, 140], [130, 120, 90]], dtype=torch.uint8)
    pixels = colours.repeat_interleave(4, dim=0).repeat(800, 8, 1, 1)
    jitter = replace(STILL, jitter=0.4, hue=0.0, jitter_prob=1.0)
    plain = random_view(pixels, 8, STILL, generator(1)).double()
    view = random_view(pixels, 8, jitter, generator(1)).double()
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)

    def figures(x):
        luminance = torch.einsum("nchw,c->nhw", x, weights)
        chroma = x - luminance[:, None]
        return luminance.mean(dim=(1, 2)), luminance.std(dim=(1, 2)), chroma.std(dim=(1, 2, 3))

    mean, spread, chroma = (b / a for a, b in zip(figures(plain), figures(view), strict=True))
    factors = torch.stack([mean, spread / mean, chroma / spread])
    for factor in factors:
        assert factor.min() == pytest.approx(0.6, abs=0.02)
        assert factor.max() == pytest.approx(1.4, abs=0.02)
        assert factor.mean() == pytest.approx(1.0, abs=0.03)
        assert factor.std() == pytest.approx(0.8 / np.sqrt(12), abs=0.02)
    assert (torch.corrcoef(factors) - torch.eye(3)).abs().max() < 0.1
