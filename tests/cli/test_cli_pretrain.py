"""`ddh pretrain`: from pictures to a weights file, and on to codes."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import ddh
from ddh._core.errors import InputError
from ddh.backbones import create
from ddh.cli import cli


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "pictures.npy"
    np.save(path, rng.integers(0, 256, (24, 8, 8, 3), dtype=np.uint8))
    return path


def run(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)


OPTIONS = ("--backbone", "resnet18-tiny", "--weights", "random", "--size", 8, "--device", "cpu")


def test_pretrain_then_fit(pictures, tmp_path):
    weights, model = tmp_path / "w.safetensors", tmp_path / "m.ddh"
    result = run("pretrain", pictures, "-o", weights, *OPTIONS, "--epochs", 1, "--batch-size", 12,
                 "--json")  # fmt: skip
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["origin"] == "byol for 1 epochs from random"
    assert document["diagnostics"][-1]["step"] == 2
    assert not weights.with_name("w.safetensors.work").exists()
    assert weights.stat().st_size < 25e6  # half precision
    run("fit", pictures, "-o", model, "--backbone", "auto", "--weights", weights, "--bits", 8,
        "--epochs", 1, "--device", "cpu", "--quiet")  # fmt: skip
    loaded = ddh.load(model)
    assert loaded.encode(np.load(pictures)).shape == (24, 1)
    with pytest.raises(InputError, match="take the backbone 'auto'"):
        create("resnet50-tiny", weights)


def test_a_folder_of_the_user_is_not_deleted(pictures, tmp_path):
    """The run keeps its files beside the weights; what else lies there stays."""
    work = tmp_path / "w.safetensors.work"
    work.mkdir()
    (work / "mine.txt").write_text("keep")
    run("pretrain", pictures, "-o", tmp_path / "w.safetensors", *OPTIONS, "--epochs", 1,
        "--batch-size", 12, "--quiet", "--resume")  # fmt: skip
    assert [path.name for path in work.iterdir()] == ["mine.txt"]


def test_wrong_arguments_are_refused(pictures, tmp_path):
    with pytest.raises(InputError, match="either epochs, steps or minutes"):
        run("pretrain", pictures, "-o", tmp_path / "w.safetensors", *OPTIONS)
    with pytest.raises(InputError, match=r"\.safetensors"):
        run("pretrain", pictures, "-o", tmp_path / "w.pth", *OPTIONS, "--epochs", 1)
    with pytest.raises(InputError, match="'auto' is the one of a weights file"):
        create("auto")
    features = tmp_path / "features.npy"
    np.save(features, np.zeros((24, 8), np.float32))
    with pytest.raises(InputError, match="needs the images"):
        run("pretrain", features, "-o", tmp_path / "w.safetensors", *OPTIONS, "--epochs", 1)


def test_a_model_can_pretrain_its_own_backbone(pictures):
    model = ddh.DDH(
        8, backbone="resnet18-tiny", weights="random", size=8, epochs=1, device="cpu",
        pretrain={"epochs": 1, "batch_size": 12},
    )  # fmt: skip
    model.fit(np.load(pictures))
    assert model._backbone.origin == "byol for 1 epochs from random"
    assert model.pretraining_[-1]["step"] == 2
    with pytest.raises(InputError, match="no setting 'minute'"):
        ddh.DDH(8, pretrain={"minute": 1}).fit(np.load(pictures))
    with pytest.raises(InputError, match="needs pictures"):
        ddh.DDH(8, pretrain=1).fit(np.zeros((24, 8), np.float32))
