"""The pretraining that a preset adds, and the one for a network from random weights."""

from collections.abc import Mapping, Sequence
from typing import Any

#: Settings of one pretraining run after another.
Stages = Sequence[Mapping[str, Any]]
FROM_SCRATCH: Stages = (
    {"minutes": 16.0, "neighbours_from": 0.8},
    {"objective": "pseudo-codes", "minutes": 4.0},
)
ADAPTATION: Stages = ({"objective": "pseudo-codes"},)
TINY = 64  # pixels up to which a network gets other transforms and rates
SOME = 1000  # images, enough to adapt a trained network to them


def preset_stages(preset: str, images: int, size: int, gpu: bool) -> Stages:
    """What a preset does to ImageNet's network, for a user who names none.

    It is adapted to the images at its input `size`, if their neighbourhoods gain by it. For tiny
    images, that also beats a network trained on them from random weights (docs/results.md).
    """
    adapts = preset == "quality" and gpu and images >= SOME and size > TINY
    return ADAPTATION if adapts else ()
