"""`ddh bench serve`: a real `ddh serve` process under load from this one, on loopback.

Code queries per second and their latencies, alone and while rows are added (all of which must be
found afterwards); searches for names one after another, as somebody types; image queries per second
beside the speed of the network alone.
"""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import click
import numpy as np

import ddh.index
from ddh import codes
from ddh._core.errors import DDHError
from ddh._core.output import emit, json_option
from ddh._core.progress import track
from ddh._core.threads import cpu_count
from ddh.bench.encode import sample_photographs
from ddh.bench.options import quick_option, seed_option
from ddh.bench.results import Record, table_of
from ddh.bench.search_data import KINDS, Codes
from ddh.bench.timing import timed

BATCH = 50_000  # rows added per call
QUERIES = 4096
CHECKED = 32
WARM_SECONDS = 1.0
ROWS = (
    "code queries", "code queries while rows are added", "rows added", "name queries",
    "image queries",
)  # fmt: skip
COLUMNS = ("requests", "per second", "p50 ms", "p99 ms", "max ms")


@click.command()
@click.option("--rows", default=1_000_000)
@click.option("--bits", default=64)
@click.option("-k", default=10, help="Results per query.")
@click.option("--concurrency", default=32, help="Concurrent queries.")
@click.option("--seconds", default=10.0, help="Length of each measurement.")
@click.option("--data", type=click.Choice(list(KINDS)), default="lsh", help="Codes.")
@click.option("--images", default=200, help="Image queries; 0 skips them.")
@seed_option
@quick_option
@json_option
def serve(quick: bool, as_json: bool, **settings: Any) -> None:
    """Queries per second and latencies of the HTTP service.

    \b
    ddh bench serve                        the figures of docs/serve.md, two minutes
    ddh bench serve -k 50 --images 0
    ddh bench serve --quick
    """
    settings |= {"rows": 20_000, "seconds": 1.0, "images": 0} if quick else {}
    document: dict[str, Any] = {"settings": settings, "cores": cpu_count()}
    with tempfile.TemporaryDirectory() as scratch:
        document |= code_queries(Path(scratch), settings)
        if settings["images"]:
            document["image queries"] = image_queries(Path(scratch), settings)
    title = "{rows:,} codes of {bits} bits, k = {k}, {concurrency} concurrent queries, "
    memory = document["memory of the service"]
    note = f"memory of the service: {memory >> 20} MB; " if memory else ""
    note += f"rows added and not found afterwards: {document['rows added']['not found afterwards']}"
    if settings["images"]:
        network = document["image queries"]["network alone per second"]
        note += f"; the network alone: {network} images per second"
    measured = [{"name": name, **document[name]} for name in ROWS if name in document]
    columns = {name: f"{{{name}:,}}" for name in COLUMNS}
    title = title.format_map(settings) + f"{document['cores']} cores"
    rows = table_of(title, measured, {"requests of": "{name}", **columns}, note)
    emit(document, rows.markdown(), as_json)


def code_queries(folder: Path, settings: dict[str, Any]) -> Record:
    """Code queries alone, then while rows are added."""
    kind, seed, bits = KINDS[settings["data"]], settings["seed"], settings["bits"]
    database, queries = kind(settings["rows"], bits, seed, 0), kind(QUERIES, bits, seed, 1)
    location = str(folder / "bench.index")
    with ddh.index.open(location, bits=bits) as index:
        starts = range(0, len(database), BATCH)
        for start in track(starts, "Filling the index", unit="batch"):
            part = database[start : start + BATCH]
            keys = [_key(number) for number in range(start, start + len(part))]
            index.add(keys, part, paths=keys)
    requests = [_post("/search", code=code.tobytes().hex(), k=settings["k"]) for code in queries]
    new = kind(100_000, bits, seed, 2)
    rows = [
        _post("/items", key=f"new/{n}", code=code.tobytes().hex()) for n, code in enumerate(new)
    ]
    with served(location, "--writable") as (port, process):
        _check(port, database, queries[:CHECKED], settings["k"])
        args = (port, requests, settings["concurrency"])
        asyncio.run(load(*args, WARM_SECONDS))
        alone = asyncio.run(load(*args, settings["seconds"]))

        async def while_adding() -> tuple[Record, Record]:
            adding = load(port, rows, 1, settings["seconds"], once=True)
            return await asyncio.gather(load(*args, settings["seconds"]), adding)

        beside, adding = asyncio.run(while_adding())
        added = enumerate(new[: int(adding["requests"])])
        found = [
            f"new/{n}" in [item["key"] for item in _search(port, code, radius=0, k=1000)]
            for n, code in added
        ]
        names = _typed(settings["rows"], seed)
        _read_names(port)
        typed = asyncio.run(load(port, names, 1, settings["seconds"]))
        memory = _memory(process)
    adding["not found afterwards"] = found.count(False)
    return {
        ROWS[0]: alone, ROWS[1]: beside, ROWS[2]: adding, ROWS[3]: typed,
        "memory of the service": memory,
    }  # fmt: skip


def _key(number: int) -> str:
    return f"{number % 100:02d}/{number:08d}.jpg"


def _typed(rows: int, seed: int) -> list[bytes]:
    """Requests of somebody who types names of rows, letter by letter, some with a folder."""
    requests = []
    for number in np.random.default_rng(seed).integers(0, rows, 64).tolist():
        folder, name = _key(number).split("/")
        words = [name[:length] for length in range(1, len(name) + 1)] + [f"{folder} {name[2:6]}"]
        requests += [f"GET /find?text={word.replace(' ', '%20')}&limit=50" for word in words]
    return [f"{line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for line in requests]


def _read_names(port: int) -> None:
    """Wait until the service has read the names of all rows."""
    for _ in range(60):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/find?text=jpg&limit=1") as answer:
                answer.read()
            return
        except urllib.error.HTTPError as error:  # it takes longer than a request may
            if error.code != 503:
                raise
    raise DDHError("the service does not find names")


def _memory(process: "subprocess.Popen[str]") -> int | None:
    """Resident bytes of a process; None where the system does not say."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return None
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return 1024 * int(found[1]) if found else None


def _search(port: int, code: Codes, **params: int) -> list[Record]:
    body = json.dumps({"code": code.tobytes().hex(), **params}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/search", body, headers)
    with urllib.request.urlopen(request) as answer:
        return list(json.load(answer)["results"])


def _check(port: int, database: Codes, queries: Codes, k: int) -> None:
    """The service must answer as a plain scan does, or nothing is measured."""
    found = codes.search(queries, database, k)
    for code, distances, rows in zip(queries, *found, strict=True):
        expected = [(_key(row), d) for row, d in zip(rows, distances.tolist(), strict=True)]
        answers = [(item["key"], item["distance"]) for item in _search(port, code, k=k)]
        if answers != expected:
            raise DDHError("the service and a plain scan disagree")


def image_queries(folder: Path, settings: dict[str, Any]) -> Record:
    """Image queries through HTTP, and the same images through the encoder alone."""
    from ddh.hashers import DDH
    from ddh.images import ImageFolder

    images = folder / "images"
    images.mkdir()
    source: Any = ImageFolder(sample_photographs(images, settings["images"], settings["seed"]))
    model = DDH(bits=settings["bits"], epochs=1, device="cpu").fit(source)
    model.save(folder / "bench.ddh")
    list(model.encode_images(source.take(range(16)), 16))
    _, own = timed(lambda: list(model.encode_images(source, 16)))
    location = str(folder / "images.index")
    with ddh.index.open(location, bits=settings["bits"], model_id=model.model_id) as index:
        index.add(list(source.names), model.encode(source))
    head = b'--bench\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
    forms = [head + path.read_bytes() + b"\r\n--bench--\r\n" for path in source.paths]
    requests = [_request("/search", form, "multipart/form-data; boundary=bench") for form in forms]
    options = ("--model", str(folder / "bench.ddh"), "--device", "cpu")
    with served(location, *options) as (port, _):
        asyncio.run(load(port, requests[:16], 16, 60, once=True))
        measured = asyncio.run(load(port, requests, 16, 600, once=True))
    return {"network alone per second": round(len(source) / own["wall"], 1), **measured}


# -- the service, and load on it ---------------------------------------------------------------


@contextmanager
def served(location: str, *options: str) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """The port of a `ddh serve` process and the process, which is stopped at the end."""
    command = [sys.executable, "-m", "ddh", "serve", location, "--port", "0", "--log", "errors"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+:(\d+)/", process.stdout.readline())
        if not found:
            raise DDHError("the service did not start")
        yield int(found[1]), process
    finally:
        process.terminate()
        process.wait(60)


def _post(path: str, **body: Any) -> bytes:
    return _request(path, json.dumps(body).encode(), "application/json")


def _request(path: str, body: bytes, kind: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def load(
    port: int, requests: list[bytes], connections: int, seconds: float, *, once: bool = False
) -> Record:
    """Rate and latencies of `connections` that send one request after another.

    They stop after `seconds` or, with `once`, when every request has been sent.
    """
    latencies: list[float] = []
    started = time.perf_counter()
    shared = iter(requests) if once else cycle(requests)

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in shared:
            sent = time.perf_counter()
            if sent >= started + seconds:
                break
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            if head[9:11] != b"20":
                raise DDHError(f"the service answers {head + body[:300]!r}")
            latencies.append(time.perf_counter() - sent)
        writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    elapsed = time.perf_counter() - started
    p50, p99, longest = np.quantile(np.array(latencies or [0.0]) * 1000, [0.5, 0.99, 1])
    values = [len(latencies), round(len(latencies) / elapsed, 1)]
    return dict(zip(COLUMNS, [*values, *np.round([p50, p99, longest], 2).tolist()], strict=True))
