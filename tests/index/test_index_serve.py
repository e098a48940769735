"""The HTTP service over every engine: the same answers, whatever keeps the rows."""

import numpy as np
import pytest

import ddh.index

pytest.importorskip("fastapi")
pytest.importorskip("starlette.testclient")


def test_the_service_works_on_every_engine(engine, tmp_path, monkeypatch):
    from starlette.testclient import TestClient

    from ddh.serve import Settings, create_app

    monkeypatch.setenv("DDH_CACHE", str(tmp_path))
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 256, (60, 6), dtype=np.uint8)
    codes[50:] = codes[:10]  # ties, to be told by age
    keys = [f"folder {i % 2}/ü{i}.png" for i in range(60)]
    location = engine.fresh()
    with ddh.index.open(location, bits=48) as index:
        index.add(keys, codes, paths=keys, metadata=[{"n": i % 4} for i in range(60)])
    app = create_app(location, Settings(writable=True))
    with TestClient(app, base_url="http://localhost") as client:
        health = client.get("/health").json()
        assert (health["rows"], health["bits"]) == (60, 48)
        for number in (0, 7, 33):
            distances = np.unpackbits(codes ^ codes[number], axis=1).sum(axis=1)
            order = np.argsort(distances, kind="stable")
            asked = {"code": codes[number].tobytes().hex(), "k": 7, "offset": 1}
            found = client.post("/search", json=asked).json()["results"]
            assert [item["key"] for item in found] == [keys[i] for i in order[1:8]]
            assert [item["code"] for item in found] == [
                codes[i].tobytes().hex() for i in order[1:8]
            ]
        listed, after = [], ""
        while after is not None:
            params = {"limit": 7, "after": after, "folder": "folder 1", "where": '{"n": 3}'}
            page = client.get("/items", params=params).json()
            listed += [item["key"] for item in page["items"]]
            after = page["next"]
        assert listed == [keys[i] for i in range(60) if i % 2 and i % 4 == 3]
        row = {"key": "new", "code": "ff" * 6, "metadata": {"n": 9}}
        assert client.post("/items", json=row).status_code == 201
        assert client.post("/items", json=row).status_code == 409
        found = client.post("/search", json={"key": "new", "k": 1}).json()["results"]
        assert (found[0]["key"], found[0]["distance"]) == ("new", 0)
        assert sorted(client.get("/facets").json()["metadata"]["n"]) == [0, 1, 2, 3, 9]
        found = client.get("/find", params={"text": "ü5", "folder": "folder 1"}).json()["items"]
        assert [item["key"] for item in found] == [keys[i] for i in (5, 51, 53, 55, 57, 59)]
        assert client.delete("/items/new").status_code == 204
        assert client.get("/health").json()["rows"] == 60
    engine.drop(location)
