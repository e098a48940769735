"""A network small enough to pretrain within a test, and short settings for it."""

import torch

from ddh.backbones import Backbone
from ddh.images import Preprocessing
from ddh.pretrain import pretrain_settings


class SmallNetwork(Backbone):
    """Two convolutions: enough to learn from, quick enough for a test."""

    name = "small"
    dimensions = 16

    def __init__(self):
        super().__init__(Preprocessing(size=8))
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(
                torch.nn.Conv2d(3, 16, 3, 2, 1, bias=False),
                torch.nn.BatchNorm2d(16),
                torch.nn.ReLU(),
                torch.nn.Conv2d(16, 16, 3, 2, 1),
            )

    def forward(self, pixels):
        return self.layers(pixels).mean(dim=(2, 3))

    def last_stage(self):
        return [self.layers]


def settings(**changes):
    return pretrain_settings(8, True, {"batch_size": 50, "learning_rate": 0.2} | changes)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)
