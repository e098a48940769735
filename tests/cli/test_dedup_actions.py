"""`ddh dedup` acts: moves, links, lists that come back, and undo."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from ddh._core.errors import InputError
from ddh.cli import cli


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """Four pictures; two of them have copies, one of them two."""
    monkeypatch.setenv("DDH_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    (folder / "b").mkdir(parents=True)
    for seed in range(4):
        noise = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((96, 72), Image.Resampling.BICUBIC).save(
            folder / f"{seed}.png"
        )
    for copy in ("b/one.png", "b/uno.png"):
        shutil.copy(folder / "1.png", folder / copy)
    shutil.copy(folder / "2.png", folder / "b" / "two.png")
    return folder


def run(*arguments: object, code: int = 0) -> dict:
    done = CliRunner().invoke(cli, ["dedup", "--json", *map(str, arguments)])
    if isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_moved_and_undone(photos, tmp_path):
    before = tree(photos)
    acted = run(photos, "--keep", "path", "--move-to", tmp_path / "dups")["acted"]
    assert sorted(tree(tmp_path / "dups")) == ["one.png", "two.png", "uno.png"]
    assert sorted(tree(photos)) == ["0.png", "1.png", "2.png", "3.png"]
    assert len(acted["done"]) == 3
    assert acted["refused"] == []
    restored = run("--undo", acted["journal"])["restored"]
    assert sorted(restored["done"]) == sorted(acted["done"])
    assert tree(photos) == before


def test_the_text_says_how_to_undo(photos, tmp_path):
    options = ["dedup", str(photos), "--hardlink", "--journal", "my journal.jsonl"]
    said = CliRunner().invoke(cli, options).stdout
    assert "Replaced by hard links: 3 files." in said
    assert "ddh dedup --undo 'my journal.jsonl'" in said
    assert (photos / "b" / "one.png").samefile(photos / "b" / "uno.png")
    said = CliRunner().invoke(cli, ["dedup", "--undo", "my journal.jsonl"]).stdout
    assert "In their old places: 3 files." in said
    assert not (photos / "b" / "one.png").samefile(photos / "b" / "uno.png")


@pytest.mark.parametrize("name", ["list.json", "list.csv"])
def test_a_list_comes_back(photos, tmp_path, name):
    run("photos", "--keep", "path", "-o", name)
    acted = run("--apply", name, "--move-to", tmp_path / "dups")["acted"]
    assert len(acted["done"]) == 3
    assert sorted(tree(photos)) == ["0.png", "1.png", "2.png", "3.png"]


def test_a_csv_that_was_edited(photos, tmp_path):
    run("photos", "--keep", "path", "-o", "list.csv")
    with (tmp_path / "list.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:  # another one is kept, and one row is taken out
        if row["path"].endswith("uno.png"):
            row["kind"] = "keep"
        elif row["path"].endswith("1.png"):
            row["kind"] = "identical"
    with (tmp_path / "list.csv").open("w", newline="", encoding="utf-8-sig") as stream:
        writer = csv.DictWriter(stream, ["group", "path", "kind"], "", "ignore", delimiter=";")
        writer.writeheader()
        writer.writerows(row for row in rows if not row["path"].endswith("one.png"))
    run("--apply", "list.csv", "--move-to", tmp_path / "dups")
    assert sorted(tree(tmp_path / "dups")) == ["1.png", "b/two.png"]
    assert sorted(tree(photos)) == ["0.png", "2.png", "3.png", "b/one.png", "b/uno.png"]


def test_the_process_fails_where_nothing_could_be_done(photos):
    """As a process: click gives the status of a command back to its caller."""
    listed = write_list(("1.png", ["0.png", "none.png"]))
    for arguments, code in (("--apply", listed), 1), (("--move-to", "out", "photos"), 0):
        options = ["dedup", *arguments, *(["--trash"] if code else [])]
        done = subprocess.run([sys.executable, "-m", "ddh", *options], capture_output=True)
        assert done.returncode == code, done


def write_list(*groups: tuple[str, list[str]]) -> str:
    document = [
        {"keep": f"photos/{keep}", "members": [{"path": f"photos/{name}"} for name in members]}
        for keep, members in groups
    ]
    Path("list.json").write_text(json.dumps({"groups": document}))
    return "list.json"


def test_only_what_is_verified_again_is_moved(photos, tmp_path):
    """A list may say anything: different pictures and files that are none are refused."""
    (photos / "notes.txt").write_text("mine")
    listed = write_list(("1.png", ["b/one.png", "0.png", "notes.txt", "none.png"]))
    acted = run("--apply", listed, "--move-to", tmp_path / "dups", code=1)["acted"]
    assert [Path(path).name for path in acted["done"]] == ["one.png"]
    reasons = {Path(entry["path"]).name: entry["reason"] for entry in acted["refused"]}
    assert "not a duplicate" in reasons["0.png"]
    assert "notes.txt" in reasons
    assert "not there" in reasons["none.png"]
    assert {"0.png", "1.png", "notes.txt", "b/uno.png"} <= set(tree(photos))


def test_a_list_is_checked_against_its_digests(photos, tmp_path):
    run("photos", "--keep", "path", "-o", "list.json")
    for name in ("1.png", "b/one.png", "b/uno.png"):  # still copies, but of another picture
        shutil.copy(photos / "0.png", photos / name)
    acted = run("--apply", "list.json", "--move-to", tmp_path / "dups", code=1)["acted"]
    assert [Path(path).name for path in acted["done"]] == ["two.png"]
    assert all("changed since the list" in entry["reason"] for entry in acted["refused"])


def test_not_moved_into_the_searched_folder(photos):
    with pytest.raises(InputError, match="lies inside"):
        run(photos, "--move-to", photos / "dups")


@pytest.mark.parametrize(
    "options",
    [
        ("photos", "--trash", "--hardlink"),
        ("--apply", "list.json"),
        ("photos", "--apply", "list.json", "--trash"),
        ("photos", "--undo", "journal"),
        ("--undo", "journal", "--trash"),
    ],
)
def test_options_that_do_not_go_together(photos, options):
    write_list()
    with pytest.raises(InputError):
        run(*options)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"groups": 1}', '{"groups": [{"keep": "a"}]}', "group,path\n1,a\n", "nothing",
     "group,path,kind\n1,a,resized\n", "group,path,kind\n1,a,keep\n1,b,keep\n",
     '{"groups": [{"keep": 1, "members": [{"path": 2}]}]}'],
)  # fmt: skip
def test_a_list_that_cannot_be_used(photos, content):
    Path("list").write_text(content)
    with pytest.raises(InputError, match="list"):
        run("--apply", "list", "--trash")
