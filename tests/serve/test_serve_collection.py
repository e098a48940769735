"""Facets, the map and the jobs, as the page asks for them."""

import base64
import os
import time
from collections import Counter

import numpy as np
import pytest

import ddh.index
from ddh._core import jobs
from ddh.serve import catalog
from ddh.serve.disk_cache import DiskCache


def test_facets_count_what_filters_find(reader, prepared):
    facets = reader.get("/facets").json()
    counted = {folder["name"]: folder["rows"] for folder in facets["folders"]}
    assert counted == {"animals": 14, "animals/wild": 14, "copies": 2, "plants": 8}
    for name, rows in counted.items():
        assert len(reader.get("/items", params={"folder": name}).json()["items"]) == rows
    assert facets["metadata"] == {"label": ["cat", "dog", "fox"], "number": list(range(24))}


def test_a_catalog_tells_values_apart_as_filters_do(tmp_path):
    values = [1, 1.0, True, "1", None, [1], {"a": 1}, False]
    with ddh.index.open(tmp_path / "i", bits=8) as index:
        rows = [{"v": value, "id": f"row {i}"} for i, value in enumerate(values)]
        index.add([str(i) for i in range(8)], np.arange(8, dtype=np.uint8)[:, None], metadata=rows)
        index.add(
            [f"m{i}" for i in range(300)],
            np.zeros((300, 1), np.uint8),
            paths=[f"f{i % 3}/x/{i}" for i in range(300)],
            metadata=[{"id": f"many {i}"} for i in range(300)],
        )
        taken = catalog.build_catalog(index)
        for value in (1, True, "1", False):
            found = [row.key for row in index.items(where={"v": value})]
            category = taken.categories["v"]
            number = next(
                place
                for place, known in enumerate(category.values)
                if known == value and isinstance(known, bool) == isinstance(value, bool)
            )
            assert [taken.keys[row] for row in np.flatnonzero(category.of_row == number)] == found
    assert "id" not in taken.categories  # 308 values are names, not categories
    assert len(taken.rows_below("f1")) == 100
    assert len(taken.rows_below("f1/x/")) == 100
    assert len(taken.rows_below("f")) == 0
    assert list(taken.colours()) == ["v", "folder"]
    folder = taken.colours()["folder"]
    assert Counter(folder.of_row.tolist()) == {255: 8, 0: 100, 1: 100, 2: 100}


def test_the_catalog_of_an_index_is_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "WORTH_KEEPING", 1)
    kept = DiskCache(tmp_path / "cache", 1 << 20)
    with ddh.index.open(tmp_path / "a.index", bits=8) as index:
        keys = ["a/é.png", "b/2.png", "3.png"]
        metadata = [{"taken": "2019-05-04T10:00:00", "camera": "X"}, {"n": 1}, {"n": True}]
        index.add(keys, np.arange(3, dtype=np.uint8)[:, None], paths=keys, metadata=metadata)
        time.sleep(2e-9 * catalog.TICK)  # what has changed just now may change again
        built = catalog.CatalogCache(index, kept).current()
        with monkeypatch.context() as patch:
            patch.setattr(catalog, "build_catalog", lambda _: pytest.fail("read again"))
            read = catalog.CatalogCache(index, kept).current()
        assert list(read.keys) == keys
        assert list(read.texts) == list(built.texts)
        assert "2019-05-04 may" in read.texts[0]
        assert read.facets() == built.facets()
        for name in ("taken", "codes", "folder_of_row"):
            np.testing.assert_array_equal(getattr(read, name), getattr(built, name))
        for file in (tmp_path / "cache").glob("*/*"):
            file.write_bytes(file.read_bytes()[:100])  # damaged: read anew
        assert list(catalog.CatalogCache(index, kept).current().keys) == keys
        index.add(["4.png"], np.zeros((1, 1), np.uint8), paths=["4.png"])
        assert len(catalog.CatalogCache(index, kept).current()) == 4


def test_rows_written_while_a_catalog_is_built_are_in_the_next_one(tmp_path, monkeypatch):
    build = catalog.build_catalog

    def slow(index):
        built = build(index)
        if len(index) == 1:
            index.add(["b"], np.ones((1, 1), np.uint8))
            cache.invalidate()
        return built

    monkeypatch.setattr(catalog, "build_catalog", slow)
    with ddh.index.open(tmp_path / "w.index", bits=8) as index:
        index.add(["a"], np.zeros((1, 1), np.uint8))
        cache = catalog.CatalogCache(index)
        assert list(cache.current().keys) == ["a"]
        assert list(cache.current().keys) == ["a", "b"]


def test_no_change_is_missed_that_has_the_time_of_another(tmp_path):
    location = tmp_path / "t.index"
    with ddh.index.open(location, bits=8) as index:
        index.add(["a", "b"], np.zeros((2, 1), np.uint8))
        cache = catalog.CatalogCache(index)
        for file in location.iterdir():
            os.utime(file, ns=(time.time_ns() + 10**10,) * 2)  # no clock moves on
        state = cache.index_state()
        assert cache.index_state() != state
        for file in location.iterdir():
            os.utime(file, ns=(10**18, 10**18))
        assert cache.index_state() == cache.index_state()


def test_keys_are_kept_as_they_are_and_words_go_over_newlines(tmp_path):
    with ddh.index.open(tmp_path / "l.index", bits=8) as index:
        index.add(["a\nb"], np.zeros((1, 1), np.uint8))
        built = catalog.build_catalog(index)
        assert list(built.keys) == ["a\nb"]
        assert built.rows_of(["a\nb"]).tolist() == built.texts.rows_with(["a b"]).tolist() == [0]


def test_facets_see_new_rows(place):
    with place.open(writable=True) as client:
        client.get("/facets")
        row = {"key": "n", "code": "00000000", "path": "new/n", "metadata": {"label": "new"}}
        assert client.post("/items", json=row).status_code == 201
        facets = client.get("/facets").json()
        assert {"name": "new", "rows": 1} in facets["folders"]
        with ddh.index.open(place.index) as index:  # another process
            index.delete(["n"])
        deadline = time.monotonic() + 120
        while "new" in str(client.get("/facets").json()):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_the_map_is_made_in_the_background_and_kept(prepared, tmp_path):
    rows = list(prepared.rows().values())
    with prepared.open(cache=tmp_path) as client:
        assert client.get("/map/points").status_code == 404
        deadline = time.monotonic() + 120
        while (state := client.get("/map").json())["state"] == "computing":
            assert 0 <= state["done"] <= 1
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert state == {
            "state": "ready", "points": 24, "done": 1.0, "colours": ["label", "number", "folder"]
        }  # fmt: skip
        content = client.get("/map/points").content
        points = np.frombuffer(content, "<f4").reshape(-1, 2)
        assert points.shape == (24, 2)
        assert np.abs(points).max() <= 1
        codes = np.frombuffer(client.get("/map/codes").content, np.uint8).reshape(24, 4)
        assert (codes == np.stack([row.code for row in rows])).all()
        colours = client.get("/map/colours?by=label").json()
        values = np.frombuffer(base64.b64decode(colours["values"]), np.uint8)
        labels = [colours["categories"][value] for value in values]
        assert labels == [row.metadata["label"] for row in rows]
        expected = {"keys": [rows[17].key, rows[3].key]}
        assert client.get("/map/keys?at=17&at=3").json() == expected
        for bad in ("/map/keys?at=24", "/map/colours?by=wat"):
            assert client.get(bad).status_code == 404
        assert client.get("/map/keys?at=-1").status_code == 404
    (kept,) = (tmp_path / "maps").glob("??/*")
    assert kept.read_bytes() == content


def test_jobs_are_told(reader, monkeypatch, tmp_path):
    monkeypatch.setenv("DDH_STATE", str(tmp_path))
    assert reader.get("/jobs").json() == {"jobs": []}
    with jobs.job("fit", "photos.ddh"):
        (job,) = reader.get("/jobs").json()["jobs"]
        assert (job["kind"], job["title"], job["state"]) == ("fit", "photos.ddh", "running")
    (tmp_path / "jobs" / "odd.json").write_text(
        '{"id": "x", "state": "done", "process": {}, "done": "many"}'
    )
    assert [job["state"] for job in reader.get("/jobs").json()["jobs"]] == ["done"]
