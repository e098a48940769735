"""`ddh bench quality`, end to end on a few pictures, with a narrow network."""

import json
from importlib import import_module

import numpy as np
import pytest
from click.testing import CliRunner

from ddh.bench.features import _supervision
from ddh.bench.quality import held_out
from ddh.cli import cli
from ddh.evaluation import RetrievalSplit
from ddh.images import LabelledImages, open_images


@pytest.fixture
def pictures(monkeypatch):
    """120 images instead of CIFAR-10's: dark and bright, striped and plain; 20 are queries."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 120)
    pixels = rng.integers(0, 60, (120, 16, 16, 3))
    pixels[labels % 2 == 1] += 150
    pixels[labels > 1, ::2] += 45
    data = LabelledImages(open_images(pixels.astype(np.uint8)), labels, "shades", tuple("abcd"))
    train = np.arange(100)
    split = RetrievalSplit("shades", np.arange(100, 120), train, train, 50)
    monkeypatch.setattr("ddh.bench.quality.cifar10_images", lambda options: (data, split))


def test_pretraining_curve_and_table(pictures, narrow, tmp_path, monkeypatch):
    monkeypatch.setattr("ddh.pretrain.diagnostics.MIN_RANK", 0)  # it is narrow
    # the function `ddh.train.settings` hides the module of that name
    monkeypatch.setattr(import_module("ddh.train.settings"), "LEAST_STEPS", 100)
    words = ["bench", "quality", "-o", str(tmp_path / "results"), "-q"]
    words += ["--bits", "8", "--seeds", "0", "--minutes", "0.001", "--device", "cpu"]
    words += ["--pseudo-codes-epochs", "2", "--set", "pseudo-codes.rounds=2"]
    words += ["--set", "DDH.epochs=2", "--moments", "2"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "results" / "quality"
    told = json.loads((folder / "results.json").read_text())
    table, _, curve = told["tables"]
    assert [row[0] for row in table["rows"]] == ["PCA-ITQ", "DDH, graded labels", "DDH"]
    minutes = [float(row[0]) for row in curve["rows"]]
    assert minutes == sorted(minutes)
    assert len(minutes) >= 4
    stages = [entry["objective"] for entry in told["details"]["pretraining"]]
    assert sorted(stages) == stages
    assert set(stages) == {"byol", "pseudo-codes"}
    assert sum(path.name.startswith("round-") for path in tmp_path.rglob("*.safetensors")) == 2
    assert (folder / "quality-over-time.png").is_file()

    def again(*given, **named):
        raise AssertionError("pretrained again")

    def measured(*given):
        raise InterruptedError("pretrained, and the curve measured")

    monkeypatch.setattr("ddh.pretrain.pretrain", again)
    monkeypatch.setattr("ddh.bench.quality.run", measured)
    with pytest.raises(InterruptedError):
        CliRunner().invoke(cli, words, catch_exceptions=False)


def test_pretraining_without_the_images_that_it_is_judged_by(pictures, monkeypatch, tmp_path):
    trained = []

    def learned(data, rows, *given):
        trained.append(rows)
        raise InterruptedError("pretrained")

    monkeypatch.setattr("ddh.bench.quality.learn", learned)
    words = ["bench", "quality", "-o", str(tmp_path), "-q", "--epochs", "1", "--device", "cpu"]
    for more in ([], ["--unseen"]):
        with pytest.raises(InterruptedError):
            CliRunner().invoke(cli, words + more, catch_exceptions=False)
    every, without = trained
    assert np.array_equal(every, np.arange(100))
    split = RetrievalSplit("shades", np.arange(100, 120), every, every, 50)
    assert np.array_equal(without, held_out(split).database)


def test_steps_instead_of_minutes(pictures, monkeypatch, tmp_path):
    def learned(data, rows, options, store, stage, *given):
        assert stage == {"objective": "pseudo-codes", "minutes": None, "epochs": None, "steps": 3}
        raise InterruptedError("pretrained")

    monkeypatch.setattr("ddh.bench.quality.learn", learned)
    words = ["bench", "quality", "-o", str(tmp_path), "-q", "--minutes", "0", "--device", "cpu"]
    with pytest.raises(InterruptedError):
        CliRunner().invoke(cli, [*words, "--set", "pseudo-codes.steps=3"], catch_exceptions=False)


def test_a_whole_run_has_a_seed(pictures, narrow, tmp_path, monkeypatch):
    monkeypatch.setattr("ddh.pretrain.diagnostics.MIN_RANK", 0)  # it is narrow
    weights = []

    def measured(table, task, *given):
        (path,) = set(tmp_path.rglob("weights.safetensors")) - {path for path, _ in weights}
        weights.append((path, path.read_bytes()))
        raise InterruptedError("pretrained")

    monkeypatch.setattr("ddh.bench.quality.run", measured)
    words = ["bench", "quality", "-q", "--device", "cpu", "--moments", "0"]
    words += ["--epochs", "1", "--pseudo-codes-minutes", "0"]
    for folder, seed in (("a", "1"), ("a", "2"), ("b", "1")):
        more = ["-o", str(tmp_path / folder), "--pretrain-seed", seed]
        with pytest.raises(InterruptedError):
            CliRunner().invoke(cli, words + more, catch_exceptions=False)
    (_, first), (_, second), (_, again) = weights
    assert first == again
    assert first != second


def test_held_out_queries_are_training_images():
    train = np.arange(100, 200)
    split = RetrievalSplit("all", np.arange(100), train, train, 1000)
    smaller = held_out(split)
    assert len(smaller.query) == 10
    assert np.array_equal(np.union1d(smaller.query, smaller.database), train)
    assert np.array_equal(smaller.train, smaller.database)
    assert smaller.k == 90


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ("random", "nothing (random weights)"),
        ("byol for 3 epochs from random", "nothing (pretrained on pictures alone: byol for 3"),
        ("byol for 3 epochs from imagenet", "weights of byol for 3 epochs from imagenet"),
        ("imagenet, sha256:00", "ImageNet's labels (imagenet, sha256:00)"),
    ],
)
def test_who_taught_a_network_is_told(origin, said):
    assert _supervision(origin).startswith(said)
