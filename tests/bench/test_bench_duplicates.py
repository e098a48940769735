"""`ddh bench duplicates`: the edits, the scores, and a run on a few pictures."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from ddh.bench.duplicates import (
    PEERS,
    Judge,
    Scores,
    Trial,
    bound_table,
    measure_peer,
    million,
    near_by,
    remove_greedily,
)
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


def test_network_and_search_are_timed_apart(tmp_path):
    paths = [tmp_path / f"{seed}.png" for seed in range(3)]
    for seed, path in enumerate(paths):
        picture(seed).save(path)
    trial = Trial(paths, np.arange(3), ["", "", "grey"])
    judge = Judge(trial, set())
    cnn = measure_peer(PEERS["CNN"], trial, [0, 1, 2], judge)[0]
    assert set(cnn.parts) == {"network", "search"}
    assert min(cnn.parts["network"].values()) > 0
    for clock, total in cnn.seconds.items():
        assert sum(part[clock] for part in cnn.parts.values()) < total  # reading takes time too
    assert set(measure_peer(PEERS["pHash"], trial, [0, 1, 2], judge)[0].parts) == {"search"}


def scored(finder, wall, cpu, **parts):
    return Scores(finder, 0, [], {}, {"wall": wall, "cpu": cpu}, parts)


@pytest.mark.parametrize(("cpu", "verdict"), [(6.0, "yes"), (6.1, "no")])
def test_the_bound_is_the_first_phash_and_the_network_without_its_search(cpu, verdict):
    cnn = scored(
        "CNN >= 0.9", 99, 99, network={"wall": 3, "cpu": 4}, search={"wall": 90, "cpu": 90}
    )
    hashes = [scored("pHash <= 10", 1, 2), scored("pHash <= 8", 50, 50)]
    (table,) = bound_table([scored("ddh", 5, cpu), *hashes, cnn])
    assert table.rows[2] == ["sum", "4.0", "6.0"]
    assert table.rows[-1] == ["ddh within the sum", "no", verdict]
    assert not bound_table([scored("ddh", 5, cpu), cnn])
    assert not bound_table([scored("ddh", 5, cpu), *hashes])


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
