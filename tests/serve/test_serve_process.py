"""A real `ddh serve` process under hostile requests, load, and signals."""

import contextlib
import io
import json
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

import httpx
import numpy as np
import pytest
from PIL import Image
from serve_place import running

import ddh.index

PATIENCE = 120.0  # seconds until something that should happen has happened, on a busy machine
LIMITS = (
    "--max-upload-mb",
    "2",
    "--max-megapixels",
    "4",
    "--body-seconds",
    "1.5",
    "--answer-seconds",
    "120",
)
CLIENT = httpx.Client(timeout=PATIENCE, limits=httpx.Limits(max_keepalive_connections=0))


@pytest.fixture(scope="module")
def served(prepared, tmp_path_factory):
    """A writable service over a copy, with small limits, that must outlive every test here."""
    folder = tmp_path_factory.mktemp("served")
    for part in ("photos", "p.index"):
        shutil.copytree(prepared.folder / part, folder / part, copy_function=shutil.copy2)
    options = ("--writable", "--root", str(folder / "photos"), *LIMITS)
    with running(str(folder / "p.index"), *options) as process:
        yield process


@pytest.fixture(autouse=True)
def still_up(served):
    yield
    assert CLIENT.get(f"{served.url}/health").status_code == 200
    assert served.process.poll() is None


def chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def bomb(width: int, height: int) -> bytes:
    """A PNG whose pixels are all there, packed a thousandfold."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packer = zlib.compressobj(9)
    row = bytes(1 + 3 * width)
    content = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", header) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def picture(kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.effect_noise((40, 30), 90).convert("RGB").save(out, kind)
    return out.getvalue()


HOSTILE = {
    "empty": b"",
    "text": b"hello",
    "page": b"<!doctype html><script>alert(1)</script>",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file",
    "pdf": b"%PDF-1.4\n",
    "truncated": picture()[:300],
    "half a jpeg": picture("JPEG")[:300],
    "bomb": bomb(2400, 2400),
    "huge header": b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 2, 0, 0, 0)),
    "zero size": b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 0, 0, 8, 2, 0, 0, 0)),
    "slow format": b"qoif" + struct.pack(">IIBB", 600, 600, 3, 0) + bytes(600 * 600 + 8),
    "icon": b"\0\0\1\0\1\0" + struct.pack("<8xII", 1 << 20, 22) + bomb(2400, 2400),
    "zip": b"PK\x03\x04" + bytes(100),
}  # fmt: skip


@pytest.mark.parametrize("address", ["/search", "/items"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pictures_are_refused(served, address, name):
    answer = CLIENT.post(f"{served.url}{address}", files={"image": HOSTILE[name]})
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"].startswith("the picture: ")


def test_a_polyglot_is_only_ever_served_as_a_fresh_jpeg(served):
    script = b"<script>alert(1)</script>"
    polyglot = picture("GIF") + script + b"PK\x03\x04"
    answer = CLIENT.post(f"{served.url}/items", files={"image": ("x.html", polyglot, "text/html")})
    assert answer.status_code == 201, answer.text
    key = answer.json()["key"]
    assert key.endswith(".gif")
    for address in ("thumbnails", "pictures"):
        shown = CLIENT.get(f"{served.url}/{address}/{key}")
        assert shown.headers["content-type"] == "image/jpeg"
        assert script not in shown.content
    assert CLIENT.delete(f"{served.url}/items/{key}").status_code == 204


def wait_until(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def talk(served, request: bytes, seconds: float = PATIENCE) -> bytes:
    """Send bytes as they are, and all that comes back."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=seconds) as connection:
        connection.sendall(request)
        return receive(connection)


def receive(connection) -> bytes:
    answer = b""
    try:
        while part := connection.recv(65536):
            answer += part
    except (TimeoutError, ConnectionResetError):
        pass
    return answer


def head(path: str = "/search", *more: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


FORM = "Content-Type: multipart/form-data; boundary=x"
PART = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'


@pytest.mark.parametrize("kind", [FORM, "Content-Type: application/json"])
def test_a_body_of_100_mb_is_refused_by_its_length(served, kind):
    answer = talk(served, head("/search", kind, "Content-Length: 104857600") + b"x" * 1000)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"larger than the limit of 2,097,152 bytes" in answer


@pytest.mark.parametrize("kind", [FORM, "Content-Type: application/json"])
def test_a_body_without_end_is_cut_off(served, kind):
    sent = 0
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as connection:
        connection.sendall(head("/search", kind, "Transfer-Encoding: chunked"))
        if kind == FORM:
            connection.sendall(b"%x\r\n%s\r\n" % (len(PART), PART))
        try:
            while sent < 100 << 20:
                connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                sent += 65536
        except (ConnectionResetError, BrokenPipeError):
            answer = b"HTTP/1.1 413"  # it hung up while we were still sending
        else:
            answer = receive(connection)
    assert answer.startswith(b"HTTP/1.1 413")
    assert sent < 20 << 20


@pytest.mark.parametrize("kind", [FORM, "Content-Type: application/json"])
def test_a_slow_body_is_given_up(served, kind):
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as connection:
        connection.sendall(head("/search", kind, "Content-Length: 1000") + PART[:40])
        for _ in range(3):  # a drop now and then does not help
            time.sleep(0.2)
            connection.sendall(b"x")
        answer = receive(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert time.monotonic() - started > 1


def test_a_slow_head_is_given_up(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as connection:
        connection.sendall(head()[:-2])  # its last line never comes
        assert connection.recv(65536) == b""


def test_a_large_head_is_refused(served):
    start, end = b"GET /items HTTP/1.1\r\nHost: localhost\r\n", b"Connection: close\r\n\r\n"
    assert talk(served, start + b"X: y\r\n" * 98 + end).startswith(b"HTTP/1.1 200")
    assert talk(served, start + b"X: y\r\n" * 99 + end).startswith(b"HTTP/1.1 431")
    assert talk(served, start + b"X: " + b"y" * 100_000).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "request_bytes",
    [
        head("/search", "Content-Type: application/json", "Content-Length: 5") + b"{",
        head("/search", FORM, "Content-Length: 9999") + PART,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 3,
    ],
)
def test_clients_that_hang_up_harm_nobody(served, request_bytes):
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(request_bytes)


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/thumbnails/../../../../etc/passwd", {404}),
        ("/thumbnails/%2e%2e/%2e%2e/%2e%2e/etc/passwd", {404}),
        ("/thumbnails//etc/passwd", {404}),
        ("/thumbnails/%00", {422}),
        ("/thumbnails/plants/00.png%00.jpg", {422}),
        ("/thumbnails/%ff%fe", {404}),
        ("/page/../app.py", {404}),
        ("/page/%2e%2e%2fapp.py", {404}),
        ("/page/..%5capp.py", {404}),
        ("/items/%252e%252e", {404}),
        ("/items/" + "x" * 5000, {422}),
        ("/%2e%2e/%2e%2e/etc/passwd", {404}),
        ("*", {400, 404}),
    ],
)
def test_addresses_lead_nowhere_else(served, path, statuses):
    answer = talk(served, head(path, "Connection: close", method="GET"))
    assert int(answer.split(b" ")[1]) in statuses, answer[:200]
    assert b"root:" not in answer


def test_odd_forms_are_refused(served):
    bodies = [
        b"",
        b"--x--\r\n",
        b"--x\r\n\r\n\r\n--x--\r\n",
        PART + b"a\r\n" + PART + b"b\r\n--x--\r\n",
        b'--x\r\nContent-Disposition: form-data; name="k"\r\n\r\n'
        + b"1" * 70_000
        + b"\r\n--x--\r\n",
        b"".join(
            b'--x\r\nContent-Disposition: form-data; name="f%d"\r\n\r\n1\r\n' % i for i in range(50)
        )
        + b"--x--\r\n",
        b'--x\r\nContent-Disposition: form-data; name="image"\r\n\r\ntext, not a file\r\n--x--\r\n',
    ]
    for body in bodies:
        length = f"Content-Length: {len(body)}"
        answer = talk(served, head("/search", FORM, length, "Connection: close") + body)
        assert int(answer.split(b" ")[1]) in (400, 422), (body[:60], answer[:300])
    no_boundary = head("/search", "Content-Type: multipart/form-data", "Content-Length: 0")
    assert b" 400 " in talk(served, no_boundary, 5)[:20]


def test_nothing_is_lost_while_rows_are_added(served):
    """Rows go in while others search; every one is found at once by whoever added it."""
    rng = np.random.default_rng(1)
    codes = [code.tobytes().hex() for code in rng.integers(0, 256, (40, 4), dtype=np.uint8)]
    stop, faults, searches = threading.Event(), [], 0

    def search():
        nonlocal searches
        with httpx.Client(base_url=served.url, timeout=PATIENCE) as client:
            while not stop.is_set():
                answer = client.post("/search", json={"key": "plants/00.png", "k": 5})
                if answer.status_code != 200 or len(answer.json()["results"]) != 5:
                    faults.append(answer.text)
                searches += 1

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    with httpx.Client(base_url=served.url, timeout=PATIENCE) as client:
        for number, code in enumerate(codes):
            row = {"key": f"added/{number}", "code": code}
            assert client.post("/items", json=row).status_code == 201
            found = client.post("/search", json={"code": code, "radius": 0, "k": 1000}).json()
            assert f"added/{number}" in {item["key"] for item in found["results"]}
        wait_until(lambda: searches > 20 or faults)
        stop.set()
        for thread in threads:
            thread.join()
        assert not faults
        keys = {item["key"] for item in client.get("/items?limit=1000").json()["items"]}
        assert {f"added/{number}" for number in range(40)} <= keys


# -- the process itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_stopping_finishes_what_runs(prepared, sent):
    """A request whose body is still coming when the service is stopped gets its answer."""
    body = json.dumps({"key": "plants/00.png"}).encode()
    request = head(
        "/search", "Content-Type: application/json", f"Content-Length: {len(body)}",
        "Expect: 100-continue",
    )  # fmt: skip
    with running(prepared.index, "--body-seconds", str(PATIENCE)) as process:
        with socket.create_connection(("127.0.0.1", process.port), timeout=PATIENCE) as connection:
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 100")  # the body is awaited
            process.process.send_signal(sent)
            wait_until(lambda: refuses(process.port))
            connection.sendall(body)
            answer = receive(connection)
        log = process.stop(sent)
        assert process.process.returncode in (0, -sent, 128 + sent)
    assert b"HTTP/1.1 200" in answer
    logged = [line for line in log if line.get("path") == "/search"]
    assert logged[0]["status"] == 200
    assert {"time", "level", "id", "method", "ms"} <= logged[0].keys()


def refuses(port: int) -> bool:
    """Whether nobody listens on a port any more."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "ddh", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_what_cannot_be_served_is_told_at_once(prepared, served, tmp_path):
    elsewhere = run(prepared.index, "--host", "0.0.0.0")
    assert elsewhere.returncode == 2
    assert "--token" in elsewhere.stderr
    missing = run(str(tmp_path / "none.index"))
    assert missing.returncode == 2
    assert "there is no index" in missing.stderr
    taken = run(prepared.index, "--port", str(served.port))
    assert taken.returncode == 2
    assert "another --port" in taken.stderr
    assert not (tmp_path / "none.index").exists()


def test_code_queries_never_import_torch(prepared):
    script = (
        "import sys\nfrom starlette.testclient import TestClient\n"
        "from ddh.serve import Settings, create_app\n"
        f"app = create_app({prepared.index!r}, Settings())\n"
        "client = TestClient(app, base_url='http://localhost')\n"
        "assert client.post('/search', json={'key': 'plants/00.png'}).status_code == 200\n"
        "assert client.get('/health').json()['images']\n"
        "assert client.get('/duplicates').status_code == 200\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_another_host_needs_the_token_and_its_address_passes(prepared):
    token = "0123456789abcdef"
    with running(prepared.index, "--host", "0.0.0.0", DDH_TOKEN=token) as process:
        assert CLIENT.get(f"{process.url}/items").status_code == 401
        answer = CLIENT.get(
            f"{process.url}/items",
            headers={"authorization": f"Bearer {token}", "host": "any.example"},
        )
        assert answer.status_code == 200
        assert json.loads(answer.text)["rows"] == 24
        log = process.stop()
    assert not any(token in json.dumps(line) for line in log)


@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2, a second own address")
def test_connections_of_one_address_leave_room_for_others(prepared):
    """With 150 descriptors, 200 silent connections: another address is served meanwhile."""
    few = ("sh", "-c", 'ulimit -n 150 && exec "$@"', "sh")
    other = httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"))
    with running(prepared.index, prefix=few) as process, other, contextlib.ExitStack() as opened:
        answers = []
        for _ in range(200):
            connection = socket.create_connection(("127.0.0.1", process.port), timeout=PATIENCE)
            opened.enter_context(connection)
            answers.append(connection)
        assert receive(answers[-1]).startswith(b"HTTP/1.1 503")  # too many of this address
        answer = other.get(f"{process.url}/health", timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        opened.close()
        wait_until(lambda: CLIENT.get(f"{process.url}/health").status_code == 200)
        log = process.stop()
    assert not [line for line in log if line["level"] != "info"]


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


def test_an_index_on_a_read_only_mount_is_served(place):
    prefix = ("unshare", "-rm", "sh", "-c", READ_ONLY, str(place.folder))
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"]).returncode:
        pytest.skip("this user may not mount")
    with running(place.index, "--writable", prefix=prefix) as process:
        assert CLIENT.get(f"{process.url}/health").status_code == 200
        found = CLIENT.post(f"{process.url}/search", json={"key": "plants/00.png"})
        assert len(found.json()["results"]) == 24
        for address in ("/items", "/facets", "/duplicates", "/thumbnails/plants/00.png"):
            assert CLIENT.get(process.url + address).status_code == 200
        row = {"key": "new", "code": "00000000"}
        assert CLIENT.post(f"{process.url}/items", json=row).status_code == 503
        log = process.stop()
    assert "Read-only" in json.dumps(log)
    info = [sys.executable, "-m", "ddh", "index", "info", "-i", place.index]
    assert subprocess.run([*prefix, *info], capture_output=True).returncode == 0


def test_the_index_is_whole_after_a_kill(place):
    with running(place.index, "--writable", "--root", str(place.photos)) as process:
        for number in range(5):
            row = {"key": f"k{number}", "code": "00000000"}
            assert CLIENT.post(f"{process.url}/items", json=row).status_code == 201
        process.process.kill()
        process.process.wait()
    with ddh.index.open(place.index) as index:
        assert [row.key for row in index.get_many([f"k{number}" for number in range(5)])] == [
            f"k{number}" for number in range(5)
        ]
