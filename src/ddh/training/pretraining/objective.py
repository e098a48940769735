"""What a self-supervised objective is: a loss of two views, and the backbone that it improves."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from ddh.backbones import Backbone


class SelfSupervised(nn.Module, ABC):
    """Owns the backbone that learns and whatever the objective needs beside it.

    The loop trains the parameters that require a gradient, by SGD; `after_step` follows each step.
    """

    @abstractmethod
    def __init__(self, backbone: Backbone) -> None: ...

    @abstractmethod
    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """The loss of a batch: two views of the same pictures, normalised (n, 3, size, size)."""

    @abstractmethod
    def after_step(self, progress: float) -> None:
        """What follows an optimiser's step; `progress` is the share of all steps done, 0 to 1."""

    @property
    @abstractmethod
    def result(self) -> Backbone:
        """The backbone to take features from, now or at the end."""


def projection(dimensions: int, hidden: int, out: int) -> nn.Sequential:
    """Two layers with a batch norm between them, the head of many such objectives."""
    return nn.Sequential(
        nn.Linear(dimensions, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, out),
    )
