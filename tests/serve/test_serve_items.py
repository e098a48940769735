"""`/items`: rows listed, looked at, added and removed; what may not be written is not."""

import json
import os

import pytest

from ddh.index.collection import content_digest

ODD_KEYS = [
    "a/b c/ü€😀.png",
    "..",
    "../up",
    "/etc/passwd",
    "a//b",
    "a?b=c&d#e",
    "-",
    "a\\b",
    "line\nbreak",
    "\n",
]


def add(client, key, code="00000000", **more):
    return client.post("/items", json={"key": key, "code": code, **more})


def quoted(key):
    from urllib.parse import quote

    return quote(key, safe="").replace(".", "%2E")  # clients walk up at dots


def test_pages_walk_through_all_rows_once(reader, prepared):
    for limit in (1, 5, 24, 100):
        keys, after = [], ""
        while after is not None:
            page = reader.get("/items", params={"limit": limit, "after": after}).json()
            keys += [item["key"] for item in page["items"]]
            assert page["rows"] == 24
            after = page["next"]
        assert keys == list(prepared.rows())


def test_pages_of_a_filter(reader, prepared):
    params = {"folder": "animals", "where": '{"label": "cat"}', "limit": 2}
    keys = []
    while params.get("after") is not None or not keys:
        page = reader.get("/items", params=params).json()
        keys += [item["key"] for item in page["items"]]
        params["after"] = page["next"]
    expected = [
        row.key
        for row in prepared.rows().values()
        if row.key.startswith("animals/") and row.metadata["label"] == "cat"
    ]
    assert keys == expected


def test_a_page_whose_row_is_gone_says_so(reader):
    answer = reader.get("/items", params={"after": "no such row"})
    assert answer.status_code == 422
    assert "start again" in answer.json()["detail"]


@pytest.mark.parametrize(
    "params",
    [
        {"limit": 0},
        {"limit": 1001},
        {"where": "x"},
        {"where": "[]"},
        {"where": json.dumps({f"n{i}": i for i in range(2000)})},
        {"after": "\0"},
    ],
)
def test_bad_pages_are_refused(reader, params):
    answer = reader.get("/items", params=params)
    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], str)


def test_a_read_only_service_changes_nothing(reader, prepared):
    before = prepared.rows().keys()
    picture = (prepared.photos / "plants/00.png").read_bytes()
    for answer in (
        add(reader, "new"),
        reader.post("/items", files={"image": picture}),
        reader.delete("/items/plants/00.png"),
    ):
        assert answer.status_code == 403
        assert "--writable" in answer.json()["detail"]
    assert prepared.rows().keys() == before
    assert not (prepared.photos / "uploads").exists()


def test_rows_are_added_found_and_removed(place):
    with place.open(writable=True) as client:
        answer = add(
            client, "new/row", "0123abcd", metadata={"label": "new", "deep": [1, {"a": 2}]}
        )
        assert answer.status_code == 201
        item = answer.json()
        assert item == client.get("/items/new/row").json()
        assert (item["code"], item["path"], item["picture"]) == ("0123abcd", None, False)
        found = client.post("/search", json={"code": "0123abcd", "k": 1}).json()["results"]
        assert [(hit["key"], hit["distance"]) for hit in found] == [("new/row", 0)]
        assert add(client, "new/row").status_code == 409
        assert client.delete("/items/new/row").status_code == 204
        assert client.delete("/items/new/row").status_code == 404
        assert client.get("/items/new/row").status_code == 404
        assert client.delete("/items/plants/00.png").status_code == 204
    assert (place.photos / "plants/00.png").is_file()  # the row only, never a file
    assert "plants/00.png" not in place.rows()


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys_are_only_names(place, key):
    with place.open(writable=True) as client:
        assert add(client, key).status_code == 201
        assert client.get(f"/items/{quoted(key)}").json()["key"] == key
        assert client.get(f"/thumbnails/{quoted(key)}").status_code == 404
        found = client.post("/search", json={"key": key, "k": 1}).json()
        assert found["query"]["key"] == key
        assert client.delete(f"/items/{quoted(key)}").status_code == 204


@pytest.mark.parametrize(
    "row",
    [
        {"key": "a\0b"}, {"key": ""}, {"key": "x" * 3000}, {"key": "\ud800"}, {"key": 7},
        {"code": "00"}, {"code": None}, {"path": "a\0"}, {"path": ""}, {"metadata": []},
        {"metadata": {"a": "\0"}}, {"stranger": 1},
    ],
)  # fmt: skip
def test_bad_rows_are_refused(place, row):
    body = json.dumps({"key": "k", "code": "00000000", **row}).encode()
    with place.open(writable=True) as client:
        json_type = {"content-type": "application/json"}
        answer = client.post("/items", content=body, headers=json_type)
        assert answer.status_code == 422, answer.text
        assert "k" not in place.rows()


def test_a_picture_that_is_sent_is_kept_under_its_digest(place):
    content = (place.photos / "plants/03.png").read_bytes()
    with place.open(writable=True, model=None) as client:
        sent = {"image": ("../../evil.php", content, "text/html")}
        answer = client.post("/items", files=sent, data={"metadata": '{"label": "sent"}'})
        assert answer.status_code == 201, answer.text
        item = answer.json()
        assert client.post("/items", files=sent).status_code == 409
        named = client.post("/items", files=sent, data={"key": "by/name"}).json()
        assert client.get(f"/thumbnails/{item['key']}").status_code == 200
        assert client.get("/thumbnails/by/name").status_code == 200
    file = place.photos / item["key"]
    assert file.read_bytes() == content
    assert item["key"] == f"uploads/{content_digest(file)}.png"
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    row = place.rows()[item["key"]]
    assert row.stamp == (file.stat().st_mtime_ns, len(content), content_digest(file))
    assert item["code"] == place.rows()["plants/03.png"].code.tobytes().hex()
    assert (named["key"], named["path"]) == ("by/name", item["key"])


def test_uploads_never_leave_the_folder(place, tmp_path):
    content = (place.photos / "plants/03.png").read_bytes()
    outside = tmp_path / "outside"
    outside.mkdir()
    (place.photos / "uploads").symlink_to(outside)
    with place.open(writable=True) as client:
        answer = client.post("/items", files={"image": content})
        assert answer.status_code == 403
    assert list(outside.iterdir()) == []


def test_nothing_stays_of_a_picture_that_is_refused(place):
    with place.open(writable=True) as client:
        for content in (b"", b"GIF89a", b"<html>", b"%!PS-Adobe-3.0 EPSF-3.0\n"):
            answer = client.post("/items", files={"image": content})
            assert answer.status_code == 422, answer.text
        bad_key = client.post(
            "/items",
            files={"image": (place.photos / "plants/00.png").read_bytes()},
            data={"key": "\0"},
        )
        assert bad_key.status_code == 422
    assert not (place.photos / "uploads").exists()


def test_a_folder_that_cannot_be_written_is_told(place):
    if os.geteuid() == 0:
        (place.photos / "uploads").write_text("a file where the folder should be")
    else:
        place.photos.chmod(0o500)
    with place.open(writable=True) as client:
        answer = client.post(
            "/items", files={"image": (place.photos / "plants/00.png").read_bytes()}
        )
        assert answer.status_code == 503
        assert str(place.photos) not in answer.text
    place.photos.chmod(0o700)


def test_an_index_that_is_away_is_a_state_that_passes(place):
    index, away = place.folder / "p.index", place.folder / "away"
    with place.open() as client:
        index.rename(away)
        for address in ("items", "find"):
            assert client.get(f"/{address}").status_code == 503
        away.rename(index)
        for address in ("items", "find"):
            assert client.get(f"/{address}").status_code == 200
