"""`ddh export`: from a weights file to a network that `ddh fit` takes."""

import numpy as np
import pytest
from click.testing import CliRunner
from command_line import run, text

from ddh._core.errors import InputError
from ddh.backbones import create, save
from ddh.cli import cli

pytest.importorskip("onnx")


@pytest.fixture
def weights(tmp_path):
    save(create("resnet18-tiny", "random", 8), tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def test_export_then_fit(weights, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "p.npy", rng.integers(0, 256, (24, 8, 8, 3), dtype=np.uint8))
    network, model = tmp_path / "w.onnx", tmp_path / "m.ddh"
    done = run("export", weights, "-o", network)
    assert (done["name"], done["dimensions"], done["preprocessing"]["size"]) == ("resnet18", 512, 8)
    assert done["bytes"] == network.stat().st_size
    run("fit", tmp_path / "p.npy", "-o", model, "--backbone", "auto", "--weights", network)
    fitted = run("info", model)["fitted"]["backbone"]
    assert (fitted["encoder"], fitted["origin"]) == ("onnx", done["origin"])


def test_size_and_backbone_are_chosen(tmp_path):
    options = ("--backbone", "efficientnet-lite0", "--size", 64, "-o", tmp_path / "lite0.onnx")
    said = text("export", "auto", *options)
    assert "efficientnet-lite0 at 64 pixels, 1280 features" in said
    assert f"--weights {tmp_path / 'lite0.onnx'}" in said


def test_what_cannot_be_exported_is_said(weights, tmp_path):
    for arguments, message in (
        (("auto", "-o", tmp_path / "w.onnx"), "name a backbone"),
        ((tmp_path / "none.safetensors", "-o", tmp_path / "w.onnx"), "no weights file"),
        ((weights, "-o", tmp_path / "w.safetensors"), "ends in .onnx"),
    ):
        with pytest.raises(InputError, match=message):
            CliRunner().invoke(cli, ["export", *map(str, arguments)], catch_exceptions=False)
