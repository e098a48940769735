"""`ddh bench duplicates`: the edits, the scores, and a run on a few pictures."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from ddh.bench.duplicates import Judge, Trial, million, near_by, remove_greedily
from ddh.bench.edits import EDITS
from ddh.cli import cli


def picture(seed: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((160, 120), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("edit", EDITS, ids=[edit.name for edit in EDITS])
def test_edits_change_what_they_say(edit):
    image = picture(0)
    content, ending = edit(image, np.random.default_rng(1))
    edited = Image.open(io.BytesIO(content))
    assert ending == (".webp" if edit.name == "WebP" else ".jpg")
    sides = {
        "half size": (80, 60), "quarter size": (40, 30), "turn 90": (120, 160),
        "turn 270": (120, 160), "crop 80 %": (143, 107), "crop 60 %": (124, 93),
        "crop 95 %": (156, 117),
    }  # fmt: skip
    if edit.name not in ("two combined", "border"):
        assert edited.size == sides.get(edit.name, (160, 120))
    assert edit(image, np.random.default_rng(1))[0] == content


def test_removals_and_their_scores(tmp_path):
    for name, seed in (("a", 0), ("b", 1), ("c", 1), ("d", 2)):
        picture(seed).save(tmp_path / f"{name}.png")
    paths = [tmp_path / f"{name}.png" for name in "abcd"] + [tmp_path / "0.jpg", tmp_path / "1.jpg"]
    trial = Trial(paths, np.array([0, 1, 2, 3, 0, 0]), ["", "", "", "", "grey", "text"])
    judge = Judge(trial, set())
    scores = judge.score("x", [(0, 4), (1, 2), (0, 3)], {})  # a copy, the same pixels, wrong
    assert scores.wrong == [(0, 3)]
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.recall == {"grey": 1, "text": 0}
    assert judge.score("x", [(5, 0)], {}).recall == {"grey": 0, "text": 1}
    known = Judge(trial, {frozenset(["a.png", "d.png"])})
    assert known.score("x", [(0, 3)], {}).precision == 1


def test_what_is_kept_is_never_removed():
    near = {0: [0, 1], 1: [0, 1, 2], 2: [1, 2], 3: [0, 3]}
    removed = list(remove_greedily([0, 1, 2, 3], lambda i: np.array(near[i])))
    assert removed == [(0, 1)]
    codes = np.array([[0], [1], [255]], np.uint8)
    assert near_by(codes, 1)(0).tolist() == [0, 1]
    features = np.array([[1.0, 0], [0.8, 0.6], [0, 1]], np.float32)
    assert near_by(features, 0.75)(0).tolist() == [0, 1]


def test_stored_codes_are_timed():
    found = million(2000, 0)
    assert found["groups"]["pairs"] >= 50  # a hundred copies, most of them near
    assert found["one more"]["milliseconds"] > 0


def test_a_run_finds_the_edits(tmp_path):
    for seed in range(5):
        picture(seed).save(tmp_path / f"{seed}.png")
    words = ["bench", "duplicates", "--data", str(tmp_path), "--originals", "1", "--peers", "pHash"]
    words += ["-o", str(tmp_path / "results"), "--json", "-q"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    ours, *peers = json.loads(done.stdout)["records"]
    assert ours["finder"] == "ddh"
    assert ours["precision"] == 1
    assert ours["half size"] == ours["JPEG 75"] == ours["turn 90"] == 1
    assert peers[0]["turn 90"] == 0
    assert (Path(tmp_path) / "results" / "duplicates" / "table.md").is_file()
    refused = CliRunner().invoke(cli, [*words[:6], "--peers", "SSCD"])
    assert "peers are" in str(refused.exception)
