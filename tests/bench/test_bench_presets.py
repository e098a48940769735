"""`ddh bench presets` on a few pictures, with a narrow network."""

from importlib import import_module

import numpy as np
import pytest
from click.testing import CliRunner

from ddh._core.errors import InputError
from ddh.backbones import ResNet
from ddh.bench.results import Outcome
from ddh.cli import cli
from ddh.images import LabelledImages, open_images


@pytest.fixture
def shades(monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    pixels = rng.integers(0, 60, (200, 8, 8, 3)) + 150 * labels[:, None, None, None]
    data = LabelledImages(open_images(pixels.astype(np.uint8)), labels, "shades", tuple("ab"))
    monkeypatch.setattr("ddh.bench.presets.cifar10", lambda root, part: data)
    made = []

    def create(name, weights, size):
        made.append(name)
        network = ResNet("resnet18", 8, tiny_stem=True, width=4)
        network.origin = "a file"
        return network

    monkeypatch.setattr("ddh.hashers.ddh.create", create)
    monkeypatch.setattr("ddh.hashers.ddh.default_encoder", lambda *network: "torch")
    # the function `ddh.train.settings` hides the module of that name
    monkeypatch.setattr(import_module("ddh.train.settings"), "LEAST_STEPS", 240)
    return made


def bench(folder, *words):
    fixed = ["bench", "presets", "--data", str(folder), "-o", str(folder / "results"), "-q"]
    result = CliRunner().invoke(cli, [*fixed, "--device", "cpu", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return Outcome.read(folder / "results" / "presets")


def test_presets_side_by_side(shades, tmp_path):
    words = ["--images", "80", "--bits", "8,16"]
    outcome = bench(tmp_path, *words)
    assert [row[0] for row in outcome.tables[0].rows] == ["fast", "quality"]
    assert outcome.tables[0].columns == ["preset", "8 bit", "16 bit", "seconds"]
    assert min(record["mAP"] for record in outcome.records) > 0.9  # dark against bright
    assert len(shades) == len(outcome.records) == 4
    bench(tmp_path, *words)
    assert len(shades) == 4  # nothing is measured twice


def test_another_version_or_pretraining_is_measured_again(shades, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("ddh.train.settings"), "LEAST_STEPS", 1)
    words = ["--images", "40", "--bits", "8", "--presets", "fast", "--seeds", "0,1"]
    outcome = bench(tmp_path, *words)
    assert [record["seed"] for record in outcome.records] == [0, 1]
    assert " ± " in outcome.tables[0].rows[0][1]
    stages = ({"objective": "byol", "minutes": 1.0},)
    monkeypatch.setattr("ddh.pretrain.recipe.preset_stages", lambda *given: stages)
    bench(tmp_path, *words)
    assert len(shades) == 4
    monkeypatch.setattr("ddh.__version__", "0.0.0")
    bench(tmp_path, *words)
    assert len(shades) == 6


def test_more_pictures_than_there_are(shades, tmp_path):
    with pytest.raises(InputError, match="10 to 160, not 170"):
        bench(tmp_path, "--images", "170")
