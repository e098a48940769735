"""What a self-supervised objective is: a loss of two views, and the backbone that it improves."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ddh.backbones import Backbone

if TYPE_CHECKING:
    from ddh.pretrain.settings import PretrainSettings


class SelfSupervised(nn.Module, ABC):
    """Owns the backbone that learns and whatever the objective needs beside it.

    The loop trains the parameters that require a gradient, by SGD; `after_step` follows each step.
    """

    @classmethod
    def defaults(cls, size: int, trained: bool) -> Mapping[str, Any]:
        """Settings that suit it, by name: for pictures of `size` pixels, and for weights that are
        `trained` already or not."""
        return {}

    @abstractmethod
    def __init__(self, backbone: Backbone, settings: "PretrainSettings", pictures: int) -> None: ...

    @abstractmethod
    def forward(self, first: Tensor, second: Tensor, rows: Tensor) -> Tensor:
        """The loss of a batch: two views of the pictures `rows`, normalised (n, 3, size, size)."""

    @abstractmethod
    def after_step(self, progress: float) -> None:
        """What follows an optimiser's step; `progress` is the share of the round, 0 to 1."""

    @property
    @abstractmethod
    def result(self) -> Backbone:
        """The backbone to take features from, now or at the end."""

    #: Whether `begin_round` wants the features of all pictures.
    takes_features = False

    def begin_round(self, features: NDArray[np.float32], seed: int) -> None:
        """What precedes a round of the training; `features` are those of all pictures."""
        return

    def signs(self) -> dict[str, float]:
        """What it can tell of its progress, beside the signs that all objectives have."""
        return {}


def projection(dimensions: int, hidden: int, out: int) -> nn.Sequential:
    """Two layers with a batch norm between them, the head of many such objectives."""
    return nn.Sequential(
        nn.Linear(dimensions, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, out),
    )
