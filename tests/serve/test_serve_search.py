"""`POST /search` against a plain search of the same codes."""

import asyncio
import base64
import concurrent.futures
import json
import threading

import numpy as np
import pytest
from serve_place import Place
from starlette.testclient import TestClient

import ddh
import ddh.index
from ddh._core.errors import InputError
from ddh.index.collection import content_digest
from ddh.serve import Settings, create_app
from ddh.serve import search as searching


def oracle(place, code, where=None, folder=None, own=None):
    """Keys and distances of all rows by (distance, order written), a query's own row first."""
    rows = [
        row
        for row in place.rows().values()
        if (not where or where.items() <= row.metadata.items())
        and (not folder or row.path.startswith(f"{folder}/"))
    ]
    distances = [int(np.unpackbits(row.code ^ code).sum()) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: (rows[i].key != own, distances[i]))
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
        query = {"code": row.code.tobytes().hex(), "bits": 32, "key": None}
        query |= {
            "values": None,
            "features": None,
            "model_id": reader.get("/health").json()["model_id"],
        }
        assert found["query"] == query
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
    assert pairs(found) == oracle(prepared, row.code, own=row.key)[:4]
    assert {item["score"] for item in found["results"]} == {None}


@pytest.mark.parametrize("radius", [0, 3, 9, 32])
def test_radius_and_pages(reader, prepared, radius):
    code = prepared.rows()["plants/00.png"].code
    ranking = oracle(prepared, code, own="plants/00.png")
    expected = [pair for pair in ranking if pair[1] <= radius]
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
    assert pairs(found) == oracle(prepared, code, where, folder, own="plants/00.png")
    assert not found["more"]


def upload(client, content, **fields):
    answer = client.post("/search", files={"image": ("x.png", content)}, data=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_outputs_of_a_picture_order_what_its_code_finds(reader, prepared):
    row = prepared.rows()["animals/wild/07.png"]
    content = (prepared.photos / row.key).read_bytes()
    found = upload(reader, content, k="6", where=json.dumps({"label": "cat"}), folder="", radius="")
    assert found["query"]["code"] == row.code.tobytes().hex()
    values = np.array(found["query"]["values"], np.float32)
    expected = ddh.load(prepared.folder / "small.ddh").outputs([prepared.photos / row.key])[0]
    np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(np.packbits(values >= 0), row.code)
    nearest = oracle(prepared, row.code, {"label": "cat"})
    codes = np.stack([prepared.rows()[key].code for key, _ in nearest])
    scores = (np.unpackbits(codes, axis=1) * 2.0 - 1) @ values.astype(np.float64)
    order = np.argsort(-scores, kind="stable")[:6]
    assert pairs(found) == [nearest[i] for i in order]
    assert [item["score"] for item in found["results"]] == pytest.approx(scores[order].tolist())

    radius = nearest[3][1]
    near = upload(reader, content, k="50", radius=str(radius))
    assert {pair[0] for pair in pairs(near)} == {
        key for key, distance in oracle(prepared, row.code) if distance <= radius
    }

    # Code and values together are the same query, and one page follows the other.
    whole = pairs(upload(reader, content, k="24"))
    query = {"code": found["query"]["code"], "values": found["query"]["values"]}
    pages = [ask(reader, **query, k=7, offset=offset) for offset in range(0, 24, 7)]
    assert [pair for page in pages for pair in pairs(page)] == whole


def test_every_file_is_its_own_first_answer_among_equal_codes(place, prepared):
    with ddh.index.open(place.index) as index:
        rows = list(index.items())
        stamps = [row.stamp._replace(digest=content_digest(place.photos / row.key)) for row in rows]
        keys = [row.key for row in rows]
        index.upsert(keys, [rows[0].code] * len(rows), paths=keys, stamps=stamps)
    with place.open(model=prepared.folder / "small.ddh") as client:
        for key in keys:
            assert ask(client, key=key, k=3)["results"][0]["key"] == key
        for key in keys[::5]:
            found = upload(client, (place.photos / key).read_bytes(), k="1")
            assert [item["key"] for item in found["results"]] == [key]


def test_stored_features_order_all_pages_alike(place, prepared):
    model = ddh.load(prepared.folder / "small.ddh")
    with ddh.index.open(place.index) as index:
        rows, settings = list(index.items()), index.settings()
    keys = [row.key for row in rows]
    (batch,) = model.encode_images([place.photos / key for key in keys])
    location = str(place.folder / "f.index")
    with ddh.index.open(location, bits=32, model_id=model.model_id, features=64) as index:
        index.add(keys, batch.codes, paths=keys, features=batch.features)
        index.set_setting(root=settings["root"], model=settings["model"])
    unit = batch.features / np.linalg.norm(batch.features, axis=1, keepdims=True)
    app = create_app(location, Settings(root=place.photos, writable=True, answer_seconds=120.0))
    with TestClient(app, base_url="http://localhost") as client:
        content = (place.photos / keys[7]).read_bytes()
        whole = upload(client, content, k="24")
        order = [keys.index(key) for key, _ in pairs(whole)]
        assert order[0] == 7
        assert len(set(np.argsort(-unit[7] @ unit.T)[:5]) & set(order[:7])) >= 4
        scores = [item["score"] for item in whole["results"]]
        assert scores == sorted(scores, reverse=True)
        query = {name: whole["query"][name] for name in ("code", "values", "features")}
        pages = [ask(client, **query, k=7, offset=offset) for offset in range(0, 24, 7)]
        assert [pair for page in pages for pair in pairs(page)] == pairs(whole)
        searcher = client.app.state.service.searcher
        wrong = query | {"features": base64.b64encode(b"12").decode()}
        both = [searching.SearchRequest(**each, k=24) for each in (wrong, query)]
        refused, good = searcher.answer([*map(searcher.validate, both)])
        assert isinstance(refused, InputError)
        assert pairs(json.loads(good)) == pairs(whole)  # though asked together
        by_key = ask(client, key=keys[7], k=24)
        assert by_key["results"][0]["key"] == keys[7]
        assert by_key["results"][1]["score"] is not None
        added = client.post("/items", files={"image": ("x.png", content)}, data={"key": "again"})
        assert added.status_code == 201, added.text
        refused = client.post("/items", json={"key": "code", "code": "00000000"})
        assert "stores features" in refused.json()["detail"]
        for features in ("?", base64.b64encode(b"12").decode()):
            wrong = client.post("/search", json=query | {"features": features})
            assert wrong.status_code == 422 or wrong.status_code == 400, wrong.text


BAD = [
    (b"", "JSON"),
    (b"[]", "object"),
    (b"{}", "either code, key or text"),
    (b'{"code": "00000000", "key": "x"}', "either code, key or text"),
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
    (b'{"code": "00000000", "values": [1, 2]}', "values are 32"),
    (b'{"key": "plants/03.png", "values": [1, 2]}', "whose signs are a code"),
    (json.dumps({"code": "00000000", "values": [1e39] * 32}).encode(), "values are 32"),
    (b'{"code": "00000000", "values": ["a"]}', "values"),
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


def test_many_at_once_are_answered_together_and_each_rightly(prepared, monkeypatch):
    rows = list(prepared.rows().values())
    batches, scans, all_are_here = [], [], threading.Event()
    nearest = searching._nearest

    def scan(index, queries):
        scans.append(len(queries))
        return nearest(index, queries)

    monkeypatch.setattr(searching, "_nearest", scan)
    with prepared.open() as client, concurrent.futures.ThreadPoolExecutor(16) as pool:
        searches = client.app.state.service._searches
        answer = searches._process

        def process(queries):
            """The first batch waits until the 15 other threads wait as well."""
            batches.append(len(queries))
            while not all_are_here.wait(0.002):
                if len(searches._queue) + sum(batches) >= 16:
                    all_are_here.set()
            return answer(queries)

        monkeypatch.setattr(searches, "_process", process)

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
    assert counted["ddh_search_batch_count"] == len(batches) < 120
    assert max(batches) > 2
    assert sum(scans) == 108  # those of one k of a batch by one search
    assert max(scans) > 1
    assert len(scans) <= 2 * len(batches)
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
        assert client.get("/duplicates").json()["groups"] == []
        assert client.get("/map").json()["state"] == "empty"
        assert client.post("/search", files={"image": b"x"}).status_code == 403
