"""`ddh bench quality`, end to end on a little of CIFAR-10's form, with a narrow network."""

import json
import pickle

import numpy as np
import pytest
from click.testing import CliRunner

import ddh.backbones
from ddh.backbones import ResNet
from ddh.bench.quality import held_out
from ddh.cli import cli
from ddh.evaluation import RetrievalSplit


@pytest.fixture
def cifar(tmp_path):
    """The official layout with 6 x 40 pictures: dark and bright ones, striped and plain."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        labels = rng.integers(0, 4, 40)
        pixels = rng.integers(0, 60, (40, 3, 32, 32))
        pixels[labels % 2 == 1] += 150
        pixels[labels > 1, :, ::2] += 45
        content = {b"data": pixels.reshape(40, -1).astype(np.uint8), b"labels": labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(content))
    names = [f"kind {n}".encode() for n in range(10)]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}))
    return tmp_path


@pytest.fixture
def narrow(monkeypatch):
    real = ddh.backbones.create

    def create(name="auto", weights=None, size=None):
        if name == "auto":
            return real(name, weights, size)
        return ResNet("resnet18", 16, tiny_stem=True, width=4)

    monkeypatch.setattr(ddh.backbones, "create", create)


def test_pretraining_curve_and_table(cifar, narrow, tmp_path, monkeypatch):
    words = ["bench", "quality", "--data", str(cifar), "-o", str(tmp_path / "results"), "-q"]
    words += ["--bits", "8", "--seeds", "0", "--minutes", "0.02", "--device", "cpu"]
    words += ["--set", "DDH.epochs=2", "--moments", "2"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "results" / "quality"
    told = json.loads((folder / "results.json").read_text())
    table, _, curve = told["tables"]
    assert [row[0] for row in table["rows"]] == ["PCA-ITQ", "DDH"]
    minutes = [float(row[0]) for row in curve["rows"]]
    assert minutes == sorted(minutes)
    assert len(minutes) >= 2
    assert (folder / "quality-over-time.png").is_file()

    def again(*given, **named):
        raise AssertionError("pretrained again")

    monkeypatch.setattr("ddh.training.pretraining.pretrain", again)
    second = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert second.exit_code == 0, second.output


def test_held_out_queries_are_training_images():
    train = np.arange(100, 200)
    split = RetrievalSplit("all", np.arange(100), train, train, 1000)
    smaller = held_out(split)
    assert len(smaller.query) == 10
    assert np.array_equal(np.union1d(smaller.query, smaller.database), train)
    assert np.array_equal(smaller.train, smaller.database)
    assert smaller.k == 90
