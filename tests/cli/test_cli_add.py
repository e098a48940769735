"""`ddh add`: a newcomer's first hour, and how the index follows the folders after it."""

import os
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from click.testing import CliRunner
from command_line import run, text
from PIL import Image

import ddh.index
from ddh._core.errors import InputError
from ddh.cli import add, cli
from ddh.images import formats
from ddh.index.collection import Collection
from ddh.index.location import default_location
from ddh.train.features import Extractor
from dng_file import dng

ODD_NAMES = ("Größe & Ärger.jpg", "a b  c.jpg", "#1?%20.jpg", "-rf.jpg", "'; drop.jpg", "日本.jpg")


def picture(seed: int) -> Image.Image:
    """A soft random picture."""
    blots = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(blots).resize((72, 60), Image.Resampling.BICUBIC)


def write(path: Path, seed: int, format: str = "JPEG") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(seed).save(path, format)
    return path


def raw_file(seed: int) -> bytes:
    return dng(np.asarray(picture(seed).convert("L").resize((144, 120))).astype(np.uint16) * 257)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """The user's data folder, in which the default index lies."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DDH_INDEX", raising=False)
    return tmp_path


@pytest.fixture
def counted(monkeypatch) -> list[bytes]:
    """The pixels of every picture that the network was run on."""
    seen: list[bytes] = []
    run_network = Extractor.__call__

    def count(self, pixels, *arguments, **options):
        seen.extend(row.tobytes() for row in pixels)
        return run_network(self, pixels, *arguments, **options)

    monkeypatch.setattr(Extractor, "__call__", count)
    return seen


def keys() -> set[str]:
    with ddh.index.open(default_location()) as index:
        return {row.key for row in index.items()}


def test_the_first_hour_of_a_newcomer(home, counted, monkeypatch):
    """One `ddh add`, one service: each file of 40 is found, or named in the summary."""
    from starlette.testclient import TestClient

    from ddh.serve import Settings, create_app

    monkeypatch.setattr(add, "MIN_FITTED_ROWS", 20)
    pictures, phone = home / "My Pictures", home / "phone"
    files = [write(pictures / f"2024/{seed}.jpg", seed) for seed in range(16)]
    files += [write(pictures / name, 20 + i) for i, name in enumerate(ODD_NAMES)]
    files += [write(phone / "IMG_0001", 30), write(phone / "2023.12.24", 31, "PNG")]
    for i, (format, library) in enumerate([("HEIF", "pillow_heif"), ("JXL", "pillow_jxl")]):
        if formats.library(library):
            files += [write(phone / f"{seed}.{format.lower()}", seed, format)
                      for seed in range(40 + 3 * i, 43 + 3 * i)]  # fmt: skip
    if "AVIF" in formats.picture_formats():
        files += [write(phone / f"{seed}.avif", seed, "AVIF") for seed in range(50, 53)]
    if formats.library("rawpy"):
        (phone / "raw.dng").write_bytes(raw_file(60))
        files.append(phone / "raw.dng")
    for name in ("film.mov", "clip.MOV", "notes.txt", ".DS_Store"):
        (phone / name).write_bytes(b"\0" * 100)
    (phone / "damaged.jpg").write_bytes(files[0].read_bytes()[:200])
    copy = shutil.copy(files[0], phone / "copy.jpg")

    done = run("add", pictures, phone)
    assert done["rows"] == len(files) + 1
    assert (done["new"], done["copies"]) == (len(files), 1)
    assert done["ignored"] == {".mov": 2, ".txt": 1, "hidden": 1}
    assert [entry["name"] for entry in done["skipped"]] == ["phone/damaged.jpg"]
    assert done["fitted"] == done["rows"]
    assert len(counted) == len(set(counted)) == len(files), "the network runs once per picture"

    listed = {f"My Pictures/{f.relative_to(pictures)}" for f in files if pictures in f.parents}
    listed |= {f"phone/{f.name}" for f in files if phone in f.parents} | {"phone/copy.jpg"}
    assert keys() == listed
    for file in (files[3], files[-1], Path(copy)):
        hits = run("search", file, "-k", 2)["queries"][0]["hits"]
        assert hits[0]["file"] == str(file)
    assert len(counted) == len(files), "nor for what is searched by its stored code"

    with TestClient(
        create_app(default_location(), Settings()), base_url="http://localhost"
    ) as page:
        assert page.get("/health").json()["rows"] == len(files) + 1
        items = page.get("/items?limit=1000").json()["items"]
        assert {item["key"] for item in items if item["picture"]} == listed
        for key in ("phone/raw.dng", "phone/40.heif", "My Pictures/2024/0.jpg"):
            if key in listed:
                assert page.get(f"/thumbnails/{key}").headers["content-type"] == "image/jpeg"
        found = page.post("/search", json={"key": "phone/copy.jpg", "k": 2}).json()["results"]
        assert {hit["key"] for hit in found} == {"phone/copy.jpg", "My Pictures/2024/0.jpg"}

    shown = text("add")
    assert "Not read: 2 .mov, 1 .txt, 1 hidden." in shown
    assert "phone/damaged.jpg" in shown
    assert len(counted) == len(files)
    hints = [line.strip() for line in shown.splitlines() if line.startswith("  ddh ")]
    assert [shlex.split(hint)[1] for hint in hints] == ["search", "serve", "dedup"]
    text(*shlex.split(hints[0])[1:])
    assert "1 groups" in text(*shlex.split(hints[2])[1:])


def test_codes_are_fitted_again_when_the_collection_has_doubled(home, counted, monkeypatch):
    monkeypatch.setattr(add, "MIN_FITTED_ROWS", 10)
    photos = home / "photos"

    def model() -> Path:
        with ddh.index.open(default_location()) as index:
            return Path(index.settings()["model"])

    for seed in range(6):
        write(photos / f"{seed}.jpg", seed)
    assert run("add", photos)["fitted"] == 0
    assert model() == ddh.default_model()
    for seed in range(6, 14):
        write(photos / f"{seed}.jpg", seed)
    assert run("add")["fitted"] == 14
    first = model()
    assert first == Path(default_location()).with_name("photos.1.ddh")
    write(photos / "14.jpg", 14)
    done = run("add", photos)
    assert (done["new"], done["fitted"], model()) == (1, 0, first)
    for seed in range(15, 28):
        write(photos / f"{seed}.jpg", seed)
    assert "codes are fitted to these 28 pictures" in text("add")
    assert model().name == "photos.2.ddh"
    assert not first.exists(), "models of an index that it needs no more are removed"
    assert len(counted) == len(set(counted)) == 28
    hits = run("search", write(home / "other.png", 5, "PNG"), "-k", 1)["queries"][0]["hits"]
    assert hits[0]["key"] == "photos/5.jpg"


def test_a_folder_added_on_the_page_is_fitted_too(home, monkeypatch):
    from ddh.serve.desktop import Adding

    monkeypatch.setattr(add, "MIN_FITTED_ROWS", 10)
    first, second = home / "first", home / "second"
    for seed in range(6):
        write(first / f"{seed}.jpg", seed)
        write(second / f"{seed}.jpg", 6 + seed)
    run("add", first)
    started: list[list[str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
        Adding(default_location()).start(str(second))
    assert started[0][:3] == [sys.executable, "-m", "ddh"]
    done = run(*started[0][3:])
    assert (done["new"], done["fitted"]) == (6, 12)


def test_the_default_model_is_found_in_another_installation(home, monkeypatch):
    monkeypatch.setattr(add, "MIN_FITTED_ROWS", 3)
    for name in "ab":
        write(home / "photos" / f"{name}.jpg", ord(name))
    run("add", home / "photos")
    with ddh.index.open(default_location()) as index:
        index.set_setting(model="/gone/default.ddh", model_from_index="../gone/default.ddh")
    write(home / "photos" / "c.jpg", 2)
    done = run("add")
    assert (done["new"], done["fitted"]) == (1, 3)


def test_a_model_of_ones_own_stays(home, monkeypatch):
    monkeypatch.setattr(add, "MIN_FITTED_ROWS", 2)
    for seed in range(3):
        write(home / "photos" / f"{seed}.jpg", seed)
    shutil.copytree(ddh.default_model(), home / "own.ddh")
    done = run("add", home / "photos", "--model", home / "own.ddh")
    assert (done["new"], done["fitted"]) == (3, 0)
    with ddh.index.open(default_location()) as index:
        assert Path(index.settings()["model"]) == home / "own.ddh"


def test_no_torch_is_needed(home):
    write(home / "photos" / "a.jpg", 1)
    code = (
        "import sys; from ddh.cli import main; "
        f"sys.argv = ['ddh', 'add', {str(home / 'photos')!r}]; main(); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "holds 1 pictures" in done.stdout


def test_what_a_new_index_needs(home):
    with pytest.raises(InputError, match="name folders of pictures"):
        CliRunner().invoke(cli, ["add"], catch_exceptions=False)
    (home / "empty").mkdir()
    with pytest.raises(InputError, match="no images in"):
        CliRunner().invoke(cli, ["add", str(home / "empty")], catch_exceptions=False)
    assert not (home / "data").exists()
    with pytest.raises(InputError, match="make it with `ddh add FOLDER"):
        CliRunner().invoke(cli, ["search", "x.jpg"], catch_exceptions=False)


def labels() -> list[str]:
    with ddh.index.open(default_location()) as index:
        return [root.label for root in Collection(index).roots]


def test_folders_without_pictures_are_named_and_not_kept(home):
    (home / "videos").mkdir()
    (home / "videos" / "film.mov").touch()
    photo = write(home / "photos" / "a.jpg", 1)
    shown = text("add", home / "videos", home / "photos")
    assert "holds 1 pictures" in shown
    assert f"No pictures in {home / 'videos'}." in shown
    for command in (["add"], ["index", "add"]):
        with pytest.raises(InputError, match=r"no images in .*1 \.mov"):
            CliRunner().invoke(cli, [*command, str(home / "videos")], catch_exceptions=False)
    assert labels() == ["photos"]

    photo.rename(home / "elsewhere.jpg")
    (photo.parent / ".DS_Store").touch()
    done = run("add")
    assert (done["rows"], done["gone"], done["empty"]) == (1, 1, [str(photo.parent)])
    assert run("add", "--prune")["rows"] == 0
    for folders in ([], [photo.parent]):
        done = run("add", *folders)
        assert (done["rows"], done["empty"]) == (0, [str(photo.parent)])
        assert done["ignored"] == {"hidden": 1}
    write(photo, 1)
    assert run("add")["new"] == 1


def test_a_folder_is_forgotten(home):
    pictures = [write(home / name / "a.jpg", i) for i, name in enumerate(("photos", "phone"))]
    run("add", *(file.parent for file in pictures))
    shutil.rmtree(home / "phone")
    for name in ("nowhere", "", home):
        with pytest.raises(InputError, match=r"not a folder that was added.*/photos, .*/phone"):
            CliRunner().invoke(cli, ["index", "forget", str(name)], catch_exceptions=False)
    assert f"folder: {home / 'phone'} (not there)\n" in text("index", "info")
    done = run("index", "forget", home / "phone")
    assert (done["folder"], done["removed"], done["rows"]) == (str(home / "phone"), 1, 1)
    assert run("add")["absent"] == {}
    assert keys() == {"photos/a.jpg"}
    folder = {"path": str(home / "photos"), "label": "photos", "is_there": True}
    assert run("index", "info")["folders"] == [folder]
    assert "Removed 1 rows; 0 are left" in text("index", "forget", "photos")
    assert pictures[0].exists()
    with pytest.raises(InputError, match="has no folders yet"):
        CliRunner().invoke(cli, ["add"], catch_exceptions=False)


def test_the_default_index_is_named_by_the_environment(home, monkeypatch):
    assert default_location() == str(home / "data" / "ddh" / "photos.index")
    monkeypatch.setenv("DDH_INDEX", str(home / "elsewhere.index"))
    write(home / "photos" / "a.jpg", 1)
    run("add", home / "photos")
    assert (home / "elsewhere.index").is_dir()
    assert run("index", "info")["rows"] == 1


def test_watching_adds_what_is_new(home, monkeypatch):
    pytest.importorskip("watchdog")
    from ddh.cli.watching import watch_folders

    (home / "a" / "x.index").mkdir(parents=True)
    (home / "b").mkdir()
    changes = watch_folders([home / "a", home / "b"], home / "a" / "x.index", quiet=0.3)
    for name in ("a/x.index/rows.jpg", "b/new.jpg"):
        timer = threading.Timer(1.0, write, (home / name, 1))
        timer.start()
    assert next(changes) == [home / "b"]
    changes.close()
    timer.join()


def test_watch_keeps_the_index_in_step(home, monkeypatch):
    write(home / "photos" / "a.jpg", 1)

    def changed(folders, index):
        assert index == (home / "data" / "ddh" / "photos.index").resolve()
        write(home / "photos" / "b.jpg", 2)
        yield folders
        (home / "photos" / "a.jpg").rename(home / "photos" / "c.jpg")
        yield folders

    monkeypatch.setattr("ddh.cli.watching.watch_folders", changed)
    shown = text("add", home / "photos", "--watch")
    assert keys() == {"photos/b.jpg", "photos/c.jpg"}
    assert "1 moved or renamed" in shown


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names there are text")
def test_names_that_are_not_utf8(home):
    """A file is found again from its row: by a search, by dedup and on the page."""
    from starlette.testclient import TestClient

    from ddh.serve import Settings, create_app

    def odd(name: bytes) -> Path:
        return home / "photos" / os.fsdecode(name)

    first, key = write(odd(b"d\xe9j\xe0/caf\xe9.jpg"), 1), "photos/d\\xe9j\\xe0/caf\\xe9.jpg"
    plain, literal = write(odd(b"plain.jpg"), 2), write(odd(b"same\\xe9.jpg"), 3)
    write(odd(b"same\xe9.jpg"), 4)
    done = run("add", home / "photos")
    assert done["new"] == 3
    assert [entry["name"] for entry in done["skipped"]] == ["photos/same\\xe9.jpg"]
    assert "that of another file" in done["skipped"][0]["reason"]
    assert run("add", first.parent)["unchanged"] == 1
    assert run("add")["unchanged"] == 3

    found = run("search", first, plain, literal, key, str(home / key), "-k", 1)["queries"]
    keys = [answer["hits"][0]["key"] for answer in found]
    assert keys == [key, "photos/plain.jpg", "photos/same\\xe9.jpg", key, key]
    assert all(answer["hits"][0]["missing"] is None for answer in found)
    assert found[0]["query"] == found[0]["hits"][0]["file"] == str(home / key)
    assert str(home / key) in text("search", first)

    copy = shutil.copy(first, odd(b"\xff.jpg"))
    assert run("add")["copies"] == 1
    (group,) = run("dedup", "--index", default_location())["groups"]
    assert {group["keep"], group["members"][0]["path"]} == {
        str(home / key),
        str(home / "photos" / "\\xff.jpg"),
    }
    assert str(home / key) in text("dedup")
    with TestClient(
        create_app(default_location(), Settings()), base_url="http://localhost"
    ) as page:
        items = {item["key"]: item for item in page.get("/items").json()["items"]}
        assert [item["picture"] for item in items.values()] == [True] * 4
        assert page.get(f"/thumbnails/{quote(key)}").headers["content-type"] == "image/jpeg"
        assert page.get(f"/details/{quote(key)}").json()["file"] == str(home / key)
        assert page.post("/paths", json={"keys": [key]}).json()["paths"] == [str(home / key)]

    first.rename(odd(b"caf\xe9.jpg"))
    assert run("add")["moved"] == 1
    assert run("index", "remove", copy)["removed"] == 1

    root = home.joinpath("photos").rename(home / os.fsdecode(b"fotos \xe9"))
    index = ("index", "add", root, "--index", home / "plain.index")
    assert run(*index, "--model", ddh.default_model())["rows"] == 4
    assert run(*index)["unchanged"] == 4
    file = root / os.fsdecode(b"caf\xe9.jpg")
    hits = run("search", file, *index[3:])["queries"][0]["hits"]
    assert (hits[0]["key"], hits[0]["missing"]) == ("caf\\xe9.jpg", None)


def test_an_interrupted_run_goes_on(home, counted, monkeypatch):
    for seed in range(3):
        write(home / "photos" / f"{seed}.jpg", seed)
    from ddh.index import collection

    write_codes = collection.write_codes

    def once(index, keys, *arguments):
        write_codes(index, keys, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr("ddh.train.features.CPU_BATCH", 2)
    monkeypatch.setattr(collection, "write_codes", once)
    assert CliRunner().invoke(cli, ["add", str(home / "photos")]).exit_code == 1
    monkeypatch.setattr(collection, "write_codes", write_codes)
    done = run("add", home / "photos")
    assert (done["new"], done["unchanged"], done["rows"]) == (1, 2, 3)
