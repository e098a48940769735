"""`ddh bench table6` from pictures: what learns sees the training images of a split alone."""

import numpy as np
import pytest
from click.testing import CliRunner

import ddh.pretrain
from ddh._core.errors import InputError
from ddh.bench.results import Outcome
from ddh.cli import cli
from ddh.hashers.itq import ITQ
from ddh.images import LabelledImages, open_images
from ddh.images.flowers import seeded_splits


@pytest.fixture
def shades(monkeypatch, narrow):
    """96 pictures instead of the flowers, and a narrow network."""
    rng = np.random.default_rng(0)
    labels = np.arange(96) % 3
    pixels = rng.integers(0, 60, (96, 8, 8, 3)) + 80 * labels[:, None, None, None]
    data = LabelledImages(open_images(pixels.astype(np.uint8)), labels, "shades", tuple("abc"))
    given = (data, seeded_splits(labels), "three splits")
    monkeypatch.setattr("ddh.bench.table6._flowers", lambda options: given)
    return data


def bench(folder, *words):
    fixed = ["bench", "table6", "-o", str(folder), "-q", "--no-descriptors", "--device", "cpu"]
    fixed += ["--bits", "8", "--seeds", "0", "--methods", "ITQ"]
    result = CliRunner().invoke(cli, [*fixed, *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return Outcome.read(folder / "table6")


@pytest.fixture
def learned_from(monkeypatch):
    seen = []
    real = ITQ.fit

    def fit(self, X, y=None):
        seen.append(X)
        return real(self, X, y)

    monkeypatch.setattr(ITQ, "fit", fit)
    return seen


def test_views_of_training_images_alone(shades, learned_from, tmp_path):
    outcome = bench(tmp_path)
    rows = [row[0] for row in outcome.tables[0].rows]
    assert rows == [
        "ITQ (8 bits)",
        "ITQ with views (8 bits)",
        "ITQ transductive (8 bits)",
        "real-valued features (32)",
    ]
    named = bench(tmp_path / "named", "--set", "ITQ.iterations=2")
    assert {record["settings"] for record in named.records if "settings" in record} == {
        "{'iterations': 2}"
    }
    plain, views = learned_from[:3], learned_from[3:6]
    assert [len(X) for X in plain] == [48] * 3
    assert [len(X) for X in views] == [8 * 48] * 3
    assert [len(X) for X in learned_from[6:9]] == [96] * 3  # called transductive
    for X, more in zip(plain, views, strict=True):
        assert np.array_equal(more[:48], X)
        assert len(np.unique(more, axis=0)) == len(more)  # each view is another one


def test_each_split_adapts_a_network_of_its_own(shades, learned_from, tmp_path, monkeypatch):
    real, seen = ddh.pretrain.pretrain, []

    def pretrain(network, pictures, settings, **named):
        seen.append(pictures.pixels)
        return real(network, pictures, settings, **named)

    monkeypatch.setattr(ddh.pretrain, "pretrain", pretrain)
    outcome = bench(tmp_path, "--adapt", "1")
    for pixels, split in zip(seen, seeded_splits(shades.labels), strict=True):
        assert np.array_equal(pixels, shades.images.pixels[split.train])
    assert any("adapted to its training images for 1 epochs" in line for line in outcome.protocol)
    bench(tmp_path, "--adapt", "1")
    assert len(seen) == 3  # kept for the next run


def test_adapting_needs_pictures(tmp_path):
    file = tmp_path / "digits.npz"
    np.savez(file, features=np.eye(30), labels=np.arange(30) % 3)
    with pytest.raises(InputError, match="--adapt needs the pictures"):
        bench(tmp_path, "--features", str(file), "--adapt", "1")
