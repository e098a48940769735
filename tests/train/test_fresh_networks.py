"""Networks that start from random weights: how they are trained, and the layer on top of them."""

import numpy as np
import pytest
import torch
from scipy import sparse

from ddh.backbones.cnnf import CNNF
from ddh.images import open_images
from ddh.objective import GraphPositives
from ddh.train.distributed import SINGLE, Shard
from ddh.train.features import Pictures, extract
from ddh.train.head import fit_head
from ddh.train.head_training import HashingTask
from ddh.train.inputs import NetworkInputs
from ddh.train.network import HashingLayer
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


def test_the_layer_is_that_of_the_trained_features(pictures):
    labels = np.random.default_rng(1).standard_normal((IMAGES, 4)).astype(np.float32)
    found = extract(pictures.backbone, pictures.source, device="cpu").values
    chosen = {"k1": 6, "k2": 3, "targets": "binary", "batch_size": 30, "epochs": 20}
    chosen = settings("fast", **chosen, network_epochs=3, keep_better=False)
    given = {"seed": 0, "device": "cpu", "label_features": labels}
    head = fit_head(found, 16, chosen, **given, pictures=pictures, depth="network")
    assert pictures.backbone.origin == "trained from random"
    now = extract(pictures.backbone, pictures.source, device="cpu").values
    assert np.abs(now - found).max() > 0.1 * np.abs(found).max()
    alone = fit_head(now, 16, chosen, **given)
    np.testing.assert_allclose(head.weight, alone.weight, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(head.bias, alone.bias, rtol=1e-4, atol=1e-4)


def test_the_layer_fits_the_features_of_a_network_that_it_was_trained_with(pictures):
    """network_epochs=0: both learn from the start, and the layer is not fitted again."""
    labels = np.random.default_rng(1).standard_normal((IMAGES, 4)).astype(np.float32)
    found = extract(pictures.backbone, pictures.source, device="cpu").values
    # steps that move what all features have in common further than their differences
    chosen = {"k1": 6, "k2": 3, "targets": "binary", "batch_size": 30, "epochs": 3}
    chosen |= {"learning_rate": 2.0, "final_learning_rate": 0.02, "network_epochs": 0}
    head = fit_head(
        found,
        16,
        settings("fast", **chosen, backbone_lr_scale=0.001),
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


def test_the_others_have_the_codes_of_the_label_network():
    """J1 of a batch against codes that do not change, and no quantisation, by brute force."""
    rng = np.random.default_rng(2)
    S = np.triu(rng.random((IMAGES, IMAGES)) < 0.2, 1)
    S |= S.T
    features = torch.from_numpy(rng.standard_normal((IMAGES, 6), np.float32))
    outputs = rng.standard_normal((IMAGES, 8), np.float32)
    layer, rows = HashingLayer(6, 8, 0), torch.tensor([4, 50, 7])
    shard = Shard(SINGLE, IMAGES)
    positives = GraphPositives(sparse.csr_array(S))
    task = HashingTask(layer, features, positives, settings("fast").for_network(fresh=True), shard)
    task.learn_from(outputs)
    with torch.no_grad():
        terms = task.loss(features[rows], rows, 0.0)
        z = layer(features[rows]).numpy().astype(float)
    codes = np.where(outputs >= 0, 1.0, -1.0)
    pairs = (z @ codes.T / 8 - np.where(S[rows], 1, -1)) ** 2
    pairs[np.arange(3), rows] = 0
    assert float(terms["pairs"]) == pytest.approx(pairs.sum() / 2 / (3 * IMAGES), rel=1e-5)
    assert float(terms["loss"]) == pytest.approx(float(terms["pairs"]))
    assert np.array_equal(task.memory.outputs.numpy(), codes)


def test_random_weights_take_more_and_larger_steps():
    chosen = settings("fast")
    usual, fresh = chosen.for_network(), chosen.for_network(fresh=True)
    assert (usual.batch_size, fresh.batch_size) == (1024, 128)
    assert fresh.learning_rate == pytest.approx(7 * usual.learning_rate)
    assert usual.lambda1 == chosen.lambda1
    assert fresh.lambda1 == 0
    small = settings("fast", batch_size=50, backbone_lr_scale=0.01).for_network(fresh=True)
    assert small.batch_size == 50
    assert small.learning_rate == pytest.approx(chosen.learning_rate * 0.07)
