"""`ddh bench chaos`: kill -9 at random moments, full disks, few descriptors and floods.

Afterwards every acknowledged row must be there, no half row, and each index, model, run and service
must be usable. The moments are random from `--seed`; what runs at a moment is up to the machine.
"""

import http.client
import json
import multiprocessing
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

import ddh.index
from ddh._core.errors import DDHError, InputError
from ddh._core.output import emit, json_option, quiet_option
from ddh._core.progress import bar
from ddh.bench.options import seed_option
from ddh.bench.results import table_of
from ddh.index.check import check

IMAGES = 16
ROUND = 25  # kills of one index, then a new one
PATIENCE = 400.0  # seconds, on a machine that others use
KILLED = -9

# Kills of each kind in a hundred: cheap ones often, training and services seldom.
SHARES = {
    "index writes": 42, "compactions": 20, "model saves": 20, "services": 8, "index add": 3,
    "encode": 3, "fit": 2, "pretrain": 1, "cluster jobs": 1,
}  # fmt: skip
OTHERS = ("full disk", "few descriptors", "floods")


@dataclass
class Trial:
    """What was tried and what came of it."""

    what: str
    tried: int = 0
    at_work: int = 0  # kills in the middle of a write, or refusals for want of room
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)


@click.command(short_help="Kills, full disks, few descriptors, floods: what is lost?")
@click.option("--kills", default=100, help="Number of processes that are killed.")
@click.option("--only", help=f"Some of: {', '.join([*SHARES, *OTHERS])}; separated by commas.")
@seed_option
@json_option
@quiet_option
def chaos(kills: int, only: str | None, seed: int, as_json: bool) -> None:
    """Kill writers, compactions, services and training at random moments; fill the disk; run out
    of descriptors; flood a service. Exit code 1 if anything was lost or is unusable.

    \b
    ddh bench chaos                        100 kills, a few minutes
    ddh bench chaos --kills 1000           the table of docs/security.md
    ddh bench chaos --only "index writes,compactions"
    """
    plan = _plan(kills, only)
    done = []
    progress = bar("Chaos", total=sum(plan.values()), unit="trial")
    with tempfile.TemporaryDirectory() as scratch, _own_state(scratch), progress:
        for what, count in plan.items():
            trial = Trial(what)
            folder = Path(scratch) / what.replace(" ", "-")
            folder.mkdir()
            try:
                TRIALS[what](trial, folder, count, random.Random(f"{seed} {what}"), progress.update)
            except DDHError as error:
                trial.unusable.append(f"{what}: {error}")
            shutil.rmtree(folder, ignore_errors=True)
            done.append(trial)
    records = [asdict(trial) for trial in done]
    columns = {"what": "{what}", "tried": "{tried}", "hit at work": "{at_work}"}
    columns |= {"acknowledged": "{acknowledged:,}", "lost": "{lost}", "unusable": "{unusable}"}
    counts = [r | {"lost": len(r["lost"]), "unusable": len(r["unusable"])} for r in records]
    wrong = [line for trial in done for line in (*trial.lost, *trial.unusable)]
    table = table_of(f"{sum(t.tried for t in done)} trials, seed {seed}", counts, columns)
    emit({"seed": seed, "trials": records}, "\n".join([table.markdown(), *wrong]), as_json)
    if wrong:
        raise click.exceptions.Exit(1)


def _plan(kills: int, only: str | None) -> dict[str, int]:
    """How many trials of each kind."""
    chosen = [name.strip() for name in only.split(",")] if only else [*SHARES, *OTHERS]
    if unknown := set(chosen) - {*SHARES, *OTHERS}:
        raise InputError(f"there is no {', '.join(sorted(unknown))}: see --help")
    if kills < 1:
        raise InputError(f"the number of kills is positive, not {kills}")
    if find_spec("ray") is None:
        chosen = [name for name in chosen if name != "cluster jobs"]
    killed = {name: share for name, share in SHARES.items() if name in chosen}
    parts = {name: max(1, kills * n // sum(killed.values())) for name, n in killed.items()}
    if "cluster jobs" in parts:
        parts["cluster jobs"] = min(3, parts["cluster jobs"])  # each takes half a minute
    if killed:
        first = next(iter(killed))
        parts[first] += max(0, kills - sum(parts.values()))
    others = {"full disk": max(1, kills // 10), "few descriptors": max(1, kills // 10), "floods": 3}
    return parts | {name: count for name, count in others.items() if name in chosen}


@contextmanager
def _own_state(scratch: str) -> Iterator[None]:
    """Records of jobs and caches go to a folder of the bench."""
    kept = dict(os.environ)
    os.environ |= {"DDH_STATE": f"{scratch}/state", "DDH_CACHE": f"{scratch}/cache"}
    os.environ["PYTHONWARNINGS"] = "ignore"  # what killed processes have not given back
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= kept


# -- processes ---------------------------------------------------------------------------------


class Victim:
    """A process that runs a function of `ddh.bench.victims`, and what it has told."""

    def __init__(self, name: str, *arguments: Any) -> None:
        from ddh.bench import victims

        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["ddh.bench.victims"])
        self._told, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=getattr(victims, name), args=(theirs, *arguments))
        self._process.start()
        theirs.close()
        self.told: list[tuple[str, Any]] = []

    def ready(self) -> None:
        """Wait until it begins."""
        if not self._told.poll(PATIENCE):
            raise DDHError("a process does not start")
        with suppress(EOFError):
            self.told.append(self._told.recv())

    def kill(self, seconds: float) -> bool:
        """Kill it after a while; False where it had ended by itself."""
        self._process.join(seconds)
        self._process.kill()
        return self._end() == KILLED

    def wait(self) -> bool:
        """Whether it ends by itself, and well."""
        self._process.join(PATIENCE)
        self._process.kill()
        return self._end() == 0

    def _end(self) -> int | None:
        with suppress(EOFError, OSError):
            while True:
                self.told.append(self._told.recv())
        self._process.join()
        return self._process.exitcode

    def count(self, kind: str) -> int:
        return sum(said == kind for said, _ in self.told)


# -- rows --------------------------------------------------------------------------------------


class Rows:
    """What an index must hold: the version of each key that was acknowledged."""

    def __init__(self, folder: Path) -> None:
        from ddh.bench.victims import create_index

        self.folder = folder
        self.state: dict[str, int] = {}
        create_index(str(folder))

    def verify(self, trial: Trial, victim: Victim) -> None:
        """Compare the index with what the victim has told; its last write is there or not."""
        begun = None
        for said, what in victim.told:
            if said == "doing":
                begun = what
            elif said == "done":
                trial.acknowledged += what[2]
                self._apply(self.state, what)
                begun = None
        possible = [self.state, dict(self.state)]
        if begun is not None:
            self._apply(possible[1], begun)
        try:
            found = self._read()
        except DDHError as error:
            trial.unusable.append(str(error))
            return
        wanted = possible[1] if found.keys() == possible[1].keys() else possible[0]
        wrong = [key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)]
        if wrong and found != possible[0]:
            trial.lost += [f"{trial.what}: row {key}" for key in wrong[:5]]
        self.state = found
        if problems := check(self.folder).problems:
            trial.unusable.append(f"{trial.what}: {problems}")
        if len(list(self.folder.glob("*.pages"))) > 1:
            trial.unusable.append(f"{trial.what}: a page file is left behind")

    @staticmethod
    def _apply(state: dict[str, int], write: tuple[str, str, int, int]) -> None:
        from ddh.bench.victims import keys_of

        what, stem, count, version = write
        for key in keys_of(stem, count):
            if what == "delete":
                state.pop(key, None)
            else:
                state[key] = version

    def _read(self) -> dict[str, int]:
        """The rows that are whole, found by search as well."""
        from ddh.bench.victims import BITS, row_of

        with ddh.index.open(self.folder) as index:
            rows = list(index.items())
            features = index.features([row.key for row in rows]).view(np.uint8)
            found = {row.key: int(row.metadata["version"]) for row in rows}
            for row, stored in zip(rows, features, strict=True):
                if row.code.tobytes() + stored.tobytes() != row_of(row.key, found[row.key]):
                    raise DDHError(f"half a row: {row.key}")
            everything = index.search_radius(np.zeros((1, BITS // 8), np.uint8), BITS)[0]
            if {hit.key for hit in everything} != found.keys():
                raise DDHError("a search does not find all rows")
        return found


Update = Callable[[], Any]


def kill_writers(
    compactions: float,
    trial: Trial,
    folder: Path,
    count: int,
    rng: random.Random,
    update: Update,
) -> None:
    """Processes that write rows, each killed within a fifth of a second."""
    rows = None
    for number in range(count):
        if rows is None or number % ROUND == 0:
            rows = Rows(folder / str(number))
        victim = Victim("write_rows", str(rows.folder), rng.getrandbits(32), compactions)
        victim.ready()
        trial.tried += victim.kill(rng.uniform(0.0, 0.2))
        last = victim.told[-1][0]
        trial.at_work += last in (("compacting",) if compactions == 1 else ("doing", "compacting"))
        rows.verify(trial, victim)
        update()


def kill_saves(trial: Trial, folder: Path, count: int, rng: random.Random, update: Update) -> None:
    """Processes that save a model over another."""
    from ddh.bench.victims import model_arrays
    from ddh.hashers import storage

    for number in range(count):
        place = folder / str(number // ROUND)
        victim = Victim("save_models", str(place), number)
        victim.ready()
        trial.tried += victim.kill(rng.uniform(0.0, 0.1))
        trial.at_work += victim.told[-1][0] == "doing"
        trial.acknowledged += victim.count("done")
        try:
            if victim.count("done") or (place / storage.JSON_NAME).exists():
                _, arrays, _ = storage.read(place)
                if arrays["weights"].min() != arrays["weights"].max():
                    trial.lost.append(f"{trial.what}: a mixture of two models")
            storage.write(place, {"bits": 8}, model_arrays(0))
        except DDHError as error:
            trial.unusable.append(f"{trial.what}: {error}")
        update()


def refuse(
    victim_name: str, trial: Trial, folder: Path, count: int, rng: random.Random, update: Update
) -> None:
    """Processes that run out of room or descriptors, and go on with the same handle."""
    rows = Rows(folder / "0")
    for number in range(count):
        if number and number % ROUND == 0:
            rows = Rows(folder / str(number))
        victim = Victim(victim_name, str(rows.folder), rng.getrandbits(32))
        ended = victim.wait()
        trial.tried += 1
        trial.at_work += victim.count("doing") > victim.count("done")
        if not ended:
            trial.unusable.append(f"{trial.what}: the handle does not work afterwards")
        rows.verify(trial, victim)
        update()


# -- services ----------------------------------------------------------------------------------


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def request(port: int, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """Status and body of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@contextmanager
def service(folder: Path) -> Iterator[tuple[Victim, int]]:
    """A service that answers, killed at the end."""
    port = free_port()
    victim = Victim("serve", str(folder), port)
    deadline = time.monotonic() + PATIENCE
    try:
        while True:
            with suppress(OSError, http.client.HTTPException):
                if request(port, "GET", "/health")[0] == 200:
                    break
            if time.monotonic() > deadline:
                raise DDHError(f"a service of {folder} does not start")
            time.sleep(0.02)
        yield victim, port
    finally:
        victim.kill(0)


def kill_services(
    trial: Trial, folder: Path, count: int, rng: random.Random, update: Update
) -> None:
    """Services that get rows over HTTP; each row that was answered must be in the index."""
    place, known = folder / "index", dict[str, str]()
    with ddh.index.open(place, bits=32):
        pass
    for number in range(count):
        try:
            with service(place) as (victim, port):
                until = time.monotonic() + rng.uniform(0.0, 0.3)
                for row in range(10**6):
                    key, code = f"{number}-{row}", f"{rng.getrandbits(32):08x}"
                    if time.monotonic() > until:
                        break
                    if request(port, "POST", "/items", {"key": key, "code": code})[0] < 300:
                        known[key] = code
                        trial.acknowledged += 1
                with socket.create_connection(("127.0.0.1", port)) as cut:  # one more, unanswered
                    body = json.dumps({"key": f"{number}-cut", "code": "00000000"})
                    head = "POST /items HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                    head += f"application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                    cut.sendall((head + body).encode())
                    trial.tried += victim.kill(rng.uniform(0.0, 0.01))
                trial.at_work += 1
        except (DDHError, OSError) as error:
            trial.unusable.append(f"{trial.what}: {error}")
        with ddh.index.open(place) as index:
            found = {row.key: row.code.tobytes().hex() for row in index.items()}
        missing = [key for key, code in known.items() if found.get(key) != code]
        trial.lost += [f"{trial.what}: row {key}" for key in missing]
        known = {key: code for key, code in known.items() if key in found}
        update()
    if problems := check(place).problems:
        trial.unusable.append(f"{trial.what}: {problems}")


def flood(trial: Trial, folder: Path, count: int, rng: random.Random, update: Update) -> None:
    """Slow heads, endless heads and deep pages; the service answers others afterwards."""
    place = folder / "index"
    codes = np.random.default_rng(0).integers(0, 256, (20_000, 8), dtype=np.uint8)
    with ddh.index.open(place, bits=64) as index:
        index.add([str(i) for i in range(len(codes))], codes)
    floods = (_slow_heads, _endless_heads, _deep_pages)
    with service(place) as (_, port):
        for number in range(count):
            trial.tried += 1
            try:
                trial.at_work += floods[number % len(floods)](port)
                if request(port, "GET", "/health")[0] != 200:
                    raise DDHError("it is not healthy")
            except (DDHError, OSError, http.client.HTTPException) as error:
                name = floods[number % len(floods)].__name__.replace("_", " ").strip()
                trial.unusable.append(f"{trial.what}, {name}: {error}")
            update()


def _slow_heads(port: int) -> int:
    """Connections that never finish their request; how many were refused."""
    held = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(400)]
    refused = 0
    for connection in held:
        with suppress(OSError):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: local")
            connection.settimeout(0.001)
            refused += bool(connection.recv(100))
    for connection in held:
        connection.close()
    return int(refused > 0)


def _endless_heads(port: int) -> int:
    """Heads of 64 MB; whether all were cut off."""
    sent = 0
    for _ in range(8):
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        with connection, suppress(OSError):
            connection.sendall(b"GET /health HTTP/1.1\r\n")
            for _ in range(64):
                connection.sendall(b"a: b\r\n" * 170_000)
                sent += 1
    return int(sent < 8 * 64)


def _deep_pages(port: int) -> int:
    """Searches for the last rows, many at once; whether each got an answer or a refusal."""
    from concurrent.futures import ThreadPoolExecutor

    body = {"code": "0" * 16, "k": 1000, "offset": 19_000}
    with ThreadPoolExecutor(32) as clients:
        asked = [clients.submit(request, port, "POST", "/search", body) for _ in range(64)]
        return int(all(answer.result()[0] in (200, 422, 503) for answer in asked))


# -- commands ----------------------------------------------------------------------------------


def draw_pictures(folder: Path) -> Path:
    """A few pictures."""
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(IMAGES):
        blots = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        blots.resize((40, 40)).save(folder / f"{number:02d}.png")
    return folder


NETWORK = ("--backbone", "resnet18-tiny", "--weights", "random", "--device", "cpu")
FIT = ("--bits", "16", "--k1", "3", "--epochs", "3", *NETWORK)


def kill_commands(
    name: str, trial: Trial, folder: Path, count: int, rng: random.Random, update: Update
) -> None:
    """A command that is killed up to four times, resumed, and compared with one that was not."""
    photos, model = draw_pictures(folder / "photos"), str(folder / "model")
    arguments = {
        "fit": ["fit", str(photos), *FIT, "--size", "32", "-o"],
        "encode": ["encode", str(photos), "-m", model, "-o"],
        "index add": ["index", "add", str(photos), "--model", model, "--index"],
        "pretrain": ["pretrain", str(photos), *NETWORK, "--size", "16", "--epochs", "2",
                     "--batch-size", "8", "-o"],
        "cluster jobs": ["index", "add", str(photos), "--model", model, "--ray", "local",
                         "--actors", "1", "--index"],
    }[name]  # fmt: skip
    suffix = {"encode": ".npz", "pretrain": ".safetensors"}.get(name, "")
    resume = [] if name in ("index add", "cluster jobs") else ["--resume"]

    def run(out: Path, *more: str) -> Victim:
        victim = Victim("command", [*arguments, str(out), "--quiet", *more])
        victim.ready()
        return victim

    if name in ("encode", "index add", "cluster jobs"):
        fitted = Victim("command", ["fit", str(photos), *FIT, "--size", "32", "-o", model])
        if not fitted.wait():
            raise DDHError("a model for the trials cannot be fitted")
    whole, started = folder / f"whole{suffix}", time.monotonic()
    if not run(whole).wait():
        raise DDHError(f"ddh {name} does not work")
    seconds, expected = time.monotonic() - started, outcome(name, whole)
    left = count
    while left:
        out = folder / f"{left}{suffix}"
        for _ in range(min(left, rng.randint(1, 4))):
            victim = run(out, *resume)
            killed = victim.kill(rng.uniform(0.0, seconds))
            trial.tried += killed
            trial.at_work += killed and not victim.count("done")
            left -= 1
            update()
        ended = run(out, *resume).wait() if not out.is_file() else True
        if not ended and not (name == "fit" and (out / "model.json").exists()):
            trial.unusable.append(f"ddh {name} does not resume")
        elif outcome(name, out) != expected:
            trial.lost.append(f"ddh {name} ends with another result")
        trial.acknowledged += 1


def outcome(name: str, path: Path) -> Any:
    """What a command has made, to be compared."""
    if name == "fit":
        return ddh.load(path).model_id
    if name == "encode":
        with np.load(path) as saved:
            return saved["names"].tolist(), saved["codes"].tolist()
    if name == "pretrain":
        return path.read_bytes()
    with ddh.index.open(path, create=False) as index:
        return sorted((row.key, row.code.tobytes()) for row in index.items())


TRIALS: dict[str, Callable[..., None]] = {
    "index writes": partial(kill_writers, 0.1),
    "compactions": partial(kill_writers, 1.0),
    "model saves": kill_saves,
    "services": kill_services,
    **{name: partial(kill_commands, name) for name in ("index add", "encode", "fit", "pretrain")},
    "cluster jobs": partial(kill_commands, "cluster jobs"),
    "full disk": partial(refuse, "without_room"),
    "few descriptors": partial(refuse, "without_descriptors"),
    "floods": flood,
}
