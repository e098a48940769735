"""The benches of the paper's tables and figures, end to end on small real data."""

import csv
import json
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from sklearn.datasets import load_digits

from ddh._core.errors import InputError, MissingDependency
from ddh.bench.features import FeatureSet, read_features
from ddh.bench.options import numbers, settings_of
from ddh.bench.report_page import inline_svg, page, read_outcomes
from ddh.bench.results import Outcome, Store, Table, command_line, key_digest
from ddh.bench.retrieval import (
    LABEL_BUDGET,
    Task,
    labelled_places,
    subset,
    training_set,
    used_rows,
)
from ddh.bench.tables import TABLE2, TABLE3, TABLE6, TABLES, select
from ddh.cli import cli
from ddh.evaluation import RetrievalSplit, mean_average_precision, split_by_name
from ddh.hashers import create
from ddh.images import ImageArray, LabelledImages
from ddh.images.flowers import seeded_splits

METHODS = "LSH,PCA-ITQ,PCAH"


def run(*words):
    result = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Features of 900 digits with 150 queries, as a file that the benches read."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:900].astype(np.float32), y[:900]
    query = np.zeros(900, bool)
    query[np.random.default_rng(0).permutation(900)[:150]] = True
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    said = {"data": "digits", "backbone": "pixels", "supervision": "nothing"}
    np.savez(path, features=X, labels=y, query=query, **said)
    return path


@pytest.fixture(scope="module")
def results(digits, tmp_path_factory):
    """A results folder with table2, fig3 and fig2 of the digits."""
    folder = tmp_path_factory.mktemp("results")
    shared = ["--features", digits, "-o", folder]
    run("bench", "table2", *shared, "--bits", "8,16", "--methods", METHODS, "--seeds", "0,1")
    run("bench", "fig3", *shared, "--bits", "8,16", "--methods", METHODS, "--seeds", "0,1")
    run("bench", "fig2", *shared, "--k", "3,10", "--k2", "3")
    return folder


def test_the_table_stands_beside_the_papers_figures(results, digits):
    text = (results / "table2" / "table.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| PCA-ITQ |"))
    cells = [cell.strip().strip("*") for cell in row.strip("|").split("|")]
    assert cells[1] == ""  # the paper has no 8 bits
    assert cells[4] == "0.157"
    X = read_features(digits)
    unit = X.features / np.linalg.norm(X.features, axis=1, keepdims=True)
    values = []
    for seed in (0, 1):
        hasher = create("ITQ", bits=16, random_state=seed).fit(unit[~X.query])
        values.append(
            mean_average_precision(
                hasher.transform(unit[X.query]),
                hasher.transform(unit[~X.query]),
                X.labels[X.query],
                X.labels[~X.query],
                ties="legacy",
                k=750,
            )
        )
    assert cells[5] == f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


def test_every_number_is_in_csv_and_json_with_its_protocol(results):
    content = json.loads((results / "table2" / "results.json").read_text())
    with (results / "table2" / "results.csv").open() as stream:
        records = list(csv.DictReader(stream))
    assert len(records) == len(content["records"]) == 6
    itq = next(r for r in records if r["row"] == "PCA-ITQ" and r["bits"] == "16")
    assert (itq["seeds"], itq["paper"]) == ("0 1", "0.157")
    assert 0 < float(itq["expected"]) < 1
    said = " ".join(content["protocol"])
    for part in ("digits", "150 queries, 750 items", "ties expected", "ties legacy", "pixels"):
        assert part in said
    assert "seeds: PCAH 0; LSH 0, 1; PCA-ITQ 0, 1" in said
    assert content["command"].startswith("ddh ")


def test_figures_are_drawn_as_png_and_svg(results):
    for bench in ("table2", "fig3", "fig2"):
        outcome = Outcome.read(results / bench)
        assert outcome.figures
        for figure in outcome.figures:
            with Image.open(results / bench / f"{figure['name']}.png") as image:
                pixels = np.asarray(image.convert("L"))
            assert min(pixels.shape) > 300
            assert pixels.std() > 5  # not an empty sheet
            assert "<svg" in (results / bench / f"{figure['name']}.svg").read_text()


def test_a_second_run_measures_nothing_again(results, digits, monkeypatch):
    import ddh.bench.retrieval as measure

    def refuse(*arguments):
        raise AssertionError("measured again")

    monkeypatch.setattr(measure, "_measure", refuse)
    shared = ["--features", digits, "-o", results, "--methods", METHODS, "--seeds", "0,1"]
    run("bench", "table2", *shared, "--bits", "8,16")
    with pytest.raises(AssertionError, match="measured again"):
        run("bench", "table2", *shared, "--bits", "8,16,32")
    with pytest.raises(AssertionError, match="measured again"):
        run("bench", "table2", *shared, "--bits", "8", "--set", "ITQ.iterations=3")


def test_settings_that_no_method_has_are_refused(digits, tmp_path):
    shared = [
        "--features",
        digits,
        "-o",
        tmp_path,
        "--methods",
        "ITQ",
        "--bits",
        "8",
        "--seeds",
        "0",
    ]
    for setting, message in (
        ("IQT.iterations=3", "there is no method 'IQT'"),
        ("ITQ.iteration=3", "ITQ has no setting 'iteration' here; it has iterations"),
        ("ITQ.random_state=3", "ITQ has no setting 'random_state'"),
    ):
        with pytest.raises(InputError, match=message):
            run("bench", "table2", *shared, "--set", setting)
    run("bench", "table2", *shared, "--set", "itq.iterations=0")
    (stored,) = tmp_path.rglob("ITQ-8-0*.json")
    assert '"iterations": 0' in stored.read_text()


def test_features_without_labels_are_refused(tmp_path):
    np.save(tmp_path / "features.npy", np.zeros((3, 4)))
    with pytest.raises(InputError, match=r"features\.npy is not an \.npz file of arrays"):
        read_features(tmp_path / "features.npy")


def test_an_interrupted_run_goes_on(digits, tmp_path, monkeypatch):
    import ddh.bench.retrieval as measure

    real, calls = measure._measure, []

    def stop_at_the_third(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(measure, "_measure", stop_at_the_third)
    words = ["bench", "table2", "--features", str(digits), "-o", str(tmp_path), "--bits", "8"]
    words += ["--methods", "LSH", "--seeds", "0,1,2,3"]
    assert CliRunner().invoke(cli, words).exit_code != 0
    assert len(list((tmp_path / "measurements").iterdir())) == 2
    run(*words)
    assert len(calls) == 5


def test_several_jobs_measure_the_same(results, digits, tmp_path):
    words = ["--features", digits, "-o", tmp_path, "--bits", "8,16", "--methods", METHODS]
    run("bench", "table2", *words, "--seeds", "0,1", "--jobs", 2)
    alone, together = (
        json.loads((folder / "table2" / "results.json").read_text())["records"]
        for folder in (results, tmp_path)
    )
    for one, other in zip(alone, together, strict=True):
        assert one["legacy"] == other["legacy"]
        assert one["expected"] == other["expected"]


def concepts_task(rows=400, labelled=None, seed=0):
    """Eight concepts, one or two per image, features that show them."""
    rng = np.random.default_rng(seed)
    labels = np.zeros((rows, 8), np.int8)
    labels[np.arange(rows), np.arange(rows) % 8] = 1
    labels[::4, 1] = 1
    features = labels @ rng.normal(0, 1, (8, 12)) + rng.normal(0, 0.5, (rows, 12))
    found = FeatureSet(features.astype(np.float32), labels, "made up", "none", "nothing", "d")
    query, others = np.split(rng.permutation(rows), [80])
    return Task(found, RetrievalSplit("own", query, others, others, 100, labelled))


def test_every_supervised_row_sees_the_same_labels():
    others = concepts_task().split.train
    task = concepts_task(labelled=np.sort(others[:90]))
    supervised = [row for table in (TABLES[2], TABLES[3]) for row in table.rows if row.supervised]
    assert len(supervised) > 8
    expected = np.flatnonzero(np.isin(task.split.train, task.split.labelled))
    for row in supervised:
        X, y, said = training_set(task, row, seed=3)
        np.testing.assert_array_equal(X, task.part("train")[expected])
        np.testing.assert_array_equal(y, task.labels("train")[expected])
        assert said.startswith("the labels of 90 images (")
    assert training_set(task, TABLE2.rows[0], 0)[1:] == (None, "")


def test_semi_supervised_rows_see_all_images_and_the_same_labels():
    task = concepts_task(labelled=np.sort(concepts_task().split.train[:90]))
    row = next(row for row in TABLE2.rows if row.method == "SSH")
    X, y, _ = training_set(task, row, seed=0)
    assert len(X) == len(task.split.train)
    labelled = np.isin(task.split.train, task.split.labelled)
    np.testing.assert_array_equal(y[labelled], task.labels("train")[labelled])
    assert not y[~labelled].any()


def test_no_row_sees_more_labels_than_the_budget(monkeypatch):
    monkeypatch.setattr("ddh.bench.retrieval.LABEL_BUDGET", 50)
    task = concepts_task()
    rows = [row for row in TABLES[2].rows if row.supervised]
    places = [labelled_places(task, row, seed) for seed, row in enumerate(rows)]
    assert len(places[0]) == 50
    assert all(np.array_equal(places[0], other) for other in places)


def test_settings_of_the_tables_take_all_labels_that_there_are():
    """KSH, FastH and SPLH draw from what they get, CNNH samples it."""
    for table in TABLES:
        for row in table.rows:
            if row.supervised:
                settings = create(row.method, **row.settings).get_params()
                drawn = [settings[name] for name in ("labelled", "sample") if name in settings]
                assert all(count >= LABEL_BUDGET for count in drawn), row.label


def test_table5_gives_every_row_the_same_head():
    for row in TABLES[3].rows:
        assert row.settings.get("hidden", ()) == (), row.label


def test_tables_run_on_another_protocol(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.zeros((6000, 17), np.int8)
    labels[np.arange(6000), np.arange(6000) % 17] = 1
    features = labels @ rng.normal(0, 1, (17, 8)) + rng.normal(0, 0.5, (6000, 8))
    np.savez(tmp_path / "coco.npz", features=features.astype(np.float32), labels=labels)
    words = ["--features", tmp_path / "coco.npz", "-o", tmp_path, "--protocol", "coco-17"]
    run("bench", "table4", *words, "--bits", "8", "--methods", "LFH,ITQ", "--seeds", "0")
    content = json.loads((tmp_path / "table4" / "results.json").read_text())
    assert "split coco-17, seed 0" in content["protocol"][0]
    assert "1,020 queries, 4,980 items" in content["protocol"][0]
    lfh = next(r for r in content["records"] if r["row"] == "LFH")
    assert lfh["mAP@1000"] > 0
    stored = [json.loads(f.read_text()) for f in (tmp_path / "measurements").glob("LFH-*.json")]
    said = stored[0]["result"]["scores"]["legacy"]["protocol"]["labels"]
    assert said.startswith("the labels of 3,400 images")


def test_label_quality_equals_a_plain_count(results, digits):
    from ddh.neighbours import expand, knn

    found = read_features(digits)
    X = found.features[~found.query]
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    y = found.labels[~found.query]
    lists = knn(X, 10)
    records = Outcome.read(results / "fig2").records
    first = next(r for r in records if r["k2"] is None and r["k1"] == 3)
    assert first["precision"] == pytest.approx((y[lists[:, :3]] == y[:, None]).mean())
    assert first["degree"] == 3
    second = next(r for r in records if r["k2"] == 3 and r["k1"] == 10)
    graph = expand(lists, 3, X).toarray().astype(bool)
    right = graph & (y[:, None] == y)
    assert second["precision"] == pytest.approx(right.sum() / graph.sum())
    possible = (y[:, None] == y).sum() - len(y)
    assert second["recall"] == pytest.approx(right.sum() / possible)
    assert second["degree"] == pytest.approx(graph.sum() / len(y))


def test_the_report_is_one_page_without_network(results, tmp_path):
    target = tmp_path / "page.html"
    run("report", results, "-o", target, "--title", "Digits & more")
    text = target.read_text()
    assert target.stat().st_size < 5_000_000
    assert "Digits &amp; more" in text
    for section in ("table2", "fig2", "fig3"):
        assert f'<section id="{section}">' in text
    assert text.count("<svg") == 3 + 2 + 4
    outside = text.replace("http://www.w3.org/", "")
    assert "http://" not in outside
    assert "https://" not in outside
    assert "<script" not in text
    ids = [part.split('"')[0] for part in text.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    assert "prefers-color-scheme: dark" in text


def test_drawings_take_the_colours_of_the_page(results):
    drawn = (results / "fig2" / "labels-over-k1.svg").read_text()
    inline = inline_svg(drawn, "here", "Labels")
    assert "#1b1f24" in drawn
    assert "#1b1f24" not in inline
    assert "currentColor" in inline
    assert "var(--rule)" in inline
    assert 'aria-label="Labels"' in inline
    assert "<metadata" not in inline


def test_the_page_shows_examples_and_escapes_text(tmp_path):
    outcome = Outcome(
        bench="own",
        title="Own: <b>",
        command="ddh bench own",
        protocol=["<i>"],
        tables=[Table("T", ["a", "b"], [["x<y", "1"]], best=[(0, 1)])],
        records=[{"a": 1}],
        details={
            "examples": [
                {"query": "data:q", "found": ["data:1", "data:2"], "right": [True, False]}
            ],
            "examples_of": "LSH, 8 bits",
        },
    )
    outcome.write(tmp_path / "own")
    assert Outcome.read(tmp_path / "own") == outcome
    text = page(read_outcomes(tmp_path), "t")
    assert "x&lt;y" in text
    assert "<i>" not in text
    assert text.count('class="tile right"') == text.count('class="tile wrong"') == 1
    assert '<td class="best">1</td>' in text


def test_a_report_of_nothing_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="run a bench first"):
        read_outcomes(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        read_outcomes(tmp_path / "none")


@pytest.fixture(scope="module")
def nus_wide_folder(tmp_path_factory):
    """A release of NUS-WIDE in its real layout: 23 concepts, 260 small pictures."""
    root = tmp_path_factory.mktemp("nus")
    rng = np.random.default_rng(0)
    names = [f"concept{i:02d}" for i in range(23)]
    images, concepts = 260, len(names)
    labels = np.zeros((images, concepts), int)
    labels[np.arange(images), rng.integers(0, 21, images)] = 1
    labels[np.arange(images), rng.integers(0, 21, images)] = 1
    labels[:21, :21] |= np.eye(21, dtype=int)
    labels[0, 21] = labels[1, 22] = 1  # two rare concepts that are not among the 21
    (root / "ImageList").mkdir()
    (root / "Groundtruth" / "AllLabels").mkdir(parents=True)
    paths = [f"set{i % 3}\\{i:04d}.jpg" for i in range(images)]
    (root / "ImageList" / "Imagelist.txt").write_text("\n".join(paths) + "\n")
    for number, name in enumerate(names):
        column = "\n".join(map(str, labels[:, number])) + "\n"
        (root / "Groundtruth" / "AllLabels" / f"Labels_{name}.txt").write_text(column)
    for number, path in enumerate(paths):
        hues = rng.integers(0, 255, (21, 3))
        first = hues[np.flatnonzero(labels[number])[0]]
        pixels = np.clip(first + rng.integers(-20, 20, (40, 40, 3)), 0, 255).astype(np.uint8)
        target = root / "Flickr" / path.replace("\\", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(target)
    copy = root / "Flickr" / "set0" / "0000.jpg"
    (root / "Flickr" / "set1" / "0001.jpg").write_bytes(copy.read_bytes())
    return root


def test_table4_runs_on_a_nus_wide_folder(nus_wide_folder, tmp_path):
    words = ["--data", nus_wide_folder, "--queries", 2, "--training", 5, "--size", 32]
    words += ["--bits", "8", "--methods", "ITQ,LFH", "--seeds", "0", "-o", tmp_path]
    content = json.loads(run("bench", "table4", *words, "--json").stdout)
    said = " ".join(content["protocol"])
    assert "NUS-WIDE all, 21 concepts" in said
    assert "42 queries, 217 items" in said  # 260, without one copy, without 42 queries
    assert "ndcg" in content["records"][0]
    assert [record["labels"] for record in content["records"]] == [True, False]
    assert "mAP@5000" in content["tables"][0]["title"]
    assert len(content["details"]["examples"]) == 8
    assert (tmp_path / "table4" / "map.png").exists()


def test_features_come_from_an_exported_network(nus_wide_folder, tmp_path):
    pytest.importorskip("onnx")
    from ddh.backbones import create, export_onnx, save

    network = create("resnet18-tiny", "random", 8)
    network.origin = "byol for 1 epochs from random"
    save(network, tmp_path / "own.safetensors")
    export_onnx(create("auto", tmp_path / "own.safetensors"), tmp_path / "own.onnx")
    scores = []
    for file in ("own.safetensors", "own.onnx"):
        words = ["--data", nus_wide_folder, "--queries", 2, "--training", 5, "--bits", "8"]
        words += ["--methods", "ITQ", "--seeds", "0", "-o", tmp_path]
        words += ["--backbone", "auto", "--weights", tmp_path / file]
        content = json.loads(run("bench", "table4", *words, "--json").stdout)
        scores.append(content["records"][0]["ndcg"])
        assert "nothing (pretrained on pictures alone: byol" in " ".join(content["protocol"])
    assert "onnx sha256:" in " ".join(content["protocol"])
    assert abs(scores[0] - scores[1]) < 0.01
    assert len(list((tmp_path / "features").iterdir())) == 2


def test_table5_runs_on_any_list_of_paths_and_labels(nus_wide_folder, tmp_path):
    rng = np.random.default_rng(1)
    lines = []
    for path in sorted((nus_wide_folder / "Flickr").rglob("*.jpg"))[:120]:
        labels = rng.integers(0, 2, 3)
        labels[rng.integers(3)] = 1
        name = path.relative_to(nus_wide_folder / "Flickr").as_posix()
        lines.append(f"{name} {' '.join(map(str, labels))}")
    listing = tmp_path / "database.txt"
    listing.write_text("\n".join(lines))
    words = ["--list", listing, "--data", nus_wide_folder / "Flickr", "--queries", 3]
    words += ["--training", 15, "--size", 32, "--bits", "8", "--methods", "DDH,DSRH"]
    run("bench", "table5", *words, "--seeds", "0", "-o", tmp_path, "--set", "DSRH.epochs=2")
    records = Outcome.read(tmp_path / "table5").records
    assert [record["row"] for record in records] == ["DSRH", "DDH"]
    assert all(record["labels"] for record in records)


def test_table3_gives_labels_to_the_supervised_rows_only(digits, tmp_path):
    words = ["--features", digits, "-o", tmp_path, "--bits", "12", "--seeds", "0"]
    run("bench", "table3", *words, "--methods", "ITQ,LFH,CSQ,OrthoHash", "--labelled", 10)
    records = Outcome.read(tmp_path / "table3").records
    assert [(record["row"], record["labels"]) for record in records] == [
        ("ITQ + CNN", False),
        ("LFH + CNN", True),
        ("CSQ + CNN", True),
        ("OrthoHash + CNN", True),
    ]
    assert "LFH + CNN (labels)" in (tmp_path / "table3" / "table.md").read_text()


def test_table6_never_shows_hash_training_other_images(digits, tmp_path, monkeypatch):
    seen = []
    import ddh.hashers.itq as itq

    real = itq.ITQ.fit

    def spy(self, X, y=None):
        seen.append((len(X), y))
        return real(self, X, y)

    monkeypatch.setattr(itq.ITQ, "fit", spy)
    words = ["--features", digits, "-o", tmp_path, "--bits", "16", "--seeds", "0"]
    run("bench", "table6", *words, "--methods", "ITQ")
    assert len(seen) == 6
    assert all(y is None and 440 <= rows <= 450 for rows, y in seen[:3])  # half of each class
    assert all(y is None and rows == 900 for rows, y in seen[3:])  # the rows that say so
    outcome = Outcome.read(tmp_path / "table6")
    assert [row[0] for row in outcome.tables[0].rows] == [
        "ITQ (16 bits)",
        "ITQ transductive (16 bits)",
        "real-valued features (64)",
    ]
    accuracy = {record["row"]: record["accuracy"] for record in outcome.records}
    assert accuracy["real-valued features (64)"] > accuracy["ITQ (16 bits)"] > 0.7
    with pytest.raises(InputError, match="leave --subset out"):
        run("bench", "table6", *words, "--subset", 100)


def test_table6_without_opencv_says_so_at_once(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    words = ["--features", digits, "-o", tmp_path, "--bits", "8", "--seeds", "0"]
    with pytest.raises(MissingDependency, match="--no-descriptors"):
        run("bench", "table6", *words)
    run("bench", "table6", *words, "--no-descriptors", "--methods", "LSH")


def test_validation_images_choose_between_settings(digits, tmp_path, monkeypatch):
    from ddh.bench import table6

    asked = []

    def recognised(features, labels, split, kernel):
        asked.append(len(features))
        place = len(asked) % 2
        return {"accuracy": [0.9, 0.1][place], "validation": [0.2, 0.8][place]}

    monkeypatch.setattr(table6, "_recognition", recognised)
    found = read_features(digits)
    task = table6.SplitTask(found, seeded_splits(found.labels)[0])
    candidates = tuple(table6.Candidate({"iterations": n}) for n in (1, 2))
    row = table6.HashRow("ITQ", "ITQ", candidates)
    run = table6.best_run(Store(tmp_path), task, row, 8, 0, "cpu")
    assert (run["validation"], run["accuracy"]) == (0.8, 0.1)  # whatever the test images say
    assert run["settings"] == "{'iterations': 1}"
    assert len(asked) == 2


def test_the_papers_tables_are_whole():
    rows = {row.label: row for table in (TABLE2, TABLE3) for row in table.rows}
    assert TABLE2.printed(TABLE2.rows[-1], 64) == 0.535
    assert TABLE2.printed(TABLE2.rows[-1], 48) is None
    assert TABLE3.printed(rows["LFH + CNN"], 48) == 0.339
    for number, table in enumerate(TABLES, 2):
        assert (table.number, table.name) == (number, f"table{number}")
        assert all(len(row.printed) in (0, len(table.bits)) for row in table.rows)
        assert table.rows[-1].label == "DDH"
    assert len(TABLE6) == 10


def test_a_damaged_measurement_is_made_again(tmp_path):
    store = Store(tmp_path)
    key = {"method": "x", "bits": 8}
    assert store.measure("x", key, lambda: {"value": 1}) == {"value": 1}
    assert store.measure("x", key, lambda: {"value": 2}) == {"value": 1}
    file = tmp_path / "measurements" / f"x-{key_digest(key)}.json"
    file.write_text(file.read_text()[:20])
    assert store.measure("x", key, lambda: {"value": 3}) == {"value": 3}
    with pytest.raises(InputError, match="into a folder"):
        Store(file)


def test_a_subset_of_the_images_keeps_their_labelled_ones():
    labels = np.zeros((6000, 17), np.uint8)
    labels[np.arange(6000), np.arange(6000) % 17] = 1
    split = split_by_name("coco-17", labels)
    data = LabelledImages(
        ImageArray(np.zeros((6000, 2, 2, 3), np.uint8)),
        labels,
        "made up",
        tuple("abcdefghijklmnopq"),
    )
    some, own = used_rows(data, split, 500)
    assert (len(own.train), len(some)) == (500, 600)
    expected = subset(split, 500)
    np.testing.assert_array_equal(some.labels[own.labelled], labels[expected.labelled])
    assert 0 < len(own.labelled) < 500


def test_subsets_keep_queries_apart():
    split = RetrievalSplit("s", np.arange(100, 150), np.arange(100), np.arange(100), 1000)
    small = subset(split, 40)
    assert (len(small.query), len(small.database), small.k) == (8, 40, 40)
    assert "subset of 40" in small.title
    with pytest.raises(InputError, match="10 or more"):
        subset(split, 5)


def test_features_are_normalised_and_equal_parts_are_shared(digits):
    found = read_features(digits)
    rows = np.flatnonzero(~found.query)
    split = RetrievalSplit("s", np.flatnonzero(found.query), rows, rows, 100)
    task = Task(found, split)
    assert task.part("train") is task.part("database")
    np.testing.assert_allclose(np.linalg.norm(task.features, axis=1), 1, rtol=1e-5)
    assert "L2-normalised" in str(task.protocol)
    assert Task(found, split, normalise=False).key != task.key


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.zeros((3, 2))}, "lacks labels"),
        ({"features": np.zeros((3, 2)), "labels": np.zeros(2)}, "do not fit"),
        ({"features": np.zeros((3, 2)), "labels": np.zeros(3), "query": [1]}, "marks each"),
    ],
)
def test_bad_feature_files_are_refused(arrays, message, tmp_path):
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=message):
        read_features(path)


def test_options_are_read_as_they_are_meant():
    ctx, bits = click.Context(cli), click.Option(["--bits"])
    changes = ("DDH.k1=50", "DDH.preset=paper", "DH.hidden=(60, 30)")
    assert settings_of(ctx, bits, changes) == {
        "DDH": {"k1": 50, "preset": "paper"},
        "DH": {"hidden": (60, 30)},
    }
    assert numbers(ctx, bits, "16,32") == (16, 32)
    with pytest.raises(InputError, match="METHOD"):
        settings_of(ctx, bits, ("k1=50",))
    with pytest.raises(InputError, match="--bits takes whole numbers"):
        numbers(ctx, bits, "16;32")


def test_missing_data_and_unknown_rows_are_named(digits, tmp_path, monkeypatch):
    monkeypatch.delenv("DDH_DATA", raising=False)
    with pytest.raises(InputError, match="where is CIFAR-10"):
        run("bench", "table2", "-o", tmp_path)
    with pytest.raises(InputError, match="table2 has no row foo"):
        run("bench", "table2", "--features", digits, "-o", tmp_path, "--methods", "foo")


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ("DeepBit, release", ["DeepBit, release"]),
        ("itq,DDH, graded labels , LSH", ["LSH", "PCA-ITQ", "DDH, graded labels"]),
        ("DDH", ["DDH, graded labels", "DDH"]),
    ],
)
def test_rows_are_selected_by_label_or_method(names, labels):
    assert [row.label for row in select(TABLE2.rows, names, "table2")] == labels


def test_commands_are_told_without_folders(monkeypatch):
    words = ["ddh", "bench", "table2", "--data", str(Path("/some/where/cifar")), "-o", "out"]
    monkeypatch.setattr("sys.argv", [*words, f"--features={Path('/x/y.npz')}"])
    assert command_line() == "ddh bench table2 --data cifar -o out --features=y.npz"
    named = ["--features", f"coco17={Path('/x/y.npz')}", "--set", "DDH.k1=5"]
    monkeypatch.setattr("sys.argv", ["ddh", "bench", "recall", *named])
    assert command_line() == "ddh bench recall --features coco17=y.npz --set DDH.k1=5"
