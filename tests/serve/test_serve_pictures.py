"""Thumbnails and pictures: small, re-encoded, cached, and never from outside of the folder."""

import io
import os
import shutil

import numpy as np
import pytest
from PIL import Image
from serve_place import draw

import ddh.index
from ddh.images.thumbnail import thumbnail_jpeg
from ddh.index.collection import Collection
from ddh.index.roots import Root, Roots
from ddh.serve.items import Pictures


def opened(answer):
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/jpeg"
    return Image.open(io.BytesIO(answer.content))


def add_row(place, key, path=None):
    with ddh.index.open(place.index) as index:
        index.add([key], np.zeros((1, 4), np.uint8), paths=[path])


def test_thumbnails_are_small_jpegs_of_the_picture(place):
    big = Image.linear_gradient("L").resize((1500, 1000)).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    exif[0x010E] = "secret words"
    big.save(place.photos / "big.jpg", exif=exif)
    add_row(place, "big.jpg")
    with place.open() as client:
        for size in (160, 320, 640):
            image = opened(client.get(f"/thumbnails/big.jpg?size={size}"))
            assert image.size == (round(size * 2 / 3), size)  # upright
            assert b"secret" not in client.get(f"/thumbnails/big.jpg?size={size}").content
        assert opened(client.get("/pictures/big.jpg")).size == (1000, 1500)
        assert client.get("/thumbnails/big.jpg?size=161").status_code == 422
        small = opened(client.get("/thumbnails/plants/00.png?size=640"))
        assert small.size == (64, 48)  # never made larger


def test_a_thumbnail_is_kept_until_its_file_changes(place, tmp_path):
    with place.open(cache=tmp_path / "cache") as client:
        first = client.get("/thumbnails/plants/00.png")
        tag = first.headers["etag"]
        assert (
            client.get("/thumbnails/plants/00.png", headers={"if-none-match": tag}).status_code
            == 304
        )
        (kept,) = (tmp_path / "cache" / "thumbnails").glob("??/*")
        kept.write_bytes(b"from the cache")
        assert client.get("/thumbnails/plants/00.png").content == b"from the cache"
        Image.new("RGB", (30, 20), "red").save(place.photos / "plants/00.png")
        after = client.get("/thumbnails/plants/00.png", headers={"if-none-match": tag})
        assert opened(after).size == (30, 20)
        assert after.headers["etag"] != tag


def test_a_cache_that_cannot_be_written_is_done_without(place, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with place.open(cache=tmp_path / "cache") as client:
        assert opened(client.get("/thumbnails/plants/00.png")).size == (64, 48)


@pytest.mark.parametrize("address", ["thumbnails", "pictures"])
def test_no_file_outside_of_the_folder_is_read(place, tmp_path, address):
    Image.new("RGB", (9, 9), "red").save(tmp_path / "secret.png")
    (place.photos / "link.png").symlink_to(tmp_path / "secret.png")
    (place.photos / "linked").symlink_to(tmp_path)
    (place.photos / "loop.png").symlink_to(place.photos / "loop.png")
    (place.photos / "inside.png").symlink_to(place.photos / "plants/00.png")
    paths = {
        "up": "../secret.png",
        "deep": "plants/../../secret.png",
        "absolute": str(tmp_path / "secret.png"),
        "link": "link.png",
        "folder": "linked/secret.png",
        "loop": "loop.png",
        "itself": "plants",
        "dot": ".",
    }
    for key, path in paths.items():
        add_row(place, key, path)
    add_row(place, "../secret.png")
    add_row(place, "inside", "inside.png")
    with place.open() as client:
        for key in [*paths, "%2E%2E/secret.png", "no-such-row", "plants/gone.png"]:
            answer = client.get(f"/{address}/{key}")
            assert answer.status_code == 404, key
            assert str(tmp_path) not in answer.text
        opened(client.get(f"/{address}/inside"))  # a link that stays within is fine


def test_a_link_may_lead_to_another_root(tmp_path):
    for name in ("one", "two"):
        draw(tmp_path / name / f"{name}.png", 1)
    (tmp_path / "one" / "linked").symlink_to(tmp_path / "two")
    first, second = (Root(name, tmp_path / name) for name in ("one", "two"))
    assert Pictures(Roots([first])).file("one/linked/two.png") is None
    found = Pictures(Roots([first, second])).file("one/linked/two.png")
    assert found == tmp_path / "two" / "two.png"


def test_only_pictures_are_served(place):
    (place.photos / "notes.png").write_text("not a picture")
    (place.photos / "page.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (place.photos / "half.png").write_bytes((place.photos / "plants/00.png").read_bytes()[:200])
    os.mkfifo(place.photos / "pipe.png")
    for key in ("notes.png", "page.svg", "half.png", "pipe.png"):
        add_row(place, key)
    with place.open() as client:
        for key, status in (
            ("notes.png", 422),
            ("page.svg", 422),
            ("half.png", 422),
            ("pipe.png", 404),
        ):
            answer = client.get(f"/thumbnails/{key}")
            assert answer.status_code == status, key
            assert "not a picture\n" not in answer.text


def test_without_a_folder_there_are_no_pictures():
    pictures = Pictures(None)
    assert pictures.file("a.png") is None
    assert not pictures.exists("a.png")


def test_files_of_several_roots_and_what_is_missing(place, tmp_path):
    draw(tmp_path / "phone" / "new.png", 90, (40, 30))
    draw(tmp_path / "drive" / "new.png", 91)
    with ddh.index.open(place.index) as index:
        index.set_setting(root=str(place.photos))
        collection = Collection(index)
        for name in ("phone", "drive"):
            assert collection.bind_folder(tmp_path / name) == name
    for name in ("phone/new.png", "phone/../photos/plants/00.png", "drive/new.png", "drive/x.png"):
        add_row(place, name, name)
    add_row(place, "no file at all")
    shutil.rmtree(tmp_path / "drive")
    (place.photos / "plants/00.png").unlink()
    with place.open(root=None, writable=True) as client:
        assert opened(client.get("/thumbnails/phone/new.png")).size == (40, 30)
        assert client.get("/thumbnails/phone/../photos/plants/00.png").status_code == 404
        items = {item["key"]: item for item in client.get("/items?limit=100").json()["items"]}
        found = client.post("/search", json={"key": "plants/00.png", "k": 100}).json()["results"]
    missing = {key: item["missing"] for key, item in items.items()}
    assert {item["key"]: item["missing"] for item in found} == missing
    assert {key for key, state in missing.items() if state == "gone"} == {"plants/00.png"}
    offline = {key for key, state in missing.items() if state == "offline"}
    assert offline == {"drive/new.png", "drive/x.png"}
    assert items["phone/new.png"]["picture"]


def test_strange_formats_are_decoded_in_another_process_within_a_time(place, monkeypatch):
    draw(place.photos / "scan.png", 3)
    Image.open(place.photos / "scan.png").save(place.photos / "scan.tif")
    row = {"key": "scan", "code": "00000000", "path": "scan.tif"}
    plain = {"key": "plain", "code": "00000000", "path": "scan.png"}
    here = []

    def make(file, *arguments, **options):
        here.append(file.name)
        return thumbnail_jpeg(file, *arguments, **options)

    monkeypatch.setattr("ddh.serve.thumbnails.thumbnail_jpeg", make)
    with place.open(writable=True, cache=place.folder / "cache") as client:
        assert client.post("/items", json=row).status_code == 201
        assert client.post("/items", json=plain).status_code == 201
        first, second = (client.get(f"/thumbnails/{key}") for key in ("scan", "plain"))
        assert first.content == second.content
    assert here == ["scan.png"]
    with place.open(cache=place.folder / "other", decode_seconds=0.001) as client:
        assert client.get("/thumbnails/scan").status_code == 422
