"""Grill et al. (2020), "Bootstrap your own latent": a network predicts its own moving average.

The online network q(g(f(v))) of one view predicts the target g'(f'(v')) of the other, and the
target follows the online weights: xi <- tau xi + (1 - tau) theta, with tau rising to 1 along half
a cosine wave. Without negative pairs, only the predictor and the batch norms prevent a collapse
to constant features; `ddh.pretrain.diagnostics` detects one.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ddh.backbones import Backbone
from ddh.pretrain.recipe import TINY
from ddh.pretrain.settings import PretrainSettings, SelfSupervised, projection
from ddh.pretrain.transforms import ViewSettings

OUT = 256


class BYOL(SelfSupervised):
    """Symmetric BYOL; the result is the target backbone, an average over the last steps."""

    @classmethod
    def defaults(cls, size: int, trained: bool, images: int) -> Mapping[str, Any]:
        """A tenth of the learning rate for trained weights: adapt them, do not destroy them."""
        first = second = ViewSettings()
        if size > TINY:  # smaller ones are neither blurred nor solarised
            first = replace(first, blur_prob=0.5)
            second = replace(second, blur_prob=0.1, solarise_prob=0.2)
        return {
            "views": (first, second),
            "learning_rate": 0.012 if trained else 0.12,
            "keep_better": trained and size > TINY,
        }

    def __init__(self, backbone: Backbone, settings: PretrainSettings, images: int) -> None:
        nn.Module.__init__(self)
        self.backbone, self.momentum = backbone, settings.target_momentum
        self.projector, self.predictor = heads(backbone.dimensions, settings.head_width)
        self.target_backbone = copy.deepcopy(backbone).requires_grad_(False)
        self.target_projector = copy.deepcopy(self.projector).requires_grad_(False)

    def forward(self, first: Tensor, second: Tensor, rows: Tensor) -> Tensor:
        """2 - 2 cos(prediction, target), summed over both directions, mean over the batch."""
        views = torch.cat([first, second])
        predicted = self.predictor(self.projector(self.backbone(views)))
        with torch.no_grad():
            targets = self.target_projector(self.target_backbone(views))
        swapped = targets.roll(len(first), dims=0)
        return 4 - 4 * cosine(predicted, swapped).mean()

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        """Move the target towards the online network."""
        tau = 1 - (1 - self.momentum) * (math.cos(math.pi * progress) + 1) / 2
        online: list[Tensor] = [*self.backbone.parameters(), *self.projector.parameters()]
        target: list[Tensor] = [
            *self.target_backbone.parameters(),
            *self.target_projector.parameters(),
        ]
        torch._foreach_lerp_(target, online, 1 - tau)

    @property
    def result(self) -> Backbone:
        return self.target_backbone


def heads(dimensions: int, width: int) -> tuple[nn.Module, nn.Module]:
    """The projector g on features, and the predictor q on projections."""
    return projection(dimensions, width, OUT), projection(OUT, width, OUT)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine similarity of corresponding rows."""
    return (normalize(a.float(), dim=1) * normalize(b.float(), dim=1)).sum(dim=1)
