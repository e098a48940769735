"""`ddh bench depths` on a few pictures, with a narrow network."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from ddh._core.errors import InputError
from ddh.backbones import ResNet
from ddh.bench.results import Outcome
from ddh.cli import cli
from ddh.evaluation import RetrievalSplit
from ddh.images import LabelledImages, open_images


@pytest.fixture
def shades(monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.arange(150) % 2
    pixels = rng.integers(0, 60, (150, 8, 8, 3)) + 150 * labels[:, None, None, None]
    data = LabelledImages(open_images(pixels.astype(np.uint8)), labels, "shades", tuple("ab"))
    train = np.arange(120)
    split = RetrievalSplit("shades", np.arange(120, 150), train, train, 1000)
    monkeypatch.setattr("ddh.bench.depths.cifar10_images", lambda options: (data, split))
    made = []

    def create(name, weights, size):
        made.append((name, weights))
        network = ResNet("resnet18", 8, tiny_stem=True, width=4)
        network.origin = "a file"
        return network

    monkeypatch.setattr("ddh.hashers.ddh.create", create)
    return made


def bench(folder, *words):
    fixed = ["bench", "depths", "--data", str(folder), "-o", str(folder / "results"), "-q"]
    fixed += ["--backbone", "resnet18-tiny", "--weights", "random", "--device", "cpu"]
    result = CliRunner().invoke(cli, [*fixed, *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return Outcome.read(folder / "results" / "depths")


@pytest.mark.filterwarnings("ignore:depth")  # a training that did not help is not kept
def test_depths_side_by_side(shades, tmp_path):
    words = ["--bits", "8,16", "--seeds", "0", "--set", "DDH.network_epochs=1"]
    outcome = bench(tmp_path, *words)
    assert [row[0] for row in outcome.tables[0].rows] == ["head", "last-stage", "network"]
    assert outcome.tables[0].columns == ["depth", "8 bit", "16 bit", "seconds"]
    assert min(record["mAP"] for record in outcome.records) > 0.9  # dark against bright
    network = outcome.records[-1]["history"]
    assert "stability" in json.dumps(network)  # the network was trained, and judged
    assert shades == [("resnet18-tiny", "random")] * 6
    bench(tmp_path, *words)
    assert len(shades) == 6  # nothing is measured twice


def test_an_unknown_depth(shades, tmp_path):
    with pytest.raises(InputError, match="no depth layer: head, last-stage, network"):
        bench(tmp_path, "--depths", "layer")
