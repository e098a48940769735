"""Stored features: the cosines that order answers."""

import numpy as np
import pytest

from ddh.index.features import FeatureTransform


@pytest.fixture
def features():
    return np.random.default_rng(0).standard_normal((400, 24)).astype(np.float32)


def test_cosines_are_those_of_the_stored_components(features):
    transform = FeatureTransform.fit(features, 24)
    stored = transform.encode(features)
    found = transform.cosines(transform.unit(features[:5]), stored[None].repeat(5, axis=0))
    components = stored * transform.scales.astype(np.float64)
    components /= np.linalg.norm(components, axis=1, keepdims=True)
    unit = features[:5] / np.linalg.norm(features[:5], axis=1, keepdims=True)
    np.testing.assert_allclose(found, unit @ transform.projection.T @ components.T, atol=1e-6)


def test_the_cosine_of_a_row_and_itself_is_not_above_one(features):
    transform = FeatureTransform.fit(features, 24)
    stored = transform.encode(features)
    own = transform.cosines(transform.unit(stored), stored[:, None])
    assert own.max() <= 1
    np.testing.assert_allclose(own, 1, rtol=1e-6)
