"""The map's layout: neighbours stay neighbours, whatever the codes, and always the same way."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from ddh.codes import hamming, search
from ddh.hashers import ITQ
from ddh.serve import layout as module
from ddh.serve.layout import layout, principal_components


@pytest.fixture(scope="module")
def digits():
    features, labels = load_digits(return_X_y=True)
    features, labels = features[:900], labels[:900]
    return ITQ(64).fit(features).encode(features), labels


def nearest(points, k):
    apart = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1)[:, :k]


def preservation(points, codes, k=15):
    """Share of the k nearest points whose codes are as near as the k nearest codes."""
    distances = hamming(codes, codes).astype(int)
    np.fill_diagonal(distances, 10_000)
    reach = np.sort(distances, axis=1)[:, k - 1 : k]
    return (np.take_along_axis(distances, nearest(points, k), axis=1) <= reach).mean()


def test_neighbours_stay_together_far_better_than_by_two_components(digits):
    codes, labels = digits
    points, plane = layout(codes), principal_components(codes)
    ours, theirs = preservation(points, codes), preservation(plane, codes)
    assert ours > 1.5 * theirs, (ours, theirs)
    same = (labels[nearest(points, 15)] == labels[:, None]).mean()
    assert same > 0.85
    assert same > 0.2 + (labels[nearest(plane, 15)] == labels[:, None]).mean()


def test_the_same_codes_give_the_same_map(digits):
    codes = digits[0][:200]
    assert (layout(codes) == layout(codes)).all()


def test_progress_goes_up_to_one_and_can_stop_the_work(digits):
    told = []
    layout(digits[0][:100], told.append)
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0, 1)

    def stop(done):
        if done > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        layout(digits[0][:100], stop)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5, 20])
@pytest.mark.parametrize("kind", ["random", "equal", "two"])
def test_small_and_odd_sets(rows, kind):
    rng = np.random.default_rng(rows)
    codes = rng.integers(0, 256, (rows, 3), dtype=np.uint8)
    if kind != "random":
        codes[:] = 7
    if kind == "two":
        codes[::2] = 200
    points = layout(codes)
    assert points.shape == (rows, 2)
    assert points.dtype == np.float32
    assert np.isfinite(points).all()
    assert rows == 0 or np.abs(points).max() <= 1
    assert len(np.unique(points, axis=0)) == rows  # equal codes too can be told apart


def test_rows_beyond_the_sample_are_placed_by_their_nearest(digits, monkeypatch):
    codes, labels = digits
    monkeypatch.setattr(module, "LAID_OUT", 450)
    points = layout(codes)
    same = (labels[nearest(points, 10)] == labels[:, None]).mean()
    assert same > 0.8
    assert preservation(points, codes) > 1.3 * preservation(principal_components(codes), codes)


def test_principal_components_are_those_of_the_bits(digits):
    codes = digits[0]
    bits = np.unpackbits(codes, axis=1).astype(float)
    bits -= bits.mean(axis=0)
    _, values, _ = np.linalg.svd(bits, full_matrices=False)
    plane = principal_components(codes)
    assert np.allclose((plane.astype(float) ** 2).sum(axis=0), values[:2] ** 2, rtol=1e-3)
    assert abs((plane[:, 0] * plane[:, 1]).sum()) < 1e-2 * values[0] ** 2


def test_edges_join_both_ways_of_being_near(digits):
    codes = np.unique(digits[0][:300], axis=0)
    first, second, weight = module._graph(codes)
    found = search(codes, codes, module.NEIGHBOURS + 1).indices[:, 1:]
    expected = {(min(i, j), max(i, j)) for i, row in enumerate(found.tolist()) for j in row}
    assert set(zip(first.tolist(), second.tolist(), strict=True)) == expected
    assert (weight > 0).all()
    assert (weight <= 1).all()
