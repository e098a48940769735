"""The training loop of the deep methods: repeatable, polite to torch's generators, resumable."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ddh._core.errors import DDHError, InputError, ModelError
from ddh.hashers import CNNH, DPSH, DSCH, HashNet, create, load
from ddh.hashers.deep_training import DeepTraining, HashLayers, Objective, seeded
from ddh.train.inputs import FeatureInputs

METHODS = [
    "SemanticHashing", "DH", "DeepBit", "GreedyHash", "BiHalf", "CIBHash", "SDC", "CroVCA", "CNNH",
    "DSRH", "DSCH", "DRSCH", "DPSH", "HashNet", "CSQ", "OrthoHash",
]  # fmt: skip
QUICK = {"hidden": (12,), "epochs": 2, "batch_size": 16, "device": "cpu"}


def clusters(rows: int = 60, columns: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, rows)
    centres = rng.standard_normal((3, columns)) * 3
    return (centres[y] + rng.standard_normal((rows, columns))).astype(np.float32), y


def squares(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
    """Outputs drawn to zero, with noise: a loss that needs the random generator."""
    return (outputs + 0.01 * torch.randn_like(outputs)).square().mean()


def stop(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
    """Squares until the third epoch, then an interruption."""
    if progress >= 0.5:
        raise KeyboardInterrupt
    return squares(outputs, rows, progress)


def new_run(objective: Objective, **changes: object) -> DeepTraining:
    with seeded(3, torch.device("cpu")):
        layers = HashLayers([10, 8, 4])
    features = torch.from_numpy(clusters()[0])
    settings = {
        "epochs": 6,
        "batch_size": 16,
        "learning_rate": 1e-2,
        "weight_decay": 1e-4,
        "seed": 5,
        "label": "Training",
    }
    device = torch.device("cpu")
    return DeepTraining(FeatureInputs(features), layers, objective, device, **(settings | changes))


def weights(run: DeepTraining) -> list[Tensor]:
    return [parameter.detach() for parameter in run.layers.parameters()]


def test_training_lowers_the_loss_and_repeats() -> None:
    first, second = new_run(squares), new_run(squares)
    losses = first.train()
    assert losses.shape == (6,)
    assert losses[-1] < 0.3 * losses[0]
    assert np.array_equal(losses, second.train())
    assert all(map(torch.equal, weights(first), weights(second)))


def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = new_run(squares)
    losses = whole.train()
    file = tmp_path / "work" / "training.pt"
    with pytest.raises(KeyboardInterrupt):
        new_run(stop, checkpoint=file).train()
    resumed = new_run(squares, checkpoint=file, resume=True)
    assert np.array_equal(resumed.train(), losses)
    assert all(map(torch.equal, weights(whole), weights(resumed)))


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "training.pt"
    new_run(squares, checkpoint=file).train()
    with pytest.raises(ModelError, match="batch_size = 16, not 8"):
        new_run(squares, checkpoint=file, resume=True, batch_size=8).train()
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ModelError, match="damaged"):
        new_run(squares, checkpoint=file, resume=True).train()


def test_a_loss_that_is_no_number_stops_the_training() -> None:
    def diverging(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
        return outputs.sum() * float("nan")

    with pytest.raises(DDHError, match="lower learning_rate"):
        new_run(diverging).train()


def test_batches_are_of_equal_size() -> None:
    sizes: list[int] = []

    def watching(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
        sizes.append(len(rows))
        return squares(outputs, rows, progress)

    new_run(watching, epochs=1, batch_size=59).train()
    assert sizes == [30, 30]  # not 59 and 1


@pytest.mark.parametrize("name", METHODS)
def test_the_last_batch_may_be_one_row(name: str) -> None:
    X, y = clusters(rows=13)
    model = create(name, bits=6, **(QUICK | {"batch_size": 4})).fit(X, y)
    assert np.isfinite(model.outputs(X)).all()


@pytest.mark.parametrize("name", METHODS)
def test_torch_s_own_random_numbers_are_left_alone(name: str, tmp_path: Path) -> None:
    X, y = clusters()
    torch.manual_seed(11)
    expected = torch.rand(4)
    torch.manual_seed(11)
    model = create(name, bits=6, **QUICK).fit(X, y)
    codes = model.transform(X)
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").transform(X), codes)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("name", METHODS)
def test_the_seed_and_only_the_seed_decides(name: str) -> None:
    X, y = clusters()
    first, again = (create(name, bits=6, random_state=1, **QUICK).fit(X, y) for _ in range(2))
    other = create(name, bits=6, random_state=2, **QUICK).fit(X, y)
    assert np.array_equal(first.losses_, again.losses_)
    assert first.model_id == again.model_id
    if name != "DH":  # started by principal components: its seed decides the batches alone
        assert not np.array_equal(first.losses_, other.losses_)
    create(name, bits=6, random_state=None, **QUICK).fit(X, y)


@pytest.mark.parametrize("name", METHODS)
def test_codes_do_not_depend_on_the_batch(name: str) -> None:
    X, y = clusters()
    model = create(name, bits=11, **QUICK).fit(X, y)
    whole = model.transform(X)
    alone = np.concatenate([model.transform(X[i : i + 1]) for i in range(len(X))])
    assert np.array_equal(whole, alone)
    assert np.array_equal(whole, model.transform(X.astype(np.float64)))


@pytest.mark.parametrize("name", ["CNNH", "DSRH", "DSCH", "DRSCH", "DPSH", "HashNet"])
def test_supervised_methods_take_label_matrices_and_skip_unlabelled_rows(name: str) -> None:
    X, y = clusters()
    matrix = np.eye(3, dtype=int)[y]
    by_class = create(name, bits=6, **QUICK).fit(X, y)
    by_matrix = create(name, bits=6, **QUICK).fit(X, matrix)
    assert np.array_equal(by_class.transform(X), by_matrix.transform(X))
    partly = np.where(np.arange(len(y)) < 40, y, -1)
    some = create(name, bits=6, **QUICK).fit(X, partly)
    first = create(name, bits=6, **QUICK).fit(X[:40], y[:40])
    assert np.array_equal(some.transform(X), first.transform(X))
    with pytest.raises(InputError, match="carry a label"):
        create(name, bits=6, **QUICK).fit(X, np.full(len(X), -1))
    with pytest.raises(InputError, match="learns from labels"):
        create(name, bits=6, **QUICK).fit(X)


def test_cnnh_trains_on_its_sample_alone() -> None:
    X, y = clusters(rows=80)
    model = CNNH(bits=6, sample=30, **QUICK).fit(X, y)
    chosen = np.sort(np.random.default_rng(0).choice(80, 30, replace=False))
    assert np.allclose(model.mean_, X[chosen].mean(axis=0, dtype=np.float64))
    assert (np.diff(model.stage1_losses_) <= 0).all()
    with pytest.raises(InputError, match="sample must be 2 to 5,000"):
        CNNH(sample=6000).fit(X, y)


def test_dsch_sorts_its_bits_by_weight() -> None:
    X, y = clusters()
    model = DSCH(bits=12, **(QUICK | {"epochs": 20})).fit(X, y)
    assert model.bit_weights_.shape == (12,)
    assert (np.diff(model.bit_weights_) <= 0).all()
    assert model.bit_weights_.mean() == pytest.approx(1.0, rel=1e-5)
    assert model.bit_weights_[0] > model.bit_weights_[-1]


def test_dpsh_memory_is_one_row_an_image() -> None:
    """No n x n array: the buffer that all pairs run against is (n, bits)."""
    X, y = clusters(rows=50)
    objective = DPSH(bits=6)._objective(
        HashLayers([10, 6]), torch.from_numpy(X), torch.from_numpy(y)
    )
    assert {name: tuple(value.shape) for name, value in objective.named_buffers()} == {
        "memory": (50, 6)
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": (0,)}, "widths of layers"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch_size": 1}, "batch_size must be at least 2"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"depth": "deep"}, "depth"),
        ({"depth": "network"}, "fit on images"),
        ({"device": "abacus"}, "device"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict, message: str) -> None:
    X, y = clusters()
    with pytest.raises(InputError, match=message):
        HashNet(bits=6, **settings).fit(X, y)


def test_layers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    X, y = clusters()
    model = HashNet(bits=6, **QUICK).fit(X, y)
    model.set_params(hidden=(13,))
    with pytest.raises(ModelError, match="do not fit"):
        HashNet._from_saved(*model._description())


def test_a_large_offset_and_constant_columns_do_no_harm() -> None:
    X, y = clusters()
    far = np.concatenate([X.astype(np.float64) + 1e7, np.full((len(X), 2), 3.3e7)], axis=1)
    for name in ("HashNet", "SemanticHashing"):
        model = create(name, bits=6, **QUICK).fit(far, y)
        assert np.isfinite(model.losses_).all()
        assert len(np.unique(model.transform(far), axis=0)) > 1
