"""The pretraining that a preset adds."""

from collections.abc import Mapping, Sequence
from typing import Any

#: Settings of one pretraining run after another.
Stages = Sequence[Mapping[str, Any]]
ADAPTATION: Stages = ({"objective": "pseudo-codes"},)
TINY = 64  # pixels up to which a network gets other transforms and rates
SOME = 1000  # images, enough to adapt a trained network to them


def preset_stages(preset: str, images: int, gpu: bool, size: int | None = None) -> Stages:
    """What a preset does to ImageNet's network, for a user who names none.

    It is adapted to the images at its own input size or at `size`, if their neighbourhoods gain by
    it. For tiny images, that also beats a network trained on them from random weights
    (docs/results.md).
    """
    adapts = preset == "quality" and gpu and images >= SOME
    return ADAPTATION if adapts and (size is None or size > TINY) else ()
