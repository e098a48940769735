"""Mutated requests to a real `ddh serve`: no crash, no hang, no traceback, no growth of memory.

DDH_FUZZ_REQUESTS sets their number.
"""

import http.client
import io
import os
import random
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image
from serve_place import running

REQUESTS = int(os.environ.get("DDH_FUZZ_REQUESTS", "1500"))
CLIENTS = 16
PATIENCE = 400.0  # seconds, on a machine that others use; the service answers within its limits
GROWTH_MB = 50
LIMITS = ("--max-upload-mb", "1", "--max-megapixels", "1", "--body-seconds", "0.5")


def picture(kind: str) -> bytes:
    out = io.BytesIO()
    Image.frombytes("RGB", (24, 20), random.Random(0).randbytes(24 * 20 * 3)).save(out, kind)
    return out.getvalue()


def request(method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
    if body:
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Cookie: ddh_session=x\r\nIf-None-Match: x\r\n\r\n" + body


def form(content: bytes, **fields: str) -> bytes:
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n'
        for n, v in fields.items()
    ]
    file = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
    return "".join(parts).encode() + file + content + b"\r\n--x--\r\n"


FORM = "multipart/form-data; boundary=x"
SEEDS = [
    request("POST", "/search", b'{"code": "00000000", "k": 5, "offset": 2, "radius": 9}'),
    request("POST", "/search", b'{"code": "00000000", "values": [%s]}' % b",".join([b"-0.5"] * 32)),
    request("POST", "/search", b'{"key": "plants/00.png", "where": {"label": "cat"}}'),
    request("POST", "/items", b'{"key": "k", "code": "00000000", "metadata": {"a": [1, {}]}}'),
    request("POST", "/items", b'{"key": "k", "code": "0000000f", "path": "../x"}'),
    *(
        request("POST", "/search", form(picture(kind), k="3", folder="a"), FORM)
        for kind in ("PNG", "JPEG", "GIF")
    ),
    request("POST", "/items", form(picture("BMP"), metadata='{"a": 1}'), FORM),
    request("POST", "/duplicates/act", b'{"action": "trash", "groups": [{"keep": "k"}]}'),
    request("POST", "/duplicates/undo", b'{"journal": "dedup.jsonl"}'),
    request("DELETE", "/items/k"),
    request("POST", "/session"),
    *(
        request("GET", path)
        for path in (
            "/items?limit=3&folder=plants&after=x", "/items?where=%7B%22label%22%3A%22cat%22%7D",
            "/items/plants/00.png", "/thumbnails/plants/00.png?size=160", "/pictures/plants/00.png",
            "/find?text=cat%20plants&order=newest&since=2020&limit=3", "/timeline?folder=plants",
            "/details/plants/00.png", "/tags", "/searches",
            "/duplicates?show=similar&offset=1&limit=3", "/duplicates.csv",
            "/map/colours?by=label", "/map/keys?at=3", "/facets", "/jobs", "/metrics", "/health",
            "/", "/page/app.js", "/openapi.json",
        )
    ),
]  # fmt: skip
TOKENS = [
    b"\0", b"\xff\xfe", b"\r\n", b"\r\n\r\n", b":", b"%00", b"%ff", b"..", b"/", b"\\", b'"', b"'",
    b"{", b"[", b"[" * 990, b'{"a":' * 990, b"-1", b"1e999", b"NaN", b"9" * 30, b"9" * 5000,
    b"null", b"true", b"\\ud800", b"Transfer-Encoding: chunked\r\n", b"Content-Length: -1\r\n",
    b"Content-Length: 5\r\n", b"Host: x\r\n", b"Expect: 100-continue\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Range: bytes=0-\r\n",
    b"Content-Encoding: gzip\r\n", b"; charset=idna", b"; charset=a\0b", b"; boundary=",
    b"HTTP/9.9", b"OPTIONS ",
    b"?" * 300, b"=cmd|' /C calc'!A0", b"\xf0\x9f\x98\x80", b"A" * 70_000,
]  # fmt: skip


def mutated(rng: random.Random) -> bytes:
    """A valid request with a few changes; its length is mostly put right again."""
    content = rng.choice(SEEDS)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(content) + 1)
        end = min(len(content), at + rng.choice((0, 1, 4, 30)))
        insert = rng.choice((b"", rng.randbytes(1), content[at:end] * 3, rng.choice(TOKENS)))
        content = content[:at] + insert + content[end:]
    head, blank, body = content.partition(b"\r\n\r\n")
    if rng.random() < 0.9:
        head = re.sub(rb"(?i)content-length: \d+", b"Content-Length: %d" % len(body), head, count=1)
    return head + blank + body


def answer(port: int, number: int) -> int:
    """The status of the response to a mutated request, 0 where the connection was closed."""
    sent = mutated(random.Random(number))
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(sent)
            response = http.client.HTTPResponse(
                connection, method=sent.partition(b" ")[0].decode("latin-1")
            )
            response.begin()
            body = response.read(1 << 20)
    except TimeoutError:
        pytest.fail(f"request {number} hangs: {sent[:300]!r}")
    except (ConnectionError, http.client.HTTPException):
        return 0
    assert response.status != 500, (number, sent[:300], body)
    assert b"Traceback" not in body, (number, sent[:300])
    return response.status


def resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


@pytest.mark.timeout(300 + REQUESTS // 20)
@pytest.mark.skipif(sys.platform != "linux", reason="measures memory in /proc")
def test_mutated_requests_do_no_harm(place):
    options = ("--writable", "--root", str(place.photos), "--answer-seconds", "120", *LIMITS)
    with running(place.index, *options) as process, ThreadPoolExecutor(CLIENTS) as clients:
        numbers, warm = range(REQUESTS), REQUESTS // 3
        statuses = list(clients.map(lambda n: answer(process.port, n), numbers[:warm]))
        before = resident_mb(process.process.pid)
        statuses += clients.map(lambda n: answer(process.port, n), numbers[warm:])
        growth = resident_mb(process.process.pid) - before
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        log = process.stop()
    assert {200, 201, 204, 400, 404, 415, 421, 422} <= set(statuses)  # it reached every part
    assert not [line for line in log if "error" in line]  # tracebacks
    assert growth < GROWTH_MB
