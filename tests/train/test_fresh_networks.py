"""Networks that start from random weights: features are standardised as they are by then."""

import numpy as np
import pytest
import torch

from ddh.backbones.cnnf import CNNF
from ddh.images import open_images
from ddh.train.features import Pictures, extract
from ddh.train.head import fit_head
from ddh.train.inputs import NetworkInputs
from ddh.train.settings import settings

IMAGES = 90


@pytest.fixture
def pictures():
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 8, 8, 3), dtype=np.uint8)
    torch.manual_seed(0)
    return Pictures(CNNF(width=1 / 16), open_images(pixels), np.arange(IMAGES))


def test_batches_are_standardised_by_themselves(pictures):
    mean, scale = torch.full((256,), 5.0), torch.tensor(3.0)
    for fresh, centre, size in ((True, 0.0, 1.0), (False, -5 / 3, None)):
        inputs = NetworkInputs(pictures, mean, scale, normalize=True, fresh=fresh)
        for rows, batch in inputs.batches([np.arange(40), np.arange(40, 60)], [1, 2]):
            assert len(rows) == len(batch)
            assert float(batch.detach().mean()) == pytest.approx(centre, abs=0.02)
            if size is not None:
                assert batch.detach().mean(dim=0).abs().max() < 1e-3
                assert float(batch.detach().square().mean()) == pytest.approx(size, rel=1e-4)
                (batch**3).sum().backward()  # the mean and the scale have gradients
                bias = pictures.backbone.full7.bias.grad
                assert bias is not None
                assert bias.abs().max() > 0


def test_the_layer_fits_the_features_of_the_trained_network(pictures):
    labels = np.random.default_rng(1).standard_normal((IMAGES, 4)).astype(np.float32)
    found = extract(pictures.backbone, pictures.source, device="cpu").values
    # steps that move what all features have in common further than their differences
    chosen = {"k1": 6, "k2": 3, "targets": "binary", "batch_size": 30, "epochs": 20}
    chosen |= {"learning_rate": 2.0, "final_learning_rate": 0.02, "network_epochs": 3}
    head = fit_head(
        found,
        16,
        settings("fast", **chosen, keep_better=False),
        seed=0,
        device="cpu",
        label_features=labels,
        pictures=pictures,
        depth="network",
    )
    assert pictures.backbone.origin == "trained from random"
    now = extract(pictures.backbone, pictures.source, device="cpu").values
    before, after = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (found, now))
    drift, spread = after.mean(axis=0) - before.mean(axis=0), before.std(axis=0)
    assert np.linalg.norm(drift) > np.linalg.norm(spread)
    outputs = after @ head.weight.T + head.bias
    assert np.abs(outputs.mean(axis=0)).mean() < np.abs(outputs).mean() / 2
