"""Who may ask: hosts, origins, tokens, and the headers that every answer carries."""

import json
import logging
import re

import pytest

from ddh.serve.request_log import JsonLines

TOKEN = "a-token-that-is-long-enough"
NEEDS_TOKEN = [
    ("GET", "/items"), ("GET", "/items/plants/00.png"), ("GET", "/thumbnails/plants/00.png"),
    ("GET", "/pictures/plants/00.png"), ("GET", "/facets"), ("GET", "/duplicates"),
    ("GET", "/duplicates.csv"), ("GET", "/map"), ("GET", "/map/points"), ("GET", "/jobs"),
    ("GET", "/metrics"), ("POST", "/search"), ("POST", "/items"), ("DELETE", "/items/x"),
    ("POST", "/duplicates/search"), ("POST", "/duplicates/act"), ("POST", "/duplicates/undo"),
    ("POST", "/session"), ("GET", "/no/such/thing"), ("POST", "/"), ("POST", "/health"),
]  # fmt: skip


@pytest.fixture(scope="module")
def guarded(prepared):
    with prepared.open(token=TOKEN) as client:
        yield client


@pytest.mark.parametrize(("method", "address"), NEEDS_TOKEN)
def test_nothing_without_the_token(guarded, method, address):
    wrong = [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"authorization": "Bearer \xff".encode("latin-1")},
        {"cookie": f"ddh_session={TOKEN}"},
        {"cookie": "ddh_session="},
        {"cookie": "ddh_session=\xff; =;;".encode("latin-1")},
    ]
    for headers in wrong:
        answer = guarded.request(method, address, headers=headers)
        assert answer.status_code == 401
        assert "token" in answer.json()["detail"]
        assert answer.headers["www-authenticate"] == "Bearer"


def test_the_token_opens(guarded):
    answer = guarded.get("/items", headers={"authorization": f"bearer {TOKEN}"})
    assert answer.status_code == 200
    assert guarded.get("/health").json()["token"] is True
    for address in ("/", "/openapi.json"):
        assert guarded.get(address).status_code == 200


def test_a_session_stands_for_the_token(guarded):
    answer = guarded.post("/session", headers={"authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.content) == (204, b"")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    try:
        assert guarded.get("/thumbnails/plants/00.png").status_code == 200
        assert guarded.post("/search", json={"key": "plants/00.png"}).status_code == 200
    finally:
        guarded.cookies.clear()


def test_health_tells_no_path_of_the_machine(reader, prepared):
    health = reader.get("/health").json()
    assert str(prepared.folder) not in json.dumps(health)
    assert health["name"] == "p.index"
    assert health["images"] is health["pictures"] is True
    assert (health["rows"], health["bits"], health["token"]) == (24, 32, False)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.x", ""])
def test_other_names_are_refused(reader, host):
    answer = reader.get("/items", headers={"host": host})
    assert answer.status_code == 421
    assert "--allow-host" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:80"])
def test_own_names_pass(reader, host):
    assert reader.get("/items", headers={"host": host}).status_code == 200


def test_two_hosts_are_refused(reader):
    for hosts in (["localhost", "evil.example"], ["localhost", "localhost"]):
        answer = reader.get("/items", headers=[("host", host) for host in hosts])
        assert answer.status_code == 400
        assert "more than one Host" in answer.json()["detail"]


def test_names_that_were_allowed_pass(prepared):
    with prepared.open(hosts=("photos.example",)) as client:
        assert client.get("/health", headers={"host": "photos.example:443"}).status_code == 200
        assert client.get("/health", headers={"host": "localhost"}).status_code == 421
    with prepared.open(hosts=()) as client:
        assert client.get("/health", headers={"host": "anything"}).status_code == 200


def test_pages_of_other_sites_can_neither_ask_nor_change(place):
    with place.open(writable=True) as client:
        for origin in ("http://evil.example", "null", "http://localhost:1", "localhost"):
            for method, address in (
                ("POST", "/search"),
                ("POST", "/items"),
                ("DELETE", "/items/x"),
            ):
                answer = client.request(method, address, headers={"origin": origin})
                assert answer.status_code == 403, (origin, address)
        own = {"origin": "http://localhost"}
        assert client.post("/search", json={"key": "plants/00.png"}, headers=own).status_code == 200


def test_cors_is_closed(reader):
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    preflight = reader.options("/search", headers=asked)
    assert preflight.status_code == 405
    got = reader.get("/items", headers={"origin": "http://evil.example"})
    for answer in (preflight, got):
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("address", ["/", "/page/app.js", "/health", "/nothing", "/items/gone"])
def test_every_answer_keeps_a_browser_safe(reader, address):
    headers = reader.get(address).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-request-id"]


def test_the_page_is_the_packages_own(reader):
    assert reader.get("/").headers["content-type"].startswith("text/html")
    for name in ("app.py", "%2e%2e", "%2e%2e%2fapp.py", "..%5capp.py", "__init__.py", ""):
        assert reader.get(f"/page/{name}").status_code == 404, name


def test_requests_are_logged_as_json(reader, caplog):
    with caplog.at_level(logging.INFO, "ddh.serve"):
        reader.get("/items/none%0A", headers={"x-request-id": "mine-7"})
        reader.get("/health", headers={"x-request-id": "no\tgood"})
    first, second = (json.loads(JsonLines().format(record)) for record in caplog.records)
    assert (first["id"], first["method"], first["status"]) == ("mine-7", "GET", 404)
    assert first["path"] == "/items/none\n"  # one line all the same
    assert first["ms"] > 0
    assert second["id"] != "no\tgood"
    assert second["status"] == 200


def test_what_goes_wrong_inside_is_logged_and_not_told(reader, caplog, monkeypatch):
    service = reader.app.state.service

    def fail(*args):
        raise RuntimeError("secret inside")

    monkeypatch.setattr(service.searcher, "validate", fail)
    monkeypatch.setattr(service.catalogs, "current", fail)
    for ask in (lambda: reader.post("/search", json={"key": "x"}), lambda: reader.get("/facets")):
        caplog.clear()
        with caplog.at_level(logging.ERROR, "ddh.serve"):
            answer = ask()
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "its log says what" in answer.json()["detail"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "secret inside" in caplog.text


def test_health_is_the_health_of_the_search(place):
    with place.open() as client:
        assert client.get("/health").json()["status"] == "ok"
        for handle in client.app.state.service._handles[2:]:  # those that search
            handle.close()
        answer = client.get("/health")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"


def test_files_of_the_page_are_kept_under_their_version(reader):
    text = reader.get("/").text
    addresses = re.findall(r'"(page/\w+/[\w.]+)"', text)
    assert len(addresses) > 10
    for address in addresses:
        answer = reader.get(f"/{address}")
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    version, name = addresses[0].split("/")[1:]
    old = reader.get(f"/page/{version[::-1]}/{name}")
    assert old.headers["cache-control"] == "no-cache"
    assert reader.get(f"/page/{version}/app.py").status_code == 404
    modules = {address.rsplit("/")[-1] for address in addresses}
    assert {"app.js", "search.js", "grid.js", "dom.js"} <= modules
    assert "map.js" not in modules  # loaded when it is wanted
