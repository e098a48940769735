import json

import numpy as np
import pytest
from alg1_oracle import labels_by_hand
from click.testing import CliRunner

from ddh.bench.labels import clustered_features, clustered_lists, labels, naive_expansion

SMALL = ["--images", "600", "--dimensions", "16", "--lists", "700", "--naive", "260"]


def test_it_measures_every_part():
    result = CliRunner().invoke(labels, [*SMALL, "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    for part in ("knn", "plain knn", "expansion", "lists", "lists product", "small", "small naive"):
        assert found[part]["wall"] > 0
        assert found[part]["peak MB"] == 0 or found[part]["peak MB"] > 10


def test_its_naive_loop_is_alg_1():
    lists = clustered_lists(300, 5, np.random.default_rng(0))
    S = labels_by_hand(lists, 3)
    assert naive_expansion(lists, 3) == [set(np.flatnonzero(row)) for row in S]


@pytest.mark.parametrize("images", [256, 300, 1000])
def test_its_lists_are_lists(images):
    lists = clustered_lists(images, 15, np.random.default_rng(1))
    assert all(len({i, *row}) == 16 for i, row in enumerate(lists.tolist()))
    assert lists.min() >= 0
    assert lists.max() < images


def test_its_features_repeat():
    first, second = (clustered_features(300, 8, np.random.default_rng(2)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.min() == 0
