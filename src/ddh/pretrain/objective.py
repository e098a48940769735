"""The interface of a self-supervised objective: a loss on two views, and the resulting backbone."""

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
    """Base class of the objectives: owns the backbone being trained and its auxiliary networks.

    All parameters that require a gradient are trained by SGD. To add an objective, derive
    from this class in a module of `ddh.pretrain` and register it in `OBJECTIVES`.
    """

    #: Whether `begin_round` needs the features of all images.
    needs_features = False

    @classmethod
    def defaults(cls, size: int, trained: bool) -> Mapping[str, Any]:
        """Settings for inputs of `size` pixels and for trained or random initial weights."""
        return {}

    @abstractmethod
    def __init__(self, backbone: Backbone, settings: "PretrainSettings", images: int) -> None: ...

    @abstractmethod
    def forward(self, first: Tensor, second: Tensor, rows: Tensor) -> Tensor:
        """The loss of a batch: two normalised views (n, 3, size, size) of the images `rows`."""

    @abstractmethod
    def after_step(self, progress: float) -> None:
        """Update what is not trained by gradients; `progress` is the fraction of the round done."""

    @property
    @abstractmethod
    def result(self) -> Backbone:
        """The backbone to extract features with."""

    def begin_round(self, features: NDArray[np.float32], seed: int) -> None:
        """Prepare a round of training from the current features of all images."""
        return

    def diagnostics(self) -> dict[str, float]:
        """Figures specific to this objective, for the training history."""
        return {}


def projection(dimensions: int, hidden: int, out: int) -> nn.Sequential:
    """The usual two-layer head with a batch norm in between."""
    return nn.Sequential(
        nn.Linear(dimensions, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, out),
    )
