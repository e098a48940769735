"""Deep methods end to end on tiny images, through a real (narrow) ResNet with random weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ddh.hashers.deep as deep
from ddh._core.errors import InputError
from ddh.backbones import ResNet
from ddh.hashers import DeepBit, HashNet, create, load
from ddh.train.features import Extractor

METHODS = [
    "SemanticHashing", "DH", "DeepBit", "GreedyHash", "BiHalf", "CIBHash", "SDC", "CroVCA", "CNNH",
    "DSRH", "DSCH", "DRSCH", "DPSH", "HashNet", "CSQ", "OrthoHash",
]  # fmt: skip
QUICK = {"hidden": (16,), "batch_size": 16, "device": "cpu", "weights": "random"}


@pytest.fixture(autouse=True)
def _narrow_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    """ResNet-18 for pictures of 8 pixels, eight times narrower: milliseconds a batch."""

    def narrow(name: str, weights: str | None, size: int | None) -> ResNet:
        assert (name, weights, size) == ("resnet18-tiny", "random", None)
        return ResNet("resnet18", 8, tiny_stem=True, width=8)

    monkeypatch.setattr(deep, "create", narrow)


def pictures(count: int = 48, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two kinds: horizontal and vertical stripes of random colours and phases, with noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    stripes = (np.arange(8) // 2 + rng.integers(0, 2, count)[:, None]) % 2
    base = stripes[:, :, None] * np.ones((1, 1, 8))
    base = np.where(y[:, None, None] == 1, base.transpose(0, 2, 1), base)
    colours = rng.uniform(100, 220, (count, 1, 1, 3))
    noise = rng.normal(0, 10, (count, 8, 8, 3))
    return np.clip(base[..., None] * colours + noise, 0, 255).astype(np.uint8), y


def make(name: str, **settings: object):
    return create(name, bits=10, backbone="resnet18-tiny", **(QUICK | settings))


def state(model) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model._backbone.state_dict().items()}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("depth", ["head", "network"])
def test_fit_encode_save_and_load(name: str, depth: str, tmp_path: Path) -> None:
    images, y = pictures()
    model = make(name, depth=depth, epochs=2).fit(images, y)
    codes = model.transform(images)
    assert codes.shape == (48, 10)
    assert set(np.unique(codes)) <= {-1, 1}
    model.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert np.array_equal(back.transform(images), codes)
    assert np.array_equal(back.encode(images), model.encode(images))
    assert back.model_id == model.model_id


def test_what_learns_is_what_the_depth_says() -> None:
    images, y = pictures()
    trained = {
        depth: state(make("HashNet", depth=depth, epochs=1).fit(images, y))
        for depth in ("head", "last stage", "network")
    }
    changed = {
        depth: {
            key.split(".")[0]
            for key, value in trained[depth].items()
            if not torch.equal(value, trained["head"][key])
        }
        for depth in ("last stage", "network")
    }
    assert changed["last stage"] == {"layer4"}
    assert changed["network"] == {"conv1", "bn1", "layer1", "layer2", "layer3", "layer4"}


@pytest.mark.parametrize("origin", ["random", "file sha256:0123"])
def test_trained_weights_keep_their_statistics(
    origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes are made with the statistics of the batch norms: trained ones must not drift."""
    started: dict[str, torch.Tensor] = {}

    def narrow(*_: object) -> ResNet:
        network = ResNet("resnet18", 8, tiny_stem=True, width=8)
        network.origin = origin
        started.update({name: value.clone() for name, value in network.state_dict().items()})
        return network

    monkeypatch.setattr(deep, "create", narrow)
    images, y = pictures()
    model = make("HashNet", depth="network", epochs=1).fit(images, y)
    ended = state(model)
    kept = [torch.equal(started[key], ended[key]) for key in ended if "running_mean" in key]
    assert all(kept) if origin != "random" else not any(kept)
    assert not torch.equal(started["conv1.weight"], ended["conv1.weight"])
    assert model._backbone.origin == f"trained from {origin}"


def test_the_head_on_images_is_the_method_on_the_features_of_the_images() -> None:
    images, y = pictures()
    model = make("HashNet", epochs=3).fit(images, y)
    features = Extractor(model._backbone, "cpu")(images)
    assert np.array_equal(model.transform(features), model.transform(images))


def test_outputs_are_centred_on_the_labelled_pictures_whatever_the_depth() -> None:
    images, y = pictures()
    some = np.where(np.arange(len(y)) % 3 > 0, y, -1)  # the first is not one of them
    model = make("OrthoHash", depth="last stage", epochs=1).fit(images, some)
    means = model.outputs(images[some >= 0]).mean(axis=0)
    np.testing.assert_allclose(means, 0, atol=1e-4)


def test_end_to_end_training_learns() -> None:
    """New stripes find their own kind among the training images."""
    images, y = pictures(96)
    queries, expected = pictures(32, seed=1)
    settings = {"hidden": (), "epochs": 8, "learning_rate": 3e-3, "backbone_lr_scale": 1.0}
    model = make("HashNet", depth="network", **settings).fit(images, y)
    assert model.losses_[-1] < 0.7 * model.losses_[0]
    products = model.transform(queries).astype(int) @ model.transform(images).T.astype(int)
    nearest = y[np.argsort(-products, axis=1)[:, :10]]
    assert (nearest == expected[:, None]).mean() > 0.85


def test_same_seed_same_codes_end_to_end() -> None:
    images, y = pictures()
    first, again = (make("DPSH", depth="last stage", epochs=2).fit(images, y) for _ in range(2))
    assert np.array_equal(first.losses_, again.losses_)
    assert first.model_id == again.model_id


def test_a_folder_with_a_broken_file_and_a_resumed_run(tmp_path: Path) -> None:
    images, y = pictures(20)
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, pixels in enumerate(images):
        Image.fromarray(pixels).save(folder / f"{number:03}.png")
    (folder / "007.png").write_bytes(b"not a picture")
    model = make("HashNet", depth="last stage", epochs=4)
    work = tmp_path / "work"
    whole = make("HashNet", depth="last stage", epochs=4).fit(folder, y)
    assert [failure["index"] for failure in whole.skipped_] == [7]

    interrupt_after_two_epochs(model, folder, y, work)
    assert any(work.iterdir())
    with pytest.raises(InputError, match="interrupted run"):
        model.fit(folder, y, checkpoint_dir=work)
    model.fit(folder, y, checkpoint_dir=work, resume=True)
    assert not work.exists()
    assert np.array_equal(model.losses_, whole.losses_)
    usable = [folder / f"{number:03}.png" for number in range(20) if number != 7]
    assert np.array_equal(model.transform(usable), whole.transform(usable))
    with pytest.raises(InputError, match="007"):
        model.transform(folder)
    batches = list(model.encode_images(folder))
    assert sum(len(batch.indices) for batch in batches) == 19
    assert [f.index for batch in batches for f in batch.failures] == [7]


def interrupt_after_two_epochs(model, folder: Path, y: np.ndarray, work: Path) -> None:
    """Press control-C at the first step of the third epoch."""
    original = model._objective

    def objective(*arguments):
        inner = original(*arguments)

        def stopping(outputs, rows, progress):
            if progress >= 0.5:
                raise KeyboardInterrupt
            return inner(outputs, rows, progress)

        return stopping

    model._objective = objective
    with pytest.raises(KeyboardInterrupt):
        model.fit(folder, y, checkpoint_dir=work)
    del model._objective


def test_deepbit_s_second_stage_makes_bits_survive_rotations() -> None:
    """Stage 2 lowers the share of bits that flip when the training images are turned."""
    from ddh.hashers.deepbit import rotate

    images, _ = pictures(64)
    settings = QUICK | {"hidden": (), "epochs": 100, "learning_rate": 3e-3, "rotation_weight": 1.0}
    model = DeepBit(bits=16, backbone="resnet18-tiny", **settings).fit(images)
    assert len(model.stage2_losses_) == 10
    assert model.stage2_losses_[-1] < model.stage2_losses_[0]

    class StageOne(DeepBit):
        def _second_stage(self, run, features, pictures):
            return np.zeros(0)

    without = StageOne(bits=16, backbone="resnet18-tiny", **settings).fit(images)
    flips = [
        np.mean([np.mean(m.transform(rotate(images, a)) != m.transform(images)) for a in (-10, 10)])
        for m in (model, without)
    ]
    assert flips[0] < flips[1]


def test_models_of_features_and_of_images_say_what_they_take() -> None:
    images, y = pictures()
    flat = images.reshape(len(images), -1)
    with pytest.raises(InputError, match="fitted on ready features"):
        HashNet(bits=8, hidden=(8,), epochs=1).fit(flat, y).transform(images)
    with pytest.raises(InputError, match="learns from labels"):
        make("HashNet").fit(images)
    with pytest.raises(InputError, match="48 rows"):
        make("HashNet").fit(images, y[:40])
    with pytest.raises(InputError, match="fitted on 64 dimensions"):
        make("HashNet", epochs=1).fit(images, y).transform(flat)
