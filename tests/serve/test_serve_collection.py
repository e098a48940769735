"""Facets, near-duplicates, the map and the jobs, as the page asks for them."""

import base64
import csv
import time
from collections import Counter

import numpy as np
import pytest

import ddh.index
from ddh._core import jobs
from ddh.duplicates import find_groups
from ddh.serve import catalog
from ddh.serve.duplicates import _refuse_too_many


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


def test_duplicates_are_those_of_the_index(reader, prepared):
    with ddh.index.open(prepared.index) as index:
        expected = [{hit.key for hit in found} for found in find_groups(index, 2)]
    found = reader.get("/duplicates?radius=2&limit=200").json()
    assert [{item["key"] for item in group["items"]} for group in found["groups"]] == expected
    assert (found["total"], found["more"]) == (len(expected), False)
    group = next(g for g in found["groups"] if "copies/00.png" in {i["key"] for i in g["items"]})
    assert group["keep"] == group["items"][0]["key"] == "copies/00.png"  # 96 x 72
    assert group["items"][0]["distance"] == 0
    assert (group["items"][0]["width"], group["items"][0]["height"]) == (96, 72)
    assert group["items"][0]["bytes"] == (prepared.photos / "copies/00.png").stat().st_size


def test_duplicates_come_in_pages_and_as_a_table(reader):
    whole = reader.get("/duplicates?radius=10&limit=200").json()
    assert whole["total"] > 1
    pages, offset = [], 0
    while True:
        page = reader.get(f"/duplicates?radius=10&limit=1&offset={offset}").json()
        pages += page["groups"]
        offset += 1
        if not page["more"]:
            break
    assert pages == whole["groups"]
    answer = reader.get("/duplicates.csv?radius=10")
    assert "attachment" in answer.headers["content-disposition"]
    table = list(csv.DictReader(answer.text.splitlines()))
    kept = [row["key"] for row in table if row["keep"] == "True"]
    assert kept == [group["keep"] for group in whole["groups"]]
    assert len(table) == sum(len(group["items"]) for group in whole["groups"])


def test_no_cell_of_the_table_is_a_formula(place):
    with ddh.index.open(place.index) as index:
        index.add(["=1+1", "@x"], np.full((2, 4), 0x5A, np.uint8), paths=["-1", None])
    with place.open() as client:
        table = client.get("/duplicates.csv?radius=0").text
    assert {"'=1+1", "'-1", "'@x"} <= {
        cell for line in csv.reader([*table.splitlines()]) for cell in line
    }


def test_duplicates_of_a_folder_and_bad_radii(reader):
    found = reader.get("/duplicates?radius=32&folder=plants&limit=200").json()
    assert {i["folder"] for group in found["groups"] for i in group["items"]} == {"plants"}
    assert reader.get("/duplicates?radius=33").status_code == 422
    assert reader.get("/duplicates?radius=-1").status_code == 422
    assert reader.get("/duplicates?limit=0").status_code == 422


def test_a_radius_that_would_fill_the_memory_is_refused():
    codes = np.random.default_rng(0).integers(0, 256, (20_000, 2), dtype=np.uint8)
    _refuse_too_many(codes, 1)
    _refuse_too_many(np.zeros((20_000, 2), np.uint8), 16)  # copies of one code cost nothing
    with pytest.raises(ValueError, match="smaller radius"):
        _refuse_too_many(codes, 12)


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
