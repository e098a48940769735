"""The layer in NumPy: the same as by torch, step for step, and no need of torch."""

import numpy as np
import pytest

from ddh.neighbours import label_groups, pairwise_labels
from ddh.train.head_training import train_head
from ddh.train.linear import LinearTraining, fit_linear, standardised, trains
from ddh.train.settings import settings


def clusters(n=300, d=24):
    rng = np.random.default_rng(3)
    y = rng.integers(0, 6, n)
    return (3 * rng.standard_normal((6, d))[y] + rng.standard_normal((n, d))).astype(np.float32), y


@pytest.mark.parametrize(
    ("preset", "changes", "labelled"),
    [
        ("fast", {"epochs": 6}, False),
        ("fast", {"epochs": 6}, True),
        ("fast", {"epochs": 6, "alpha": 5.0}, False),
        ("fast", {"epochs": 6, "pairs": "batch"}, False),
        ("fast", {"epochs": 6, "pairs": "batch", "alpha": 2.0}, True),
        ("fast", {"epochs": 4, "centre": False, "weight_decay": 1e-3}, False),
        ("paper", {"epochs": 6, "lambda2": 1e-2}, False),
        ("paper", {"epochs": 6, "momentum": 0.0}, True),
    ],
)
def test_numpy_and_torch_train_the_same_layer(preset, changes, labelled):
    X, y = clusters()
    chosen = settings(preset, batch_size=64, k1=8, k2=4, **changes)
    S = label_groups(y) if labelled else pairwise_labels(X, 8, 4)
    ours = fit_linear(X, S, 12, chosen, seed=5)
    theirs = train_head(
        X, S, 12, chosen, seed=5, device="cpu", pictures=None, depth="head", start=None,
        folder=None, resume=False, identity={}, again=None,
    )  # fmt: skip
    assert np.allclose(ours[0], theirs[0], rtol=2e-3, atol=2e-5 * np.abs(theirs[0]).max() + 1e-6)
    assert np.allclose(ours[1], theirs[1], rtol=2e-3, atol=1e-3)
    assert [set(entry) for entry in ours[2]] == [set(entry) for entry in theirs[2]]
    for mine, its in zip(ours[2], theirs[2], strict=True):
        assert mine == pytest.approx(its, rel=1e-3)
    codes = [np.sign(X @ weight.T + bias) for weight, bias, _ in (ours, theirs)]
    assert (codes[0] == codes[1]).mean() > 0.999


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_the_gradient_is_that_of_the_sum_over_all_pairs(labelled, alpha):
    X, y = clusters(40, 6)
    S = label_groups(y) if labelled else pairwise_labels(X, 5, 3)
    chosen = settings("fast", alpha=alpha, batch_size=8)
    if not trains(chosen, S):
        pytest.skip("by torch")
    phi, _, _ = standardised(X, chosen)
    training = LinearTraining(phi, S, 4, chosen, seed=0)
    rows = np.arange(3, 11)
    z = training.outputs[rows] + 0
    found, value = training.gradient(rows, z)
    dense = np.where((S.to_csr() if labelled else S).toarray() != 0, 1.0, -1.0)
    weights = np.where(dense > 0, alpha, 1.0)
    np.fill_diagonal(weights, 0)

    def J1(outputs):
        off = outputs @ training.outputs.T.astype(float) / 4 - dense[rows]
        return (weights[rows] * off**2).sum() / 2 / (len(rows) * 40)

    assert value == pytest.approx(J1(z.astype(float)), rel=1e-5)
    for place in ((0, 0), (4, 2), (7, 3)):
        step = np.zeros(z.shape)
        step[place] = 1e-4
        slope = (J1(z + step) - J1(z - step)) / 2e-4
        assert found[place] == pytest.approx(slope, rel=1e-3, abs=1e-6)


def test_weighted_labelled_pairs_are_left_to_torch():
    _, y = clusters(30, 4)
    assert not trains(settings("fast", alpha=2.0), label_groups(y))


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    from ddh._core.errors import ModelError

    X, _ = clusters(60, 5)
    S = pairwise_labels(X, 5, 3)
    chosen = settings("fast", epochs=2, batch_size=16)
    fit_linear(X, S, 4, chosen, seed=0, folder=tmp_path, identity={"data": "a"})
    with pytest.raises(ModelError, match="data = a, not b"):
        fit_linear(X, S, 4, chosen, seed=0, folder=tmp_path, resume=True, identity={"data": "b"})
    (tmp_path / "training.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="damaged"):
        fit_linear(X, S, 4, chosen, seed=0, folder=tmp_path, resume=True)
