"""What the benches that pretrain share."""

import pytest

import ddh.backbones
from ddh.backbones import ResNet


@pytest.fixture
def narrow(monkeypatch):
    """A narrow network for every name; weights from a file are still read."""
    real = ddh.backbones.create

    def create(name="auto", weights=None, size=None):
        if name == "auto":
            return real(name, weights, size)
        return ResNet("resnet18", 8, tiny_stem=True, width=4)

    monkeypatch.setattr(ddh.backbones, "create", create)
