"""Which backbone a collection gets, and whether it is pretrained on the collection itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddh._core.errors import DDHError
from ddh.images import ImageSource

#: Settings of one pretraining run after another.
Stages = Sequence[Mapping[str, Any]]
TINY = 64  # pixels, longer side
MANY = 20_000  # images, enough to train a network from random weights
SOME = 1000  # photographs, enough to adapt a trained network to them
STAGES: Stages = (
    {"minutes": 16.0, "neighbours_from": 0.8},
    {"objective": "pseudo-codes", "minutes": 4.0},
)
ADAPTATION: Stages = ({"objective": "pseudo-codes"},)
SAMPLE = 16  # images whose size is checked


@dataclass(frozen=True)
class Recipe:
    """A backbone, its initial weights, and the stages of its pretraining, if any."""

    backbone: str = "efficientnet-lite0"
    weights: str = "auto"
    pretrain: Stages = ()


def recipe(preset: str, source: ImageSource, gpu: bool) -> Recipe:
    """The recipe of a preset, for a user who names no backbone.

    Many tiny images and a GPU: a network trained on them from random weights beats ImageNet
    features, which come from larger images. ImageNet's network is adapted to photographs, if
    their neighbourhoods gain by it (docs/results.md).
    """
    if preset != "quality" or not gpu:
        return Recipe()
    tiny = longer_side(source) <= TINY
    if tiny and len(source) >= MANY:
        return Recipe("resnet18-tiny", "random", STAGES)
    return Recipe(pretrain=() if tiny or len(source) < SOME else ADAPTATION)


def longer_side(source: ImageSource) -> int:
    """Longer side of the largest image in a sample; 0 if none of them can be read."""
    largest = 0
    for i in np.linspace(0, len(source) - 1, min(SAMPLE, len(source))).astype(int):
        try:
            largest = max(largest, *source.read(int(i)).size)
        except DDHError:
            continue  # the loader will report it
    return largest
