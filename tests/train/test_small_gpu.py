"""Networks that train on a GPU whose memory does not hold a whole batch."""

import numpy as np
import pytest
import torch

from ddh._core.errors import DDHError
from ddh.backbones import ResNet
from ddh.images import open_images
from ddh.train.features import Pictures
from ddh.train.inputs import NetworkInputs
from ddh.train.network import prepare

IMAGES = 60


@pytest.fixture
def pictures():
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 8, 8, 3), dtype=np.uint8)
    torch.manual_seed(0)
    network = ResNet("resnet18", 8, tiny_stem=True, width=4)
    network.origin = "elsewhere"
    return Pictures(network, open_images(pixels), np.arange(IMAGES))


def new_inputs(pictures, depth):
    prepare(pictures.backbone, depth, torch.device("cpu"))
    pictures.backbone.zero_grad(set_to_none=True)
    mean = torch.zeros(pictures.backbone.dimensions)
    return NetworkInputs(pictures, mean, torch.ones(()), normalize=True)


def gradients(inputs):
    ((_, batch),) = inputs.batches([np.arange(50)], [1])
    (batch**3).sum().backward()
    weights = inputs.pictures.backbone.named_parameters()
    return batch.detach(), {name: w.grad.clone() for name, w in weights if w.grad is not None}


@pytest.mark.parametrize("depth", ["last stage", "network"])
def test_parts_of_a_batch_have_its_features_and_gradients(pictures, depth, limit_memory):
    whole, expected = gradients(new_inputs(pictures, depth))
    inputs = new_inputs(pictures, depth)
    limit_memory(ResNet, 30)
    before = {name: value.clone() for name, value in pictures.backbone.state_dict().items()}
    inputs.fit_memory(50)
    assert inputs.at_once == 25
    after = pictures.backbone.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(weight.grad is None for weight in pictures.backbone.parameters())
    features, found = gradients(inputs)
    torch.testing.assert_close(features, whole)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)


def test_memory_for_a_whole_batch_and_for_none(pictures, limit_memory):
    inputs = new_inputs(pictures, "network")
    inputs.fit_memory(50)
    assert inputs.at_once == 0
    limit_memory(ResNet, 10)
    with pytest.raises(DDHError, match="too small for 25 images at once; use a smaller size"):
        inputs.fit_memory(50)
