"""Which network a collection gets, and whether it is first trained on the collection itself."""

from dataclasses import dataclass

import numpy as np

from ddh._core.errors import DDHError
from ddh.images import ImageSource
from ddh.pretrain import Stages

TINY = 64  # pixels of the longer side
MANY = 20_000  # pictures that a network can learn from alone
STAGES: Stages = (
    {"minutes": 16.0, "neighbours_from": 0.8},
    {"objective": "codes", "minutes": 4.0},
)
SAMPLE = 16  # pictures whose size is looked at


@dataclass(frozen=True)
class Recipe:
    """A backbone, its weights, and the stages of a pretraining, if there is to be one."""

    backbone: str = "efficientnet-lite0"
    weights: str = "auto"
    pretrain: Stages = ()


def recipe(preset: str, source: ImageSource, gpu: bool) -> Recipe:
    """What a preset takes where the user names no backbone.

    "quality" lets a network for tiny pictures learn from them alone, where they are many and there
    is a GPU; ImageNet's features, which are of larger pictures, fall behind that (docs/results.md).
    """
    if preset == "quality" and gpu and len(source) >= MANY and longer_side(source) <= TINY:
        return Recipe("resnet18-tiny", "random", STAGES)
    return Recipe()


def longer_side(source: ImageSource) -> int:
    """Of the largest picture in a sample; 0 where none of it can be read."""
    largest = 0
    for place in np.linspace(0, len(source) - 1, min(SAMPLE, len(source))).astype(int):
        try:
            largest = max(largest, *source.read(int(place)).size)
        except DDHError:
            continue  # the loader will count and name it
    return largest
