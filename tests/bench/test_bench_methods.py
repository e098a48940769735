"""`ddh bench methods` and its comparison with faiss, on few rows."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from ddh.bench.methods import chosen_methods, digits, score, standard_error, task_of
from ddh.cli import cli
from ddh.evaluation import mean_average_precision
from ddh.hashers import ITQ
from ddh.hashers.registry import MODULES


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory):
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    X = rng.normal(size=(240, 12)) + rng.normal(0, 3, (4, 12))[y]
    path = tmp_path_factory.mktemp("bench") / "clusters.npz"
    np.savez(path, features=X, labels=y, query=np.arange(240) < 40)
    return path


def run(*arguments: str) -> dict:
    answer = CliRunner().invoke(cli, ["bench", "methods", *arguments, "--json", "--quiet"])
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def test_rows_and_protocol(features):
    document = run("--features", str(features), "--methods", "itq,SPLH", "--bits", "8", "--k", "50")
    assert [(row["method"], row["labels"]) for row in document["rows"]] == [
        ("ITQ", False),
        ("SPLH", False),
        ("SPLH", True),
    ]
    assert document["protocol"]["queries"] == 40
    assert document["protocol"]["database"] == 200
    assert document["protocol"]["k"] == 50
    with np.load(features) as file:
        X, y = file["features"].astype(np.float32), file["labels"]
    model = ITQ(bits=8).fit(X[40:])
    expected = mean_average_precision(
        model.transform(X[:40]), model.transform(X[40:]), y[:40], y[40:], k=50
    )
    row = document["rows"][0]
    assert row["mAP"] == round(float(expected), 4)
    assert row["fit seconds"] > 0
    assert row["encode seconds"] > 0
    assert row["model bytes"] > 12 * 8 * 8


def test_seeds_and_settings(features):
    document = run(
        *("--features", str(features), "--methods", "KMH", "--bits", "8"),
        *("--seeds", "0,1", "--set", "KMH.iterations=2"),
    )
    (row,) = document["rows"]
    assert row["deviation"] is not None
    assert document["protocol"]["seeds"] == [0, 1]


def test_against_faiss(features):
    document = run("--features", str(features), "--against-faiss", "--bits", "8", "--seeds", "0,1")
    rows = {row["method"]: row for row in document["rows"]}
    assert list(rows) == ["LSH", "PCAH", "ITQ"]
    assert rows["PCAH"]["difference"] == 0  # no chance in it: the same bits
    assert rows["LSH"]["standard error"] > 0


def test_text_for_people(features):
    arguments = ["bench", "methods", "--features", str(features), "--methods", "PCAH"]
    answer = CliRunner().invoke(cli, [*arguments, "--bits", "8"])
    lines = answer.stdout.splitlines()
    assert lines[2].split(" | ")[:4] == ["| method", "kind", "labels", "mAP"]
    assert lines[4].split(" | ")[:3] == ["| PCAH", "unsupervised", "no"]
    assert "40 queries, 200 items" in lines[-1]


def test_every_method_is_measured_and_optional_labels_both_ways():
    chosen = chosen_methods(None)
    assert list(dict(chosen)) == list(MODULES)
    assert [supervised for name, supervised in chosen if name == "DDH"] == [False, True]
    assert ("KSH", False) not in chosen


def test_the_digits_are_split_evenly_and_always_alike():
    task = task_of(digits(), k=100)
    assert len(task.part("query")) == 300
    assert len(task.part("query")) + len(task.part("database")) == 1797
    assert np.ptp(np.bincount(task.labels("query"))) <= 2
    assert task.split.digest == task_of(digits(), k=100).split.digest


def test_standard_error_is_zero_without_chance():
    task = task_of(digits(), k=100)
    value = score(task, ITQ(bits=8).fit(task.part("train")).transform)
    assert standard_error([value], [value]) == 0


def test_misuse_is_told(features):
    answer = CliRunner().invoke(cli, ["bench", "methods", "--methods", "nothing"])
    assert "there is no method 'nothing'" in str(answer.exception)
