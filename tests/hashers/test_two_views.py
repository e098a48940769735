"""Two views per image: of ready features, of extracted views, and what the objective gets."""

import numpy as np
import pytest
import torch

from ddh._core.errors import InputError
from ddh.hashers import CIBHash, CroVCA
from ddh.hashers.deep_training import TwoViews
from ddh.train.inputs import FeatureInputs

PARTS, SEEDS = [np.array([3, 1]), np.array([0, 2])], [5, 6]


def features(rows: int = 4, dimensions: int = 50) -> torch.Tensor:
    return 1 + torch.rand(rows, dimensions, generator=torch.Generator().manual_seed(0))


def test_views_of_ready_features_are_two_different_dropouts():
    x = features()
    torch.manual_seed(0)
    inputs = TwoViews(FeatureInputs(x), FeatureInputs(x), 0.5)
    assert len(inputs) == 4
    for (rows, batch), part in zip(inputs.batches(PARTS, SEEDS), PARTS, strict=True):
        assert rows.tolist() == part.tolist()
        assert batch.shape == (4, 50)
        for view, row in zip(batch, np.tile(part, 2), strict=True):
            kept = view != 0
            assert 10 < kept.sum() < 40
            assert torch.allclose(view[kept], 2 * x[row][kept])
        assert not torch.equal(batch[:2], batch[2:])


def test_extracted_views_follow_the_images():
    plain, first, second = features(12).split(4)
    inputs = CIBHash(8)._feature_inputs(torch.cat((plain, first, second)), images=4)
    for (rows, batch), part in zip(inputs.batches(PARTS, SEEDS), PARTS, strict=True):
        assert torch.equal(batch[:2], first[part])
        assert torch.equal(batch[2:], second[part])
        assert rows.tolist() == part.tolist()


def test_ready_features_have_no_extracted_views():
    inputs = CIBHash(8, dropout=0.3)._feature_inputs(features(), images=4)
    assert isinstance(inputs, TwoViews)
    assert inputs.dropout == 0.3


def test_views_are_taken_of_images_with_a_frozen_network_only():
    assert CroVCA(8)._views() == 2
    assert CroVCA(8, depth="network")._views() == 0


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_impossible_dropout(dropout: float):
    with pytest.raises(InputError, match="dropout"):
        CIBHash(8, dropout=dropout).fit(np.eye(4))
