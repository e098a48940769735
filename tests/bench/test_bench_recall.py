"""`ddh bench recall`, end to end on small real data, against plain sorts."""

import csv
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from sklearn.datasets import load_digits

from ddh._core.errors import InputError
from ddh.bench.report_page import page, read_outcomes
from ddh.bench.results import Outcome
from ddh.bench.vector_quantizers import RECIPES, quantizer, rank, train
from ddh.cli import cli
from ddh.evaluation.ranking import seeded_order
from ddh.hashers import create


def run(*words):
    return CliRunner().invoke(cli, ["bench", "recall", *map(str, words)], catch_exceptions=False)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """L2-normalised pixels of 900 digits with 150 queries, as a file that the bench reads."""
    X, y = load_digits(return_X_y=True)
    X = X[:900].astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    query = np.arange(900) % 6 == 0
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, features=X, labels=y[:900], query=query, data="digits", backbone="pixels")
    return path, X[query], X[~query]


@pytest.fixture(scope="module")
def results(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    shared = ["--features", digits[0], "-o", folder, "--seeds", "0,1", "--set", "DDH.epochs=2"]
    assert run(*shared, "--bytes", "2,4", "-q").exit_code == 0
    return folder


def rows_of(folder):
    with (folder / "recall" / "results.csv").open() as stream:
        return list(csv.DictReader(stream))


def shares(true, lists):
    pairs = zip(true, lists, strict=True)
    return np.mean([np.isin(own, found).mean() for own, found in pairs])


def test_recall_is_the_share_of_float_neighbours(results, digits):
    _, query, database = digits
    database = database[seeded_order(len(database), 0)]
    true = np.argsort(-(query @ database.T), axis=1, kind="stable")[:, :10]
    values = {"recall@10": [], "R": []}
    for seed in (0, 1):
        # fitted as the bench does, on the database in its own order
        model = create("ITQ", bits=16, random_state=seed).fit(digits[2])
        scores = model.outputs(query).astype(float) @ model.transform(database).T
        lists = np.argsort(-scores, axis=1, kind="stable")
        values["recall@10"].append(shares(true, lists[:, :10]))
        values["R"].append(shares(true, lists[:, :100]))
    row = next(r for r in rows_of(results) if (r["method"], r["bytes"]) == ("ITQ", "2"))
    for name, own in values.items():
        assert float(row[f"{name} asymmetric"]) == pytest.approx(np.mean(own))
        assert float(row[f"{name} asymmetric deviation"]) == pytest.approx(np.std(own, ddof=1))
    assert 0 < float(row["R direct"]) < float(row["R asymmetric"])
    assert row["seeds"] == "2"


def test_every_method_is_measured_at_every_size(results):
    rows = rows_of(results)
    ordered = [r for r in rows if "ordered" in r["method"]]
    rows = [r for r in rows if r not in ordered]
    labels = ["DDH", "ITQ", "LSH", "PQ", "OPQ + PQ", "RaBitQ", "scalar quantisation"]
    assert [r["method"] for r in rows] == [label for label in labels for _ in range(2)]
    assert [int(r["stored bytes"]) for r in ordered] == [2 + 64, 2 + 64, 4 + 64, 4 + 64]
    first, _, _, whole = [float(r["R asymmetric"]) for r in ordered]
    assert float(rows[0]["R asymmetric"]) < first < whole == 1
    assert ordered[0]["mAP direct"] == ""
    stored = {(r["method"], r["bytes"]): r["stored bytes"] for r in rows}
    assert stored.pop(("RaBitQ", "2")) == "10"  # and 8 bytes of factors
    assert stored.pop(("RaBitQ", "4")) == "12"
    assert all(size == own for (_, size), own in stored.items())
    for row in rows:
        for name in ("mAP", "recall@10", "R"):
            for ranking in ("direct", "asymmetric"):
                assert 0 < float(row[f"{name} {ranking}"]) <= 1
        assert float(row["recall@10 direct"]) <= float(row["R direct"])


def test_table_figures_and_page(results):
    outcome = Outcome.read(results / "recall")
    (table,) = outcome.tables
    assert table.rows[0][:5] == ["float features", "", table.rows[0][2], "1.000", "1.000"]
    sizes = ["2", "2 + 64", "2 + 64", *["2"] * 4, "2 + 8", "2"]
    assert [row[1] for row in table.rows[1:10]] == sizes
    assert all(recipe in table.note for recipe in RECIPES.values())
    for column in range(2, 8):  # one best cell or more per size
        assert {row // 10 for row, place in table.best if place == column} == {0, 1}
    said = " ".join(outcome.protocol)
    assert "150 queries, 750 items" in said
    assert "recall of the 10 nearest@100" in said
    assert [figure["name"] for figure in outcome.figures] == ["map-digits", "r-digits"]
    assert "Recall of true neighbours" in page(read_outcomes(results), "Results")


def test_a_second_run_measures_nothing_again(results, digits, monkeypatch):
    import ddh.bench.recall_measures as bench

    def refuse(*arguments):
        raise AssertionError("measured again")

    monkeypatch.setattr(bench, "_measure_hasher", refuse)
    shared = ["--features", digits[0], "-o", results, "--methods", "ITQ", "-q"]
    assert run(*shared, "--bytes", "2,4", "--seeds", "0,1").exit_code == 0
    with pytest.raises(AssertionError, match="measured again"):
        run(*shared, "--bytes", "8")


def test_without_faiss_its_rows_are_left_out(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    shared = ["--features", digits[0], "--bytes", "2", "--seeds", "0", "-o", tmp_path]
    result = run(*shared, "--methods", "LSH,PQ,RaBitQ")
    assert 'PQ, RaBitQ left out: they need faiss, pip install "ddh[faiss]"' in result.stderr
    assert [row["method"] for row in rows_of(tmp_path)] == ["LSH"]
    assert "left out" in (tmp_path / "recall" / "table.md").read_text()
    with pytest.raises(InputError, match="they need faiss"):
        run(*shared, "--methods", "PQ")


def test_a_named_set_brings_its_own_split(tmp_path):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((1360, 16)).astype(np.float16)
    np.savez(tmp_path / "own.npz", features=features, labels=np.arange(1360) // 80)
    shared = ["--bytes", "1", "--seeds", "0", "--methods", "LSH", "-o", tmp_path]
    result = run("--features", f"oxford17={tmp_path / 'own.npz'}", *shared)
    assert "340 queries, 1,020 items" in result.stdout
    assert "split oxford-17, seed 0" in result.stdout
    assert "mAP is mAP@100" in result.stdout
    with pytest.raises(InputError, match="marks no queries"):
        run("--features", tmp_path / "own.npz", *shared)


def test_features_are_computed_from_the_images_of_a_set(tmp_path, narrow):
    images = tmp_path / "coco17" / "images"
    images.mkdir(parents=True)
    rng = np.random.default_rng(0)
    lines = ["image,concepts"]
    for number in range(150):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(
            images / f"{number:05d}.webp"
        )
        lines.append(f"{number:05d}.webp,{('cat', 'dog', 'cat|dog')[number % 3]}")
    (tmp_path / "coco17" / "labels.csv").write_text("\n".join(lines))
    shared = ["--data", tmp_path, "--bytes", "1", "--seeds", "0", "--methods", "LSH"]
    result = run(*shared, "--sets", "coco17", "-o", tmp_path / "results", "--device", "cpu")
    assert "120 queries, 30 items" in result.stdout
    assert "split coco-17, seed 0" in result.stdout
    few = ["--subset", "20", "-o", tmp_path / "few", "--device", "cpu"]
    assert "4 queries, 20 items" in run(*shared, "--sets", "coco17", *few).stdout


def test_misuse_is_named(digits, tmp_path, monkeypatch):
    monkeypatch.delenv("DDH_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="recall has no set mnist: cifar10, cifar10-resnet18"):
        run("--sets", "mnist")
    with pytest.raises(InputError, match=r"there is no file coco\.npz"):
        run("--features", "coco17=coco.npz")
    with pytest.raises(InputError, match="where is COCO-17"):
        run("--sets", "coco17")
    with pytest.raises(InputError, match=r"cifar10-resnet18\.safetensors is missing"):
        run("--sets", "cifar10-resnet18", "--data", tmp_path)
    with pytest.raises(InputError, match="256 centroids per byte, there are 100"):
        run("--features", digits[0], "--subset", "100", "--methods", "PQ", "--bytes", "2")


@pytest.mark.parametrize("method", RECIPES)
def test_quantizers_take_any_number_of_dimensions(method):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((600, 23)).astype(np.float32)
    index = quantizer(method, 23, 4, 0)
    train(index, method, features)
    index.add(features)
    found = rank(index, features[:50], 5, encoded=False)
    assert (found[:, 0] == np.arange(50)).mean() > 0.9
    assert rank(index, features[:50], 5, encoded=True).shape == (50, 5)
