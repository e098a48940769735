"""`ddh evaluate` on pictures in folders, on code files, and with a protocol by name."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import ddh
from ddh._core.errors import InputError
from ddh.cli import cli
from ddh.cli.labels import classes_of
from ddh.evaluation import mean_average_precision
from ddh.images import digits


def run(*words):
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """(queries, database, model): digits in one folder a class, and 16-bit codes for them."""
    root = tmp_path_factory.mktemp("photos")
    data = digits()
    rows = [np.flatnonzero(data.labels == number)[:14] for number in range(4)]
    for number, members in enumerate(rows):
        for place, row in enumerate(members):
            side = "queries" if place < 4 else "database"
            folder = root / side / f"digit{number}"
            folder.mkdir(parents=True, exist_ok=True)
            image = data.images.read(int(row)).resize((32, 32), Image.Resampling.BILINEAR)
            image.save(folder / f"{row}.png")
    model = ddh.DDH(bits=16, backbone="efficientnet-lite0", size=32, epochs=3, k1=4, k2=2)
    model.fit(root / "database").save(root / "m.ddh")
    return root / "queries", root / "database", root / "m.ddh"


def test_folders_are_classes(photos):
    queries, database, model = photos
    result = run("evaluate", queries, database, "-m", model, "--json", "-k", 20)
    scores = json.loads(result.stdout)["scores"]
    hasher = ddh.load(model)
    labels = np.repeat(np.arange(4), 4), np.repeat(np.arange(4), 10)
    codes = hasher.transform(queries), hasher.transform(database)
    expected = mean_average_precision(*codes, *labels, k=20)
    assert scores["expected"]["value"] == pytest.approx(float(expected))
    legacy = mean_average_precision(*codes, *labels, k=20, ties="legacy")
    assert scores["legacy"]["value"] == pytest.approx(float(legacy))
    protocol = scores["expected"]["protocol"]
    assert protocol["queries"] == 16
    assert "efficientnet-lite0 at 32 px" in protocol["backbone"]
    assert hasher.model_id in protocol["backbone"]


def test_text_says_the_protocol_with_the_scores(photos):
    queries, database, model = photos
    text = run("evaluate", queries, database, "-m", model, "--denominator", "min(R, k)").stdout
    for part in ("mAP@1000", "legacy", "precision within radius 2", "measured on: data queries"):
        assert part in text
    assert "denominator min(R, k)" in text


def test_a_protocol_by_name_splits_encodes_and_scores(photos, monkeypatch, tmp_path):
    """The path of --protocol on a small data set; CIFAR-10 itself would take an hour here."""
    import ddh.cli.evaluate as command
    import ddh.images
    from ddh.evaluation import per_class

    data = digits().take(range(60))
    monkeypatch.setattr(ddh.images, "cifar10", lambda root, split: data)
    monkeypatch.setattr(
        command,
        "split_by_name",
        lambda name, labels, seed, parts: per_class(labels, queries=1, training=2, seed=seed, k=7),
    )
    words = ["-m", photos[2], "--protocol", "cifar10-10k-50k", "--data", tmp_path, "--json"]
    score = json.loads(run("evaluate", *words).stdout)["scores"]["expected"]
    hasher = ddh.load(photos[2])
    split = per_class(data.labels, queries=1, training=2, k=7)
    expected = mean_average_precision(
        hasher.transform(data.images.take(split.query)),
        hasher.transform(data.images.take(split.database)),
        data.labels[split.query],
        data.labels[split.database],
        k=7,
    )
    assert score["value"] == pytest.approx(float(expected))
    assert score["protocol"]["split"] == split.title


def test_code_files_and_labels_from_a_table(photos, tmp_path):
    queries, database, model = photos
    for name, folder in (("q", queries), ("d", database)):
        run("encode", folder, "-m", model, "-o", tmp_path / f"{name}.npz")
    words = ["evaluate", tmp_path / "q.npz", tmp_path / "d.npz", "--json"]
    by_folder = json.loads(run(*words).stdout)["scores"]
    names = [
        path.relative_to(folder)
        for folder in (queries, database)
        for path in sorted(folder.rglob("*.png"))
    ]
    with (tmp_path / "labels.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([name.as_posix(), name.parts[0]] for name in names)
    by_table = json.loads(run(*words, "--labels", tmp_path / "labels.csv").stdout)["scores"]
    assert by_table["expected"]["value"] == by_folder["expected"]["value"]


def test_code_files_of_two_models_are_refused(tmp_path):
    for name, model in (("q", "a"), ("d", "b")):
        np.savez(
            tmp_path / f"{name}.npz",
            codes=np.zeros((1, 1), np.uint8),
            bits=8,
            names=np.array(["c/1.png"]),
            model_id=model,
        )
    with pytest.raises(InputError, match="encode both with one model"):
        run("evaluate", tmp_path / "q.npz", tmp_path / "d.npz")
    (tmp_path / "broken.npz").write_bytes(b"no")
    with pytest.raises(InputError, match="not a file that `ddh encode` wrote"):
        run("evaluate", tmp_path / "broken.npz", tmp_path / "d.npz")


def test_a_query_in_the_database_is_refused(photos):
    _, database, model = photos
    with pytest.raises(InputError, match="also in the database"):
        run("evaluate", database, database, "-m", model)


def code_file(path, names, seed=0):
    codes = np.random.default_rng(seed).integers(0, 256, (len(names), 2), np.uint8)
    np.savez(path, codes=codes, bits=16, names=np.array(names), model_id="m")
    return path


def test_codes_that_are_on_both_sides_are_refused(tmp_path):
    file = code_file(tmp_path / "d.npz", ["c/1.png", "e/2.png"])
    with pytest.raises(InputError, match="the queries are also in the database"):
        run("evaluate", file, file)
    other = code_file(tmp_path / "q.npz", ["c/1.png", "e/2.png"], seed=1)
    assert run("evaluate", other, file).exit_code == 0


def test_one_line_of_a_table_is_not_for_two_images(tmp_path):
    """Rows of a .npy file are named by their number, on both sides."""
    files = [code_file(tmp_path / f"{seed}.npz", ["0", "1"], seed) for seed in range(2)]
    (tmp_path / "labels.csv").write_text("0,cat\n1,dog\n")
    with pytest.raises(InputError, match=r"2 name\(s\) stand on both sides, the first is '0'"):
        run("evaluate", *files, "--labels", tmp_path / "labels.csv")


def test_arrays_are_to_be_encoded_first(tmp_path):
    np.save(tmp_path / "q.npy", np.zeros((3, 4)))
    words = ["evaluate", tmp_path / "q.npy", tmp_path / "q.npy", "-m", tmp_path / "no model"]
    with pytest.raises(InputError, match="encode its rows with `ddh encode`"):
        run(*words)


def test_misuse_is_named(photos, monkeypatch, tmp_path):
    monkeypatch.delenv("DDH_DATA", raising=False)
    queries, database, model = photos
    with pytest.raises(InputError, match="give QUERIES and DATABASE"):
        run("evaluate")
    with pytest.raises(InputError, match="goes with -m MODEL and --data"):
        run("evaluate", "--protocol", "cifar10-10k-50k")
    with pytest.raises(InputError, match="with -m MODEL"):
        run("evaluate", queries, database)
    with pytest.raises(InputError, match="no CIFAR-10 batches"):
        run("evaluate", "-m", model, "--protocol", "cifar10-10k-50k", "--data", tmp_path)


def test_several_labels_make_a_matrix(tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("a.jpg,sky;sea\nb.jpg,sea\n")
    assert classes_of(["a.jpg", "b.jpg"], table).tolist() == [[1, 1], [1, 0]]
    with pytest.raises(InputError, match=r"no label for 1 images, the first is 'c\.jpg'"):
        classes_of(["a.jpg", "c.jpg"], table)
    with pytest.raises(InputError, match="in no folder that could be its class"):
        classes_of(["a.jpg"], None)
    assert classes_of(["x/1.jpg", "y/z/2.jpg", "x/3.jpg"], None).tolist() == [0, 1, 0]
    table.write_text("a.jpg,sky; sea\nb.jpg,\nc.jpg,-1\n")
    assert classes_of(["a.jpg", "b.jpg", "c.jpg"], table).tolist() == [[1, 1], [0, 0], [0, 0]]
