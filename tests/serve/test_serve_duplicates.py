"""Duplicates over HTTP: found in the background, remembered, acted upon, undone, dismissed."""

import csv
import shutil
import time
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from serve_place import Place, draw
from starlette.testclient import TestClient

import ddh.index
from ddh.duplicates import trash
from ddh.serve import create_app
from ddh.serve import duplicates as module

CODE = "00000000"
COPIES = {
    "again/a.png": "plants/00.png",
    "again/b.png": "plants/00.png",
    "again/c.png": "plants/03.png",
    "=odd.png": "plants/06.png",
}


@pytest.fixture
def copied(place: Place, tmp_path, monkeypatch) -> Place:
    """The collection with copies of three of its pictures, and a trash of its own."""
    monkeypatch.setenv("DDH_STATE", str(tmp_path / "state"))
    away = tmp_path / "trash"
    away.mkdir()
    monkeypatch.setattr(trash, "send", lambda path: path.rename(away / path.name))
    with ddh.index.open(place.index) as index:
        for name, of in COPIES.items():
            (place.photos / name).parent.mkdir(exist_ok=True)
            shutil.copy2(place.photos / of, place.photos / name)
            index.add([name], np.zeros((1, 4), np.uint8), paths=[name])
    return place


def find(client: TestClient) -> dict:
    """Search, and wait for the result."""
    assert client.post("/duplicates/search").status_code == 204
    deadline = time.monotonic() + 120
    while (found := client.get("/duplicates").json())["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def keys(found: dict) -> list[list[str]]:
    return [[item["key"] for item in group["items"]] for group in found["groups"]]


def group_of(found: dict, key: str) -> list[str]:
    return next(group for group in keys(found) if key in group)


def chosen(keep: str, *members: str) -> dict:
    return {"groups": [{"keep": keep, "members": list(members)}]}


def act(client: TestClient, keep: str, *members: str, **options) -> dict:
    body = {"action": "trash", **options, **chosen(keep, *members)}
    answer = client.post("/duplicates/act", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_nothing_is_searched_until_someone_asks(reader):
    found = reader.get("/duplicates").json()
    assert (found["state"], found["groups"], found["total"]) == ("none", [], 0)
    assert reader.get("/duplicates?limit=0").status_code == 422


def test_groups_are_verified_and_come_in_pages(copied):
    with copied.open() as client:
        whole = find(client)
        assert whole["state"] == "ready"
        assert whole["compared"] == 28
        assert {"plants/00.png", "again/a.png", "again/b.png"} <= set(
            group_of(whole, "again/a.png")
        )
        for group in whole["groups"]:
            assert group["items"][0]["key"] == group["keep"]
            assert [item["kind"] for item in group["items"]].count("keep") == 1
        assert set(group_of(whole, "again/c.png")) == {"again/c.png", "plants/03.png"}
        members = [item for group in whole["groups"] for item in group["items"][1:]]
        assert Counter(item["kind"] for item in members) == whole["kinds"]
        assert whole["kinds"]["identical"] >= 2
        for item in members:
            file = copied.photos / item["key"]
            assert item["bytes"] == file.stat().st_size
            assert item["file"] == str(file)  # this machine alone can ask
            with Image.open(file) as image:
                assert (item["width"], item["height"]) == image.size
        pages = [
            client.get(f"/duplicates?limit=1&offset={n}").json() for n in range(whole["total"])
        ]
        assert [page["groups"][0] for page in pages] == whole["groups"]
        assert [page["more"] for page in pages] == [True] * (whole["total"] - 1) + [False]
        only = client.get("/duplicates?kind=identical").json()
        assert 0 < only["total"] <= whole["total"]
        assert all("identical" in str(group) for group in only["groups"])


def test_pictures_that_are_not_there_are_counted(copied):
    (copied.photos / "again/c.png").unlink()
    (copied.photos / "plants/00.png").write_bytes(b"no picture")
    with copied.open() as client:
        found = find(client)
        assert found["skipped"] == client.get("/health").json()["rows"] - 26
        assert found["compared"] == 26


def test_a_link_to_another_picture_of_the_index_is_there(copied):
    (copied.photos / "link.png").symlink_to(copied.photos / "plants/00.png")
    with ddh.index.open(copied.index) as index:
        code = index.get("plants/00.png").code
        index.add(["link.png"], [code], paths=["link.png"])
    with copied.open() as client:
        assert find(client)["skipped"] == 0


def test_results_are_remembered_and_known_to_be_old(copied, tmp_path):
    with copied.open(cache=tmp_path / "cache") as client:
        found = find(client)
        assert not found["outdated"]
    with copied.open(cache=tmp_path / "cache", writable=True) as client:
        again = client.get("/duplicates").json()
        assert keys(again) == keys(found)
        assert again["finished"] == found["finished"]
        client.post("/items", json={"key": "new", "code": CODE})
        assert client.get("/duplicates").json()["outdated"]


def test_the_table_can_be_applied(copied):
    with copied.open() as client:
        found = find(client)
        answer = client.get("/duplicates.csv")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert len(rows) == sum(map(len, keys(found)))
    assert [row["path"] for row in rows if row["kind"] == "keep"] == [
        group["items"][0]["file"] for group in found["groups"]
    ]


def test_others_see_no_paths_of_this_machine_and_no_cell_is_a_formula(copied):
    with copied.open(hosts=(), writable=True) as client:
        found = find(client)
        table = client.get("/duplicates.csv").text
        assert str(copied.folder) not in table + str(found)
        assert "'=odd.png" in {cell for line in csv.reader(table.splitlines()) for cell in line}
        body = {"action": "move", "folder": "/tmp/x", **chosen("plants/00.png", "again/a.png")}
        assert client.post("/duplicates/act", json=body).status_code == 403
        (copied.photos / "plants/00.png").write_bytes(b"")
        refused = act(client, "plants/00.png", "again/a.png")["refused"]
        assert str(copied.folder) not in str(refused)


def test_trash_and_undo(copied, tmp_path):
    with copied.open(writable=True) as client:
        found = find(client)
        keep, *members = group_of(found, "again/a.png")
        before = {key: (copied.photos / key).read_bytes() for key in members}
        done = act(client, keep, *members)
        assert done["done"] == members
        assert done["refused"] == []
        assert not any((copied.photos / key).exists() for key in members)
        after = client.get("/duplicates").json()
        assert after["total"] == found["total"] - 1
        assert after["undo"]["journal"] == done["journal"]
        assert after["undo"]["files"] == len(members)
        for key in members:  # this trash is the test's own
            shutil.move(tmp_path / "trash" / key.rpartition("/")[2], copied.photos / key)
        restored = client.post("/duplicates/undo", json={"journal": done["journal"]}).json()
        assert sorted(restored["done"]) == sorted(members)
        assert {key: (copied.photos / key).read_bytes() for key in members} == before
        assert client.get("/duplicates").json()["undo"] is None
        assert keys(client.get("/duplicates").json()) == keys(found)


def test_move_and_undo(copied, tmp_path):
    with copied.open(writable=True) as client:
        find(client)
        options = {"action": "move", "folder": str(tmp_path / "away")}
        done = act(client, "plants/00.png", "again/a.png", "again/b.png", **options)
        assert sorted(path.name for path in (tmp_path / "away").iterdir()) == ["a.png", "b.png"]
        restored = client.post("/duplicates/undo", json={"journal": done["journal"]}).json()
        assert len(restored["done"]) == 2
        assert (copied.photos / "again/a.png").is_file()


@pytest.mark.parametrize("folder", [None, "", "relative", "inside", "a\0b"])
def test_folders_that_are_refused(copied, folder):
    folder = str(copied.photos / "dups") if folder == "inside" else folder
    with copied.open(writable=True) as client:
        body = {"action": "move", "folder": folder, **chosen("plants/00.png", "again/a.png")}
        assert client.post("/duplicates/act", json=body).status_code == 422


def test_another_picture_may_be_kept_where_that_is_verified(copied):
    with copied.open(writable=True) as client:
        find(client)
        done = act(client, "again/a.png", "plants/00.png", "again/b.png")
        assert sorted(done["done"]) == ["again/b.png", "plants/00.png"]
        assert (copied.photos / "again/a.png").is_file()


def test_only_duplicates_go(copied):
    """Whatever a client sends: other pictures, changed and vanished files stay."""
    with copied.open(writable=True) as client:
        find(client)
        draw(copied.photos / "again" / "a.png", 99)
        (copied.photos / "again" / "b.png").unlink()
        members = ["again/a.png", "again/b.png", "plants/03.png", "none", "plants/00.png"]
        answer = act(client, "plants/00.png", *members)
        assert answer["done"] == []
        assert sorted(one["name"] for one in answer["refused"]) == sorted(members)
        assert (copied.photos / "plants/03.png").is_file()
        assert (copied.photos / "plants/00.png").is_file()


def test_a_service_that_is_read_only_takes_nothing_away(copied):
    with copied.open() as client:
        find(client)
        chosen_body = chosen("plants/00.png", "again/a.png")
        assert (
            client.post("/duplicates/act", json={"action": "trash", **chosen_body}).status_code
            == 403
        )
        assert client.post("/duplicates/undo", json={"journal": "x"}).status_code == 403
        assert client.post("/duplicates/dismiss", json=chosen_body).status_code == 403
    assert (copied.photos / "again/a.png").is_file()


def test_pages_of_other_sites_take_nothing_away(copied):
    with copied.open(writable=True) as client:
        find(client)
        body = {"action": "trash", **chosen("plants/00.png", "again/a.png")}
        there = {"origin": "http://elsewhere.example"}
        assert client.post("/duplicates/act", json=body, headers=there).status_code == 403
    assert (copied.photos / "again/a.png").is_file()


def test_only_own_journals_are_undone(copied, tmp_path):
    with copied.open(writable=True) as client:
        for name in ("none", "../journals/x", str(tmp_path)):
            assert client.post("/duplicates/undo", json={"journal": name}).status_code == 404


def test_what_someone_dismisses_stays_away(copied, tmp_path):
    with copied.open(writable=True) as client:
        found = find(client)
        keep, *members = group_of(found, "again/a.png")
        assert client.post("/duplicates/dismiss", json=chosen(keep, members[0])).status_code == 204
        for shown in (client.get("/duplicates").json(), find(client)):  # another search too
            assert all(members[0] not in group for group in keys(shown))
        client.post("/duplicates/dismiss", json=chosen(keep, *members))
        assert client.get("/duplicates").json()["total"] == found["total"] - 1
        client.post("/duplicates/dismiss", json={**chosen(keep, *members), "undo": True})
        assert keys(client.get("/duplicates").json()) == keys(found)


def test_a_search_can_be_stopped_and_fails_without_harm(copied, monkeypatch):
    class Slow(module.SearchProcess):
        def __init__(self, name, files, finished):
            super().__init__(name, [*files] * 200, finished)

    with copied.open() as client:
        monkeypatch.setattr(module, "SearchProcess", Slow)
        client.post("/duplicates/search")
        assert client.post("/duplicates/stop").status_code == 204
        assert client.get("/duplicates").json()["state"] == "none"
        monkeypatch.undo()
        monkeypatch.setattr("ddh.serve.duplicate_search.__name__", "ddh.no_such_module")
        assert find(client)["state"] == "failed"
        monkeypatch.undo()
        assert find(client)["state"] == "ready"


def test_no_search_without_the_pictures(tmp_path):
    location = str(tmp_path / "new.index")
    ddh.index.open(location, bits=32).close()
    with TestClient(create_app(location), base_url="http://localhost") as client:
        assert client.post("/duplicates/search").status_code == 403
