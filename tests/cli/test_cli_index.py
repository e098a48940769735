"""`ddh index` and `ddh search` on real files with a real, small model."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from command_line import run, text
from PIL import Image

import ddh.index
from ddh._core.errors import InputError
from ddh.cli import cli
from ddh.hashers import DDH
from ddh.index.page_settings import TAGS, read_page_setting, write_page_setting
from ddh.train.features import Extractor

BITS = 32


def draw(path: Path, seed: int, size: tuple[int, int] = (64, 48)) -> None:
    """A soft random picture, the same for the same seed at every size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    blots = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    Image.fromarray(blots).resize(size, Image.Resampling.BICUBIC).save(path)


def draw_folder(folder: Path) -> None:
    for seed in range(12):
        draw(folder / ("animals" if seed % 3 else "plants") / f"{seed}.png", seed)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """EfficientNet-Lite0 at 64 pixels with a head learned from two dozen pictures."""
    folder = tmp_path_factory.mktemp("model")
    for seed in range(24):
        draw(folder / "pictures" / f"{seed}.png", 100 + seed)
    learned = DDH(bits=BITS, size=64, epochs=3, device="cpu").fit(folder / "pictures")
    learned.save(folder / "small.ddh")
    return folder / "small.ddh"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, model) -> Path:
    """A folder with pictures and their index, to be copied by each test."""
    folder = tmp_path_factory.mktemp("prepared")
    draw_folder(folder / "photos")
    done = run("index", "add", folder / "photos", "-i", folder / "p.index", "-m", model)
    assert done["new"] == 12
    return folder


@pytest.fixture
def place(tmp_path, prepared) -> Path:
    shutil.copytree(prepared, tmp_path / "place", copy_function=shutil.copy2)
    with ddh.index.open(tmp_path / "place" / "p.index") as index:
        moved = {"root": str(tmp_path / "place" / "photos")}
        index.set_setting(**moved)
    return tmp_path / "place"


def refused(match: str, *arguments) -> None:
    with pytest.raises(InputError, match=match):
        CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)


def keys(place: Path) -> set[str]:
    with ddh.index.open(place / "p.index") as index:
        return {row.key for row in index.items()}


def forbid_encoding(monkeypatch) -> None:
    def encode(*arguments):
        raise AssertionError("a picture was encoded")

    monkeypatch.setattr(DDH, "encode_images", encode)


# -- ddh index ------------------------------------------------------------------------------------


def test_keys_are_names_relative_to_the_folder(place):
    assert keys(place) == {
        f"{'animals' if seed % 3 else 'plants'}/{seed}.png" for seed in range(12)
    }
    with ddh.index.open(place / "p.index") as index:
        row = index.get("animals/1.png")
    state = (place / "photos" / "animals" / "1.png").stat()
    assert row.path == row.key
    assert row.stamp[:2] == (state.st_mtime_ns, state.st_size)


def test_a_second_run_touches_nothing(place, monkeypatch):
    forbid_encoding(monkeypatch)
    with ddh.index.open(place / "p.index") as index:
        before = index.info().deleted, [row.key for row in index.items()]
    done = run("index", "add", place / "photos", "-i", place / "p.index")
    assert (done["new"], done["changed"], done["unchanged"], done["gone"]) == (0, 0, 12, 0)
    with ddh.index.open(place / "p.index") as index:
        assert (index.info().deleted, [row.key for row in index.items()]) == before


def test_only_new_and_changed_files_are_encoded(place):
    photos = place / "photos"
    draw(photos / "new" / "99.png", 99)
    draw(photos / "animals" / "1.png", 55)
    os.utime(photos / "animals" / "2.png")  # another time, the same content
    (photos / "plants" / "0.png").unlink()
    (photos / "bad.jpg").write_bytes(b"this is no picture")
    with ddh.index.open(place / "p.index") as index:
        index.upsert(
            ["animals/1.png"], index.get("animals/1.png").code, metadata=[{"album": "best"}],
            paths=["animals/1.png"], stamps=[index.get("animals/1.png").stamp],
        )  # fmt: skip
        before = {row.key: row.code.tobytes() for row in index.items()}
    done = run("index", "add", photos, "-i", place / "p.index")
    assert (done["new"], done["changed"], done["unchanged"]) == (1, 1, 10)
    assert (done["gone"], done["pruned"], done["rows"]) == (1, 0, 13)
    assert [entry["name"] for entry in done["skipped"]] == ["bad.jpg"]
    with ddh.index.open(place / "p.index") as index:
        after = {row.key: row.code.tobytes() for row in index.items()}
        assert index.get("animals/1.png").metadata == {"album": "best"}
    assert {key for key in before if after[key] != before[key]} == {"animals/1.png"}
    again = run("index", "add", photos, "-i", place / "p.index", "--prune")
    assert (again["new"], again["changed"], again["pruned"], again["rows"]) == (0, 0, 1, 12)
    shown = text("index", "add", photos, "-i", place / "p.index")
    assert "12 pictures: 0 new, 0 changed, 12 as before" in shown
    assert "bad.jpg" in shown


def test_a_bad_file_alone_does_not_load_the_network(place, monkeypatch):
    forbid_encoding(monkeypatch)
    (place / "photos" / "bad.jpg").write_bytes(b"this is no picture")
    (place / "photos" / "cut.png").write_bytes(
        (place / "photos" / "animals" / "1.png").read_bytes()[:300]
    )
    for _ in range(2):
        done = run("index", "add", place / "photos", "-i", place / "p.index")
        assert [entry["name"] for entry in done["skipped"]] == ["bad.jpg", "cut.png"]
        assert (done["new"], done["rows"]) == (0, 12)


def test_a_moved_folder_is_the_same_collection(place, monkeypatch):
    forbid_encoding(monkeypatch)
    (place / "photos").rename(place / "elsewhere")
    done = run("index", "add", place / "elsewhere", "-i", place / "p.index")
    assert (done["new"], done["unchanged"], done["gone"]) == (0, 12, 0)
    hits = run("search", "animals/1.png", "-i", place / "p.index", "-k", 1)["queries"][0]["hits"]
    assert hits[0]["file"] == str((place / "elsewhere" / "animals" / "1.png").resolve())


def test_index_and_folder_may_move_together(place, monkeypatch):
    forbid_encoding(monkeypatch)
    place.rename(place.with_name("other"))
    place = place.with_name("other")
    done = run("search", place / "photos" / "animals" / "1.png", "-i", place / "p.index", "-k", 1)
    assert done["queries"][0]["hits"][0]["file"] == str(
        (place / "photos" / "animals" / "1.png").resolve()
    )


def test_a_copy_takes_the_place_of_the_folder_if_it_is_said_to(place):
    draw(place / "stranger" / "x.png", 7)
    add = ("index", "add", place / "stranger", "-i", place / "p.index")
    refused("none of them is in", *add, "--moved")
    shutil.copytree(place / "photos", place / "copy")
    done = run("index", "add", place / "copy", "-i", place / "p.index", "--moved")
    assert (done["new"], done["changed"], done["unchanged"], done["rows"]) == (0, 0, 12, 12)


# -- several roots --------------------------------------------------------------------------------


def test_another_folder_is_another_root(place, monkeypatch):
    draw(place / "backup" / "phone" / "x.png", 70)
    done = run("index", "add", place / "backup" / "phone", "-i", place / "p.index")
    assert (done["new"], done["rows"], done["gone"]) == (1, 13, 0)
    assert "phone/x.png" in keys(place)
    forbid_encoding(monkeypatch)
    for folder in (place / "photos", place / "backup" / "phone"):
        done = run("index", "add", folder, "-i", place / "p.index", "--prune")
        assert (done["new"], done["gone"], done["pruned"], done["rows"]) == (0, 0, 0, 13)
    file = str((place / "backup" / "phone" / "x.png").resolve())
    for query in (file, "phone/x.png"):
        hit = run("search", query, "-i", place / "p.index", "-k", 1)["queries"][0]["hits"][0]
        assert (hit["key"], hit["file"], hit["missing"]) == ("phone/x.png", file, None)
    only = run("search", "phone/x.png", "--folder", "phone", "-i", place / "p.index")
    assert [hit["key"] for hit in only["queries"][0]["hits"]] == ["phone/x.png"]


def test_labels_of_roots_are_unique_and_kept_apart_from_folders(place):
    for number, name in enumerate(("a/phone", "b/phone", "c/animals")):
        draw(place / name / "x.png", 70 + number)
        run("index", "add", place / name, "-i", place / "p.index")
    assert {"phone/x.png", "phone-2/x.png", "animals-2/x.png"} <= keys(place)
    draw(place / "photos" / "phone" / "y.png", 80)
    done = run("index", "add", place / "photos", "-i", place / "p.index")
    assert done["skipped"][0]["name"] == "phone/y.png"
    assert "name of another root" in done["skipped"][0]["reason"]


def test_a_wider_folder_takes_in_the_roots_inside(place, monkeypatch):
    forbid_encoding(monkeypatch)
    (place / "album").mkdir()
    (place / "photos").rename(place / "album" / "photos")
    run("index", "add", place / "album" / "photos", "-i", place / "p.index")
    done = run("index", "add", place / "album", "-i", place / "p.index", "--prune")
    assert (done["new"], done["unchanged"], done["rows"]) == (0, 12, 12)
    assert "album/photos/animals/1.png" in keys(place)
    hit = run("search", "album/photos/animals/1.png", "-i", place / "p.index", "-k", 1)
    assert hit["queries"][0]["hits"][0]["missing"] is None


def test_moved_renamed_and_copied_files_are_not_encoded(place, monkeypatch):
    forbid_encoding(monkeypatch)
    photos = place / "photos"
    with ddh.index.open(place / "p.index") as index:
        row = index.get("animals/1.png")
        index.upsert([row.key], [row.code], paths=[row.path], stamps=[row.stamp],
                     metadata=[{"album": "best"}])  # fmt: skip
    (photos / "animals" / "1.png").rename(photos / "plants" / "renamed.png")
    shutil.copy(photos / "animals" / "2.png", photos / "copy.png")
    done = run("index", "add", photos, "-i", place / "p.index")
    assert (done["new"], done["moved"], done["copies"], done["gone"]) == (0, 1, 1, 0)
    assert done["rows"] == 13
    with ddh.index.open(place / "p.index") as index:
        moved = index.get("plants/renamed.png")
        assert index.get("animals/1.png") is None
        assert (moved.path, moved.metadata) == ("plants/renamed.png", {"album": "best"})
        assert (moved.code == row.code).all()
        assert (index.get("copy.png").code == index.get("animals/2.png").code).all()
    again = run("index", "add", photos, "-i", place / "p.index")
    assert (again["unchanged"], again["moved"], again["copies"]) == (13, 0, 0)
    (place / "phone").mkdir()
    (photos / "copy.png").rename(place / "phone" / "a.png")
    done = run("index", "add", place / "phone", "-i", place / "p.index")
    assert (done["moved"], done["rows"]) == (1, 13)


def test_copies_of_a_moved_file_are_copies_of_its_new_row(place, monkeypatch):
    forbid_encoding(monkeypatch)
    photos = place / "photos"
    shutil.copy(photos / "animals" / "1.png", photos / "a second.png")
    (photos / "animals" / "1.png").rename(photos / "moved.png")
    done = run("index", "add", photos, "-i", place / "p.index")
    assert (done["new"], done["moved"], done["copies"], done["gone"]) == (0, 1, 1, 0)
    assert {"a second.png", "moved.png"} <= keys(place)
    assert "animals/1.png" not in keys(place)


def test_tags_go_with_pictures_that_move(place, monkeypatch):
    forbid_encoding(monkeypatch)
    photos = place / "photos"
    with ddh.index.open(place / "p.index") as index:
        write_page_setting(index, TAGS, {"best": ["animals/1.png", "animals/2.png"]})
    (photos / "animals" / "1.png").rename(photos / "moved.png")
    run("index", "add", photos, "-i", place / "p.index")
    with ddh.index.open(place / "p.index") as index:
        assert read_page_setting(index, TAGS, {}) == {"best": ["moved.png", "animals/2.png"]}
    run("index", "add", place, "-i", place / "p.index")  # a wider folder
    with ddh.index.open(place / "p.index") as index:
        tags = read_page_setting(index, TAGS, {})["best"]
        assert tags == [f"{place.name}/photos/moved.png", f"{place.name}/photos/animals/2.png"]
        assert None not in [index.get(key) for key in tags]


def test_equal_new_files_are_encoded_once(place, model, monkeypatch):
    for name in ("x.png", "y.png", "z.png"):
        draw(place / "same" / name, 3)
    (place / "same" / "bad1.png").write_bytes(b"no picture")
    (place / "same" / "bad2.png").write_bytes(b"no picture")
    encoded, encode = [], DDH.encode_images

    def counted(self, images, **options):
        encoded.extend(images.names)
        return encode(self, images, **options)

    monkeypatch.setattr(DDH, "encode_images", counted)
    done = run("index", "add", place / "same", "-i", place / "s.index", "-m", model)
    assert len([name for name in encoded if "bad" not in name]) == 1
    assert (done["new"], done["copies"], done["rows"]) == (1, 2, 3)
    assert [entry["name"] for entry in done["skipped"]] == ["bad1.png", "bad2.png"]


def test_features_come_from_the_same_pass_of_the_network(place, model, monkeypatch):
    encoded, run_network = [], Extractor.__call__

    def counted(self, pixels, *arguments):
        encoded.extend(row.tobytes() for row in pixels)
        return run_network(self, pixels, *arguments)

    monkeypatch.setattr(Extractor, "__call__", counted)
    add = ("index", "add", place / "photos", "-i", place / "f.index", "-m", model)
    assert run(*add, "--features", 8)["new"] == 12
    assert len(encoded) == len(set(encoded)) == 12
    with ddh.index.open(place / "f.index") as index:
        assert np.abs(index.features(["animals/1.png", "plants/0.png"])).sum(axis=1).min() > 0


def test_files_that_are_gone_are_marked(place):
    (place / "photos" / "animals" / "1.png").unlink()
    hits = run("search", "animals/1.png", "-i", place / "p.index", "-k", 3)["queries"][0]["hits"]
    assert [hit["missing"] for hit in hits] == ["gone", None, None]
    shown = text("search", "animals/1.png", "-i", place / "p.index", "-k", 3).splitlines()
    assert shown[2].endswith("animals/1.png  (gone)")
    assert shown[3].endswith(".png")


@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_a_root_that_is_not_mounted_keeps_its_rows(place, left):
    draw(place / "drive" / "x.png", 70)
    run("index", "add", place / "drive", "-i", place / "p.index")
    shutil.rmtree(place / "drive")
    if left != "nothing":
        (place / "drive").mkdir()
        done = run("index", "add", place / "drive", "-i", place / "p.index", "--prune")
        assert (done["gone"], done["pruned"], done["rows"]) == (0, 0, 13)
    done = run("index", "add", place / "photos", "-i", place / "p.index", "--prune")
    drive = str((place / "drive").resolve())
    assert (done["pruned"], done["rows"], done["absent"]) == (0, 13, {drive: 1})
    shown = text("index", "add", place / "photos", "-i", place / "p.index")
    assert f"{drive} is not there, or is empty: its 1 pictures are kept." in shown
    hit = run("search", "drive/x.png", "-i", place / "p.index", "-k", 1)["queries"][0]["hits"][0]
    assert hit["missing"] == "offline"
    assert "folder is not there" in text("search", "drive/x.png", "-i", place / "p.index", "-k", 1)
    draw(place / "elsewhere" / "x.png", 70)
    if left == "nothing":  # the same drive in another place
        done = run("index", "add", place / "elsewhere", "-i", place / "p.index")
        assert (done["new"], done["rows"], done["absent"]) == (0, 13, {})


def test_other_files_are_counted(place):
    (place / "photos" / "film.mov").touch()
    done = run("index", "add", place / "photos", "-i", place / "p.index")
    assert done["ignored"] == {".mov": 1}
    assert "Not read: 1 .mov." in text("index", "add", place / "photos", "-i", place / "p.index")


def test_a_part_of_the_folder_leaves_the_rest_alone(place):
    draw(place / "photos" / "plants" / "77.png", 77)
    draw(place / "photos" / "animals" / "78.png", 78)
    (place / "photos" / "plants" / "3.png").unlink()
    (place / "photos" / "animals" / "1.png").unlink()
    done = run("index", "add", place / "photos" / "plants", "-i", place / "p.index", "--prune")
    assert (done["new"], done["pruned"]) == (1, 1)
    assert {"plants/77.png", "animals/1.png"} <= keys(place)
    assert not {"plants/3.png", "animals/78.png"} & keys(place)


def test_a_folder_that_became_empty_can_be_pruned(place):
    shutil.rmtree(place / "photos" / "plants")
    (place / "photos" / "plants").mkdir()
    done = run("index", "add", place / "photos" / "plants", "-i", place / "p.index", "--prune")
    assert done["pruned"] == 4
    assert done["rows"] == 8


def test_a_new_index_wants_a_model_and_an_old_one_its_own(place, model, tmp_path):
    refused("--model is missing", "index", "add", place / "photos", "-i", tmp_path / "new.index")
    refused("no index at", "search", "x", "-i", tmp_path / "new.index")
    assert not (tmp_path / "new.index").exists()
    other = DDH(bits=BITS, size=64, epochs=1, device="cpu", random_state=9)
    other.fit(place / "photos").save(tmp_path / "other.ddh")
    arguments = ("index", "add", place / "photos", "-i", place / "p.index")
    refused("codes of two models", *arguments, "-m", tmp_path / "other.ddh")
    with ddh.index.open(place / "p.index") as index:
        index.set_setting(model=str(tmp_path / "gone.ddh"), model_from_index="gone.ddh")
    draw(place / "photos" / "n.png", 500)
    refused(r"gone\.ddh any more: give --model", *arguments)
    assert run(*arguments, "-m", model)["new"] == 1
    assert run("search", place / "photos" / "n.png", "-i", place / "p.index")["queries"]


def test_an_empty_folder_leaves_no_index_behind(tmp_path, model):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "film.mov").touch()
    add = ("index", "add", tmp_path / "empty", "-i", tmp_path / "new.index", "-m", model)
    refused(r"no images in .*1 \.mov", *add)
    assert not (tmp_path / "new.index").exists()


def test_open_without_a_viewer_says_so(place, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.platform", "linux")
    done = CliRunner().invoke(
        cli, ["search", "animals/1.png", "-i", str(place / "p.index"), "--open"]
    )
    assert done.exit_code == 0
    assert "No program to show it" in done.stderr
    sheet = Path(done.stderr.partition("open ")[2].rpartition(" yourself")[0])
    assert sheet.is_file()


def test_remove_info_and_compact(place):
    first = place / "photos" / "animals" / "1.png"
    done = run("index", "remove", first, "animals/2.png", "nobody", "-i", place / "p.index")
    assert (done["removed"], done["missing"], done["rows"]) == (2, ["nobody"], 10)
    assert first.exists()
    done = run("index", "remove", "--folder", place / "photos/plants", "-i", place / "p.index")
    assert (done["removed"], done["rows"]) == (4, 6)
    refused("holds none", "index", "remove", "nobody", "-i", place / "p.index")
    refused("name the keys", "index", "remove", "-i", place / "p.index")
    info = run("index", "info", "-i", place / "p.index")
    assert (info["rows"], info["deleted"], info["bits"]) == (6, 6, BITS)
    assert "6 rows of 32 bits (local)" in text("index", "info", "-i", place / "p.index")
    done = run("index", "compact", "-i", place / "p.index")
    assert (done["rows"], done["cleared"]) == (6, 6)
    assert run("index", "info", "-i", place / "p.index")["deleted"] == 0


# -- ddh search -----------------------------------------------------------------------------------


def test_search_by_file_by_key_and_by_a_stranger(place, tmp_path):
    draw(tmp_path / "stranger.png", 4, size=(200, 150))  # animals/4.png, larger
    inside = place / "photos" / "animals" / "4.png"
    arguments = (inside, "animals/4.png", tmp_path / "stranger.png")
    done = run("search", *arguments, "-k", 3, "-i", place / "p.index")
    assert [answer["query"] for answer in done["queries"]] == [*map(str, arguments)]
    for answer in done["queries"]:
        assert len(answer["hits"]) == 3
        assert answer["hits"][0]["key"] == "animals/4.png"
    assert done["queries"][0]["hits"] == done["queries"][1]["hits"]
    assert done["queries"][0]["hits"][0]["distance"] == 0
    assert done["queries"][2]["hits"][0]["distance"] <= 3
    for folder in ("plants", place / "photos" / "plants"):
        only = run("search", "animals/4.png", "--folder", folder, "-i", place / "p.index")
        assert {hit["key"].split("/")[0] for hit in only["queries"][0]["hits"]} == {"plants"}
    for command in (["search"], ["index", "remove"]):
        for folder in ("plans", place / "photos" / "plans", place, "/"):
            options = ("--folder", folder, "-i", place / "p.index")
            refused("is called .*; some that are: .*plants", *command, "animals/4.png", *options)
    table = text("search", "animals/4.png", "-k", 2, "-i", place / "p.index")
    assert table.splitlines()[2].split()[:2] == ["1", "0"]
    assert table.splitlines()[2].endswith("animals/4.png")


def test_every_picture_is_its_own_first_answer_among_equal_codes(place, tmp_path):
    with ddh.index.open(place / "p.index") as index:
        rows = list(index.items())
        names = [row.key for row in rows]
        index.upsert(
            names, [rows[0].code] * len(rows), paths=names, stamps=[row.stamp for row in rows]
        )
    inside = [place / "photos" / name for name in names]
    done = run("search", *inside, "-k", 2, "-i", place / "p.index")
    assert [answer["hits"][0]["key"] for answer in done["queries"]] == names
    assert {hit["score"] for answer in done["queries"] for hit in answer["hits"]} == {None}
    copies = [tmp_path / f"{number}.png" for number in range(len(names))]
    for file, copy in zip(inside, copies, strict=True):
        shutil.copy(file, copy)  # found by its content: a file that the index does not know
    done = run("search", *copies, inside[0], "-k", 1, "-i", place / "p.index")
    found = [answer["hits"][0]["key"] for answer in done["queries"]]
    assert found == [*names, names[0]]
    assert all(isinstance(a["hits"][0]["score"], float) for a in done["queries"][:-1])


def test_features_are_stored_and_order_what_is_found(place, model, tmp_path):
    index = tmp_path / "f.index"
    add = ("index", "add", place / "photos", "-i", index, "-m", model)
    assert run(*add, "--features", 48)["new"] == 12
    assert run("index", "info", "-i", index)["features"] == 48
    touched = place / "photos" / "animals" / "4.png"
    os.utime(touched, (1, 1))
    assert run(*add)["unchanged"] == 12
    draw(tmp_path / "larger.png", 4, size=(200, 150))  # animals/4.png
    done = run("search", touched, tmp_path / "larger.png", "-k", 12, "-i", index)
    for answer in done["queries"]:
        scores = [hit["score"] for hit in answer["hits"]]
        assert answer["hits"][0]["key"] == "animals/4.png"
        assert scores == sorted(scores, reverse=True)
        assert 0.9 < scores[0] < 1.001
    done = run("index", "refit", "-i", index, "-b", 40, "-m", tmp_path / "new.ddh")
    assert (done["rows"], done["bits"]) == (12, 40)
    assert run("index", "info", "-i", index)["model_id"] == done["model_id"]
    draw(place / "photos" / "animals" / "new.png", 4, size=(68, 51))  # by the new model
    assert run(*add[:-2])["new"] == 1
    hits = run("search", tmp_path / "larger.png", "-k", 2, "-i", index)["queries"][0]["hits"]
    assert {hit["key"] for hit in hits} == {"animals/4.png", "animals/new.png"}
    assert max(hit["distance"] for hit in hits) <= 8
    refused("holds codes of", *add)
    refused("chosen when an index is made", *add[:-2], "--features", 64)
    refused("stores none", "index", "add", place / "photos", "-i", place / "p.index",
            "--features", 48)  # fmt: skip


def test_a_changed_file_is_encoded_anew(place):
    inside = place / "photos" / "animals" / "4.png"
    draw(inside, 5)
    hits = run("search", inside, "-k", 1, "-i", place / "p.index")["queries"][0]["hits"]
    assert hits[0]["key"] == "animals/5.png"


def test_search_writes_a_contact_sheet(place, monkeypatch):
    opened = []
    monkeypatch.setattr("click.launch", opened.append)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")  # there is a viewer
    sheet = place / "near.png"
    (place / "photos" / "animals" / "8.png").unlink()  # drawn as an empty tile
    run("search", "animals/1.png", "animals/2.png", "-i", place / "p.index", "--sheet", sheet)
    with Image.open(sheet) as image:
        assert image.width > 1000
    assert not opened
    run("search", "animals/1.png", "-i", place / "p.index", "--open")
    assert Path(opened[0]).is_file()


def test_what_cannot_be_searched_for_is_named(place, tmp_path):
    refused("neither a file nor a key", "search", "nobody", "-i", place / "p.index")
    refused("is a folder", "search", place / "photos", "-i", place / "p.index")
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"junk")
    refused("not a picture", "search", bad, "-i", place / "p.index")
    done = run("search", bad, "animals/1.png", "-i", place / "p.index")
    assert [entry["name"] for entry in done["skipped"]] == [str(bad)]
    assert len(done["queries"]) == 1


def test_search_by_key_does_not_import_torch(place):
    script = (
        "import sys\n"
        "from ddh.cli import cli\n"
        "cli(['search', 'animals/1.png', '-k', '2', '-i', sys.argv[1]], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, place / "p.index"], check=True)
