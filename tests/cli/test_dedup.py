"""`ddh dedup` on real files: folders, an index, and what it writes."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import ddh.index
from ddh._core.errors import InputError
from ddh.cli import cli
from ddh.index.collection import Collection


def draw(path: Path, seed: int, size: tuple[int, int] = (96, 72)) -> None:
    """A random picture with structure, the same for the same seed at every size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    blots = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    Image.fromarray(blots).resize(size, Image.Resampling.BICUBIC).save(path)


@pytest.fixture
def photos(tmp_path) -> Path:
    """Eight pictures, two of which have a copy."""
    for seed in range(8):
        draw(tmp_path / "photos" / f"{seed}.png", seed)
    shutil.copy(tmp_path / "photos" / "1.png", tmp_path / "photos" / "1 again.png")
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "photos" / "3.png", tmp_path / "other" / "three.png")
    return tmp_path


def invoke(*arguments: object) -> str:
    done = CliRunner().invoke(cli, ["dedup", *map(str, arguments)])
    if done.exception:
        raise done.exception
    return done.stdout


def run(*arguments: object) -> dict:
    return json.loads(invoke(*arguments, "--json"))


def names(document: dict) -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (Path(g["keep"]).name, [(Path(m["path"]).name, m["kind"]) for m in g["members"]])
        for g in document["groups"]
    ]


def test_copies_in_several_folders(photos):
    document = run(photos / "photos", photos / "other", "--keep", "path")
    assert names(document) == [
        ("three.png", [("3.png", "identical")]),
        ("1 again.png", [("1.png", "identical")]),
    ]
    assert document["groups"][0]["members"][0]["score"] == 1
    assert (document["similar"], document["skipped"]) == ([], [])
    assert names(run(photos / "photos", "--keep", "path")) == names(document)[1:]


def test_a_bad_file_is_skipped_and_named(photos):
    (photos / "photos" / "bad.png").write_bytes(b"no picture")
    document = run(photos / "photos")
    assert [Path(one["path"]).name for one in document["skipped"]] == ["bad.png"]
    assert "bad.png" in invoke(photos / "photos")


def test_reports_and_nothing_changed(photos):
    before = {path: path.read_bytes() for path in photos.rglob("*.png")}
    shown = invoke(photos / "photos", "-o", photos / "d.csv", "--sheet", photos / "d.sheet")
    assert "1 groups among 9 pictures: 1 duplicates could go" in shown
    assert f"List: {photos / 'd.csv'}\nContact sheet: {photos / 'd.sheet'}\n" in shown
    assert "Nothing was changed" in shown
    assert {path: path.read_bytes() for path in photos.rglob("*.png")} == before
    with (photos / "d.csv").open(newline="") as stream:
        assert [row["kind"] for row in csv.DictReader(stream)] == ["keep", "identical"]
    assert Image.open(photos / "d.sheet").format == "PNG"
    document = run(photos / "photos", "-o", photos / "d.json")
    assert json.loads((photos / "d.json").read_text()) == document


def test_what_the_list_holds_more_than_the_text(photos, monkeypatch):
    monkeypatch.setattr("ddh.cli.dedup.SHOWN_GROUPS", 0)
    monkeypatch.setattr("ddh.cli.dedup.SHEET_GROUPS", 1)
    folders = photos / "photos", photos / "other"
    assert "... and 2 more groups: -o duplicates.csv or --json lists" in invoke(*folders)
    shown = invoke(*folders, "-o", photos / "d.csv", "--sheet", photos / "d.png")
    assert f"... and 2 more groups: {photos / 'd.csv'} lists them all." in shown
    assert f"Contact sheet: {photos / 'd.png'}, the first 1 groups" in shown
    shown = invoke(photos / "other", "--sheet", photos / "none.png")
    assert "Contact sheet: not drawn" in shown
    assert not (photos / "none.png").exists()


def test_files_of_an_index(photos):
    with ddh.index.open(photos / "p.index", bits=8) as index:
        keys = sorted(path.name for path in (photos / "photos").iterdir())
        index.add(keys, np.arange(len(keys), dtype=np.uint8)[:, None], paths=keys)
        index.set_setting(root=str(photos / "photos"))
    assert names(run("--index", photos / "p.index")) == names(run(photos / "photos"))


def test_files_of_an_index_that_are_not_there_are_named(photos):
    with ddh.index.open(photos / "p.index", bits=8) as index:
        collection = Collection(index)
        for folder in ("photos", "other"):
            collection.bind_folder(photos / folder, labelled=True)
        keys = [f"{f.parent.name}/{f.name}" for f in sorted(photos.rglob("*.png"))]
        index.add(keys, np.arange(len(keys), dtype=np.uint8)[:, None], paths=keys)
    (photos / "photos" / "5.png").unlink()
    (photos / "other").rename(photos / "away")
    document = run("--index", photos / "p.index")
    assert names(document) == names(run(photos / "photos"))
    assert {one["path"]: one["reason"] for one in document["skipped"]} == {
        str(photos / "photos" / "5.png"): "gone",
        str(photos / "other" / "three.png"): "its folder is not there",
    }
    shown = invoke("--index", photos / "p.index")
    assert "Skipped 2 files" in shown
    assert "three.png: its folder is not there" in shown
    (photos / "photos").rename(photos / "photos.away")
    away = f"mount {photos / 'photos'}, {photos / 'other'}, or run `ddh index add`"
    with pytest.raises(InputError, match=f"none of the 10 pictures is there: {away}"):
        run("--index", photos / "p.index")


def test_a_folder_of_an_index_is_a_path_or_a_name_in_keys(photos, monkeypatch):
    for name in ("two.png", "two again.png"):
        shutil.copy(photos / "photos" / "2.png", photos / "other" / name)
    with ddh.index.open(photos / "p.index", bits=8) as index:
        Collection(index).bind_folder(photos)
        keys = [f.relative_to(photos).as_posix() for f in sorted(photos.rglob("*.png"))]
        index.add(keys, np.arange(len(keys), dtype=np.uint8)[:, None], paths=keys)
    monkeypatch.chdir(photos / "photos")
    command = ("--index", photos / "p.index", "--keep", "path")
    for folder in ("other", photos / "other", "../other/", "other/"):
        found = run(*command, "--folder", folder)
        assert names(found) == [("two again.png", [("two.png", "identical")])]
    assert run(*command, "--folder", photos) == run(*command)
    with pytest.raises(InputError, match="is called othr; some that are: other"):
        run(*command, "--folder", "othr")


def test_misuse_is_refused(photos):
    with pytest.raises(InputError, match="give folders of pictures, or an index"):
        run(photos / "photos", "--index", photos / "p.index")
    with pytest.raises(InputError, match=r"\.csv or \.json"):
        run(photos / "photos", "-o", "x.txt")


def test_the_rules_of_the_command_are_those_of_the_library():
    from ddh.cli.dedup import KEEP
    from ddh.duplicates import keeping

    assert tuple(keeping.KEEP) == KEEP
