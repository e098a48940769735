"""A service whose index is given codes of another model while it runs."""

import threading

import pytest
from serve_place import Place, draw
from starlette.testclient import TestClient

import ddh.index
from ddh.cli.add import bring_up_to_date
from ddh.index.refit import refit
from ddh.serve import service as serving
from ddh.serve.service import Service

PICTURES = 20


@pytest.fixture(scope="module")
def added(tmp_path_factory) -> Place:
    """An index as `ddh add` makes it, with codes of the default model."""
    place = Place(tmp_path_factory.mktemp("added"))
    for seed in range(PICTURES):
        draw(place.photos / f"{seed:02d}.png", seed)
    bring_up_to_date(place.index, [place.photos], None, False, "cpu")
    return place


@pytest.fixture
def client(added, monkeypatch):
    """A service that looks for new codes only when a search tells it to."""
    monkeypatch.setattr(serving, "LOOK_SECONDS", 1e9)
    with added.open(root=None) as client:
        yield client


def recode(place: Place, **options) -> str:
    with ddh.index.open(place.index, create=False) as index:
        number = len(list(place.folder.glob("*.ddh")))
        return refit(index, place.folder / f"{number}.ddh", **options).model_id


def by_picture(client: TestClient, place: Place, name: str = "03.png") -> dict:
    return client.post("/search", files={"image": (place.photos / name).read_bytes()}).json()


def keys_of(answer: dict) -> list[str]:
    return [hit["key"] for hit in answer["results"]]


@pytest.mark.parametrize("bits", [64, 48])
def test_searches_go_on_with_the_new_codes_and_their_model(client, added, bits):
    before = by_picture(client, added)
    model_id = recode(added, bits=bits, random_state=bits)
    found = by_picture(client, added)
    assert found["query"]["model_id"] == model_id != before["query"]["model_id"]
    key = keys_of(found)[0]
    by_key = client.post("/search", json={"key": key}).json()
    with added.open(root=None) as fresh:
        assert keys_of(found) == keys_of(by_picture(fresh, added))
        assert keys_of(by_key) == keys_of(fresh.post("/search", json={"key": key}).json())
    assert (found["results"][0]["distance"], by_key["query"]["bits"]) == (0, bits)
    health = client.get("/health").json()
    assert (health["model_id"], health["bits"], health["images"]) == (model_id, bits, True)


def test_a_search_by_key_alone_notices_it(client, added):
    assert client.post("/search", json={"key": "photos/00.png"}).status_code == 200
    model_id = recode(added, random_state=7)
    found = client.post("/search", json={"key": "photos/00.png"}).json()
    assert found["query"]["model_id"] == model_id
    assert keys_of(found)[0] == "photos/00.png"


def test_a_code_of_the_former_model_is_refused(client, added):
    query = by_picture(client, added)["query"]
    asked = {name: query[name] for name in ("code", "values", "features", "model_id")}
    assert client.post("/search", json=asked).status_code == 200
    recode(added, random_state=8)
    client.post("/search", json={"key": "photos/00.png"})
    refused = client.post("/search", json=asked)
    assert refused.status_code == 409
    assert "search again" in refused.json()["detail"]


@pytest.mark.parametrize("noticed", [False, True])
def test_a_picture_is_added_with_the_new_codes(added, monkeypatch, noticed):
    encode, encoded = Service.encode, []

    async def meanwhile(self, image):
        encoding = await encode(self, image)
        if not encoded:
            recode(added, bits=40, random_state=9)
            if noticed:  # by another request
                await self.follow(at_once=True)
        encoded.append(encoding.model_id)
        return encoding

    recode(added, bits=64, random_state=9)
    monkeypatch.setattr(Service, "encode", meanwhile)
    monkeypatch.setattr(serving, "LOOK_SECONDS", 1e9)
    with added.open(root=None, writable=True) as client:
        content = (added.photos / "03.png").read_bytes()
        sent = client.post("/items", files={"image": ("x.png", content)}, data={"key": "sent"})
        assert sent.status_code == 201, sent.text
        rows = added.rows()
        assert (rows["sent"].code == rows["photos/03.png"].code).all()
        assert len(set(encoded)) == 2
        client.delete("/items/sent")


def test_other_requests_notice_it_too(client, added, monkeypatch):
    client.get("/facets")
    recode(added, bits=56)
    monkeypatch.setattr(serving, "LOOK_SECONDS", 0.0)
    assert client.get("/items").status_code == 200
    assert len(client.get("/facets").json()["folders"]) == 1
    assert client.get("/health").json()["bits"] == 56


def test_no_search_mixes_codes_while_they_change(client, added):
    """A picture of the index is found at distance 0 or its stored bits, whenever it is sent."""
    answers, stop = [], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            answers.append(client.post("/search", json={"key": "photos/05.png"}))

    asking = threading.Thread(target=ask)
    asking.start()
    for seed in range(3):
        recode(added, bits=(64, 40)[seed % 2], random_state=seed)
    stop.set()
    asking.join()
    assert {answer.status_code for answer in answers} == {200}
    firsts = [answer.json()["results"][0] for answer in answers]
    assert {(first["key"], first["distance"]) for first in firsts} == {("photos/05.png", 0)}
