"""`ddh bench serve`: a real `ddh serve` process under load from this one, on loopback.

Code queries a second and their latencies, alone and while rows are added (all of which must be
found afterwards); image queries a second beside the network's own speed.
"""

import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import ddh.index
from ddh import codes
from ddh._core.errors import DDHError
from ddh._core.output import emit, json_option
from ddh._core.progress import track
from ddh._core.threads import cpu_count
from ddh.bench.encode import sample_photographs
from ddh.bench.search_data import KINDS, Codes
from ddh.bench.serve_load import load, post

ADDED_TOGETHER = 50_000
QUERIES = 4096
CHECKED = 32
WARM_SECONDS = 1.0
ROWS = ("code queries", "code queries while rows are added", "rows added", "image queries")
COLUMNS = ("requests", "per second", "p50 ms", "p99 ms", "max ms")


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--bits", default=64, show_default=True)
@click.option("-k", default=10, show_default=True, help="Answers for each query.")
@click.option("--concurrency", default=32, show_default=True, help="Queries under way at once.")
@click.option("--seconds", default=10.0, show_default=True, help="Length of each measurement.")
@click.option(
    "--data", type=click.Choice(list(KINDS)), default="lsh", show_default=True, help="Codes."
)
@click.option("--images", default=200, show_default=True, help="Image queries; 0 leaves them out.")
@click.option("--seed", default=0, show_default=True)
@click.option("--quick", is_flag=True, help="Small sizes, to see that all is well.")
@json_option
def serve(quick: bool, as_json: bool, **settings: Any) -> None:
    """Queries per second and latencies of the HTTP service.

    \b
    ddh bench serve                        the figures of the documentation, two minutes
    ddh bench serve -k 50 --images 0
    ddh bench serve --quick
    """
    settings |= {"rows": 20_000, "seconds": 1.0, "images": 0} if quick else {}
    document: dict[str, Any] = {"settings": settings, "cores": cpu_count()}
    with tempfile.TemporaryDirectory() as scratch:
        document |= code_queries(Path(scratch), settings)
        if settings["images"]:
            document["image queries"] = image_queries(Path(scratch), settings)
    emit(document, _text(document), as_json)


# -- code queries ------------------------------------------------------------------------------


def code_queries(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Code queries alone, then while rows are added."""
    kind, seed, bits = KINDS[settings["data"]], settings["seed"], settings["bits"]
    database, queries = kind(settings["rows"], bits, seed, 0), kind(QUERIES, bits, seed, 1)
    location = str(folder / "bench.index")
    _fill(location, database, bits)
    requests = [_search(code, settings["k"]) for code in queries]
    with served(location, "--writable") as port:
        _check(port, database, queries[:CHECKED], settings["k"])
        args = (port, requests, settings["concurrency"])
        asyncio.run(load(*args, WARM_SECONDS))
        alone = asyncio.run(load(*args, settings["seconds"]))
        new = kind(100_000, bits, seed, 2)
        beside, adding = asyncio.run(_while_adding(args, new, settings["seconds"]))
        added = int(adding["requests"])
        missing = _missing(port, new[:added])
    return {
        "code queries": alone.summary(),
        "code queries while rows are added": beside,
        "rows added": adding | {"not found afterwards": missing},
    }


def _fill(location: str, database: Codes, bits: int) -> None:
    with ddh.index.open(location, bits=bits) as index:
        starts = range(0, len(database), ADDED_TOGETHER)
        for start in track(starts, "Filling the index", unit="batch"):
            part = database[start : start + ADDED_TOGETHER]
            keys = [
                f"{number % 100:02d}/{number:08d}.jpg" for number in range(start, start + len(part))
            ]
            index.add(keys, part, paths=keys)


def _search(code: Codes, k: int) -> bytes:
    return post("/search", json.dumps({"code": code.tobytes().hex(), "k": k}).encode())


async def _while_adding(
    args: tuple[int, list[bytes], int], new: Codes, seconds: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Queries beside one client that adds rows as fast as they are taken."""
    rows = [
        post("/items", json.dumps({"key": f"new/{n}", "code": code.tobytes().hex()}).encode())
        for n, code in enumerate(new)
    ]
    queries, adding = await asyncio.gather(
        load(*args, seconds), load(args[0], rows, 1, seconds, once=True)
    )
    return queries.summary(), adding.summary()


def _missing(port: int, added: Codes) -> int:
    """Rows that were added and that a search by their own code does not find."""
    missing = 0
    for number, code in enumerate(added):
        body = {"code": code.tobytes().hex(), "radius": 0, "k": 1000}
        found = _ask(port, "/search", json.dumps(body).encode())["results"]
        missing += f"new/{number}" not in {item["key"] for item in found}
    return missing


def _check(port: int, database: Codes, queries: Codes, k: int) -> None:
    """The service answers as a plain scan does, or nothing is measured."""
    distances, rows = codes.search(queries, database, k)
    for place, code in enumerate(queries):
        body = json.dumps({"code": code.tobytes().hex(), "k": k}).encode()
        found = _ask(port, "/search", body)["results"]
        expected = [f"{row % 100:02d}/{row:08d}.jpg" for row in rows[place]]
        if [item["key"] for item in found] != expected or [
            item["distance"] for item in found
        ] != distances[place].tolist():
            raise DDHError("the service and a plain scan disagree")


# -- image queries -----------------------------------------------------------------------------


def image_queries(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Image queries through HTTP, and the same pictures through the encoder without it."""
    from ddh.hashers import DDH
    from ddh.images import ImageFolder

    pictures = folder / "pictures"
    pictures.mkdir()
    sample_photographs(pictures, settings["images"], settings["seed"])
    source: Any = ImageFolder(pictures)
    model = DDH(bits=settings["bits"], epochs=1, device="cpu").fit(source)
    model.save(folder / "bench.ddh")
    own = _encoder_rate(model, source)
    location = str(folder / "pictures.index")
    with ddh.index.open(location, bits=settings["bits"], model_id=model.model_id) as index:
        index.add(list(source.names), model.encode(source))
    requests = [_form(path.read_bytes()) for path in source.paths]
    with served(location, "--model", str(folder / "bench.ddh"), "--device", "cpu") as port:
        asyncio.run(load(port, requests[:16], 16, 60, once=True))
        measured = asyncio.run(load(port, requests, 16, 600, once=True))
    return {"network alone per second": round(own, 1), **measured.summary()}


def _encoder_rate(model: Any, source: Any) -> float:
    list(model.encode_images(source.take(range(16)), 16))
    started = time.perf_counter()
    list(model.encode_images(source, 16))
    return len(source) / (time.perf_counter() - started)


def _form(content: bytes) -> bytes:
    head = b'--bench\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
    body = head + content + b"\r\n--bench--\r\n"
    return post("/search", body, "multipart/form-data; boundary=bench")


# -- the service -------------------------------------------------------------------------------


@contextmanager
def served(location: str, *options: str) -> Iterator[int]:
    """A `ddh serve` process on a free port, stopped at the end."""
    command = [sys.executable, "-m", "ddh", "serve", location, "--port", "0", "--log", "errors"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+:(\d+)/", process.stdout.readline())
        if not found:
            raise DDHError("the service did not start")
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _ask(port: int, path: str, body: bytes) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def _text(document: dict[str, Any]) -> str:
    settings = document["settings"]
    lines = [
        f"{settings['rows']:,} codes of {settings['bits']} bits, k = {settings['k']}, "
        f"{settings['concurrency']} queries at once, {document['cores']} cores",
        f"{'':36}" + "".join(f"{column:>11}" for column in COLUMNS),
    ]
    for name in ROWS:
        if name in document:
            row = document[name]
            figures = "".join(f"{row[column]:>11,}" for column in COLUMNS)
            lines.append(f"{name:36}{figures}")
    missing = document["rows added"]["not found afterwards"]
    lines.append(f"rows added and not found afterwards: {missing}")
    if "image queries" in document:
        alone = document["image queries"]["network alone per second"]
        lines.append(f"the network alone: {alone} images a second")
    return "\n".join(lines)
