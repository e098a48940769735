"""`POST /search` against a plain search of the same codes."""

import asyncio
import concurrent.futures
import json
import threading

import numpy as np
import pytest
from serve_place import Place

import ddh.index


def oracle(place, code, where=None, folder=None):
    """Keys and distances of all rows by (distance, order written)."""
    rows = [
        row
        for row in place.rows().values()
        if (not where or where.items() <= row.metadata.items())
        and (not folder or row.path.startswith(f"{folder}/"))
    ]
    distances = [int(np.unpackbits(row.code ^ code).sum()) for row in rows]
    order = np.argsort(distances, kind="stable")
    return [(rows[i].key, distances[i]) for i in order]


def ask(client, **body):
    answer = client.post("/search", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def pairs(found):
    return [(item["key"], item["distance"]) for item in found["results"]]


def test_search_by_code_is_exact(reader, prepared):
    rows = prepared.rows()
    for row in list(rows.values())[:5]:
        found = ask(reader, code=row.code.tobytes().hex(), k=10)
        assert pairs(found) == oracle(prepared, row.code)[:10]
        assert found["query"] == {"code": row.code.tobytes().hex(), "bits": 32, "key": None}
        assert found["more"]
        item = found["results"][0]
        assert item["code"] == rows[item["key"]].code.tobytes().hex()
        assert item["folder"] == item["path"].rpartition("/")[0]
        assert item["picture"] is True
        assert item["metadata"] == rows[item["key"]].metadata


def test_search_by_key(reader, prepared):
    row = prepared.rows()["plants/03.png"]
    found = ask(reader, key="plants/03.png", k=4)
    assert found["query"]["key"] == "plants/03.png"
    assert pairs(found) == oracle(prepared, row.code)[:4]


@pytest.mark.parametrize("radius", [0, 3, 9, 32])
def test_radius_and_pages(reader, prepared, radius):
    code = prepared.rows()["plants/00.png"].code
    expected = [pair for pair in oracle(prepared, code) if pair[1] <= radius]
    found, offset = [], 0
    while True:
        page = ask(reader, key="plants/00.png", k=5, offset=offset, radius=radius)
        found += pairs(page)
        offset += 5
        if not page["more"]:
            break
    assert found == expected


FILTERS = [
    ({"label": "cat"}, None),
    ({"number": 4}, None),
    (None, "animals"),
    ({"label": "dog"}, "plants"),
]


@pytest.mark.parametrize(("where", "folder"), FILTERS)
def test_filters(reader, prepared, where, folder):
    code = prepared.rows()["plants/00.png"].code
    found = ask(reader, key="plants/00.png", k=50, where=where, folder=folder)
    assert pairs(found) == oracle(prepared, code, where, folder)
    assert not found["more"]


def test_search_by_picture_is_search_by_its_code(reader, prepared):
    row = prepared.rows()["animals/wild/07.png"]
    content = (prepared.photos / row.key).read_bytes()
    fields = {"k": "6", "where": json.dumps({"label": "cat"}), "folder": "", "radius": ""}
    answer = reader.post("/search", files={"image": ("x.png", content)}, data=fields)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["query"]["code"] == row.code.tobytes().hex()
    assert pairs(found) == oracle(prepared, row.code, {"label": "cat"})[:6]


BAD = [
    (b"", "JSON"),
    (b"[]", "object"),
    (b"{}", "either code or key"),
    (b'{"code": "00000000", "key": "x"}', "either code or key"),
    (b'{"code": "0000000"}', "8 hexadecimal digits"),
    (b'{"code": "0000000g"}', "8 hexadecimal digits"),
    (b'{"code": "00 00000"}', "8 hexadecimal digits"),
    (b'{"code": 5}', "code"),
    (b'{"code": "00000000", "k": 0}', "k"),
    (b'{"code": "00000000", "k": 1001}', "at most 1000"),
    (b'{"code": "00000000", "k": "5"}', "k"),
    (b'{"code": "00000000", "k": true}', "k"),
    (b'{"code": "00000000", "offset": -1}', "offset"),
    (b'{"code": "00000000", "offset": 99999999}', "narrow"),
    (b'{"code": "00000000", "radius": 33}', "at most 32"),
    (b'{"code": "00000000", "where": {"a": [1]}}', "where"),
    (b'{"code": "00000000", "where": {"": 1}}', "metadata name"),
    (b'{"code": "00000000", "where": {"a": 1e999}}', "finite"),
    (b'{"code": "00000000", "where": {"a": 99999999999999999999999}}', "metadata filter"),
    (b'{"code": "00000000", "folder": "a\\u0000"}', "NUL"),
    (b'{"code": "00000000", "folder": "\\ud800"}', ""),
    (b'{"key": ""}', "a key"),
    (b'{"code": "00000000", "wat": 1}', "wat"),
    (b'{"code": "00000000"' + b', "where": ' + b"[" * 5000, ""),
    (b"\xff\xfe", ""),
    (
        json.dumps({"code": "00000000", "where": {f"n{i}": i for i in range(5000)}}).encode(),
        "where",
    ),
]


@pytest.mark.parametrize(("body", "told"), BAD)
def test_bad_questions_are_told_clearly(reader, body, told):
    answer = reader.post("/search", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert told in answer.json()["detail"]


def test_bad_questions_beside_a_picture(reader):
    for fields in ({"k": "x"}, {"k": "0"}, {"where": "{"}, {"where": "[1]"}, {"code": "00000000"}):
        answer = reader.post("/search", files={"image": b"x"}, data=fields)
        assert answer.status_code == 422, answer.text
    assert reader.post("/search", files={"file": b"x"}).status_code == 422
    assert reader.post("/search", data={"k": "1"}).status_code == 415
    assert reader.post("/search", content=b"{}").status_code == 415


def test_an_unknown_key_is_404(reader):
    answer = reader.post("/search", json={"key": "../../etc/passwd"})
    assert answer.status_code == 404
    assert "no row" in answer.json()["detail"]


def test_many_at_once_are_answered_together_and_each_rightly(prepared):
    rows = list(prepared.rows().values())
    with prepared.open() as client, concurrent.futures.ThreadPoolExecutor(16) as pool:

        def one(i):
            row, k = rows[i % len(rows)], 3 + i % 2
            if i % 10 == 9:  # a wrong one among them harms nobody
                assert client.post("/search", json={"key": "gone"}).status_code == 404
                return True
            return (
                pairs(ask(client, code=row.code.tobytes().hex(), k=k))
                == (oracle(prepared, row.code)[:k])
            )

        assert all(pool.map(one, range(120)))
        metrics = client.get("/metrics").text
    counted = {
        line.split(" ")[0]: float(line.split(" ")[1])
        for line in metrics.splitlines()
        if not line.startswith("#")
    }
    assert counted["ddh_search_batch_sum"] == 120
    assert counted["ddh_search_batch_count"] <= 120
    assert counted['ddh_requests_total{route="/search",status="200"}'] == 108
    assert counted['ddh_requests_total{route="/search",status="404"}'] == 12
    assert counted["ddh_index_rows"] == 24


def test_a_client_that_has_gone_is_not_searched_for(prepared, monkeypatch):
    app, started, release = prepared.open().app, threading.Event(), threading.Event()
    searcher, answered = app.state.service.searcher, []
    answer = searcher.answer

    def slow(queries):
        answered.extend(query.key for query in queries)
        started.set()
        release.wait(60)
        return answer(queries)

    monkeypatch.setattr(app.state.service._searches, "_process", slow)

    async def post(key, gone):
        body = json.dumps({"key": key}).encode()
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        statuses = []

        async def receive():
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            statuses.append(message.get("status"))

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/search", "headers": headers}
        await app(scope, receive, send)
        return statuses[0]

    async def main():
        stays, goes = asyncio.Event(), asyncio.Event()
        busy = [asyncio.create_task(post("plants/00.png", stays)) for _ in range(8)]
        while not started.is_set():
            await asyncio.sleep(0.001)
        left = asyncio.create_task(post("plants/03.png", goes))
        last = asyncio.create_task(post("plants/06.png", stays))
        goes.set()
        assert await left == 400
        release.set()
        assert {await request for request in (*busy, last)} == {200}

    asyncio.run(asyncio.wait_for(main(), 120))
    assert "plants/06.png" in answered
    assert "plants/03.png" not in answered
    app.state.service.close()


def test_an_empty_index_answers(tmp_path):
    place = Place(tmp_path)
    place.photos.mkdir()
    ddh.index.open(place.index, bits=64).close()
    with place.open() as client:
        found = ask(client, code="00" * 8)
        assert (found["results"], found["more"]) == ([], False)
        assert client.get("/health").json()["rows"] == 0
        assert client.get("/items").json() == {"items": [], "next": None, "rows": 0}
        assert client.get("/facets").json() == {"folders": [], "metadata": {}}
        assert client.get("/duplicates").json() == {"groups": [], "total": 0, "more": False}
        assert client.get("/map").json()["state"] == "empty"
        assert client.post("/search", files={"image": b"x"}).status_code == 403
