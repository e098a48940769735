"""Searching by what a text says, with a stand-in for a pair of towers: colours and their names."""

import time

import numpy as np
import pytest
from PIL import Image

import ddh.index
from ddh._core.errors import InputError
from ddh.index import FileStamp
from ddh.serve import Settings, text_search
from ddh.serve.towers import Towers
from text_pair import COLOURS, save_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    save_pair(folder)
    return folder


@pytest.fixture
def coloured(place):
    """The index of a folder with a picture of each colour in two folders."""
    keys = [f"{folder}/{name}.png" for folder in ("one", "two") for name in COLOURS]
    for key in keys:
        file = place.photos / key
        file.parent.mkdir(exist_ok=True)
        Image.new("RGB", (20, 12), COLOURS[file.stem]).save(file)
    (place.photos / "one" / "broken.png").write_bytes(b"no picture")
    with ddh.index.open(place.folder / "c.index", bits=8) as index:
        every = [*keys, "one/broken.png", "not there.png"]
        codes = np.arange(len(every), dtype=np.uint8)[:, None]
        index.add(every, codes, paths=every, metadata=[{"even": i % 2 == 0} for i in range(8)])
    return type(place)(place.folder), str(place.folder / "c.index")


def opened(coloured, **settings):
    from starlette.testclient import TestClient

    from ddh.serve import create_app

    place, location = coloured
    settings = {
        "root": place.photos,
        "answer_seconds": 120.0,
        "cache": place.folder / "cache",
    } | settings
    return TestClient(create_app(location, Settings(**settings)), base_url="http://localhost")


def found(client, **question):
    deadline = time.monotonic() + 60
    while True:
        answer = client.post("/search", json={"k": 2} | question).json()
        if answer["query"]["covered"] == 6:
            return [item["key"] for item in answer["results"]], answer
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_texts_find_pictures_best_first(coloured, pair):
    with opened(coloured, text_model=pair) as client:
        assert client.get("/health").json()["words"]
        keys, answer = found(client, text="red")
        assert keys == ["one/red.png", "two/red.png"]
        assert answer["more"]
        scores = [item["score"] for item in answer["results"]]
        assert scores[0] == pytest.approx(scores[1])
        assert "distance" not in answer["results"][0]
        assert found(client, text="something blue", folder="two", k=1)[0] == ["two/blue.png"]
        assert found(client, text="green", where={"even": True}, k=1)[0] == ["two/green.png"]
        assert found(client, text="red", offset=2, k=9)[1]["more"] is False
        assert client.post("/search", json={"text": ""}).status_code == 422
        assert client.post("/search", json={"text": "a", "code": "00"}).status_code == 422


def test_vectors_are_made_once(coloured, pair, monkeypatch):
    with opened(coloured, text_model=pair) as client:
        found(client, text="red")
    monkeypatch.setattr(Towers, "pictures", lambda self, images: pytest.fail("made again"))
    with opened(coloured, text_model=pair) as client:
        assert found(client, text="blue")[0] == ["one/blue.png", "two/blue.png"]


def test_rows_that_change_are_looked_at_again(coloured, pair, monkeypatch):
    place, location = coloured
    monkeypatch.setattr(text_search, "LOOK_SECONDS", 0.02)
    look, failed = Towers.pictures, []

    def fail_once(self, images):
        if not failed:
            failed.append(True)
            raise RuntimeError("out of memory")
        return look(self, images)

    monkeypatch.setattr(Towers, "pictures", fail_once)
    with opened(coloured, text_model=pair) as client:
        assert found(client, text="red")[0] == ["one/red.png", "two/red.png"]
        assert failed
        Image.new("RGB", (30, 12), COLOURS["blue"]).save(place.photos / "one" / "red.png")
        with ddh.index.open(location) as index:
            row, state = index.get("one/red.png"), (place.photos / "one" / "red.png").stat()
            stamps = [FileStamp(state.st_mtime_ns, state.st_size)]
            index.upsert([row.key], [row.code], paths=[row.path], stamps=stamps)
            index.delete(["two/red.png"])
        blue, others = ["one/blue.png", "two/blue.png", "one/red.png"], 2
        deadline = time.monotonic() + 60
        while True:
            answer = client.post("/search", json={"text": "blue", "k": 9}).json()
            keys = [item["key"] for item in answer["results"]]
            if keys[: len(blue)] == blue and len(keys) == len(blue) + others:
                break
            assert time.monotonic() < deadline, keys
            time.sleep(0.02)
        assert "two/red.png" not in keys


def test_without_a_text_model_texts_are_refused(coloured):
    with opened(coloured) as client:
        assert not client.get("/health").json()["words"]
        assert client.post("/search", json={"text": "red"}).status_code == 403


def test_a_folder_that_is_no_pair_says_what_is_missing(tmp_path, pair):
    with pytest.raises(InputError, match=r"vision_model\.onnx"):
        Towers(tmp_path)
    for file in pair.iterdir():
        (tmp_path / file.name).write_bytes(b"x")
    with pytest.raises(InputError, match="not a pair"):
        Towers(tmp_path)
