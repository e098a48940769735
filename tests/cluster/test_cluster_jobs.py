"""Jobs on a real Ray cluster of two nodes into the real engines, with workers and nodes killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from PIL import Image

import ddh.index
from ddh._core.errors import DDHError
from ddh._core.jobs import read_jobs
from ddh.cli import cli
from ddh.cluster import (
    Cluster,
    ImageLocation,
    IndexTarget,
    ModelFiles,
    encode_on_cluster,
    pipeline,
)
from ddh.cluster.batches import Batch, Outcome
from ddh.index import Written

pytestmark = pytest.mark.timeout(900)  # starting workers takes long where others work too

BITS = 48
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
# A dead node is noticed after five seconds; a slow one is left alone.
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000,
          "health_check_timeout_ms": 10000, "health_check_failure_threshold": 5}  # fmt: skip


class TwoNodes:
    """A cluster of a head and another node, one CPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        head = {**NODE, "_system_config": HEALTH}
        try:
            self.ray = RayCluster(initialize_head=True, head_node_args=head)
        except Exception:  # Ray waits for 30 s, which a loaded machine may need
            self.ray = RayCluster(initialize_head=True, head_node_args=head)
        self.other = self.ray.add_node(**NODE)
        self.address: str = self.ray.address

    def worker_at_work(self, gate: "Gate", *nodes: Any) -> psutil.Process:
        """An encoder on one of the nodes, in the middle of a batch."""
        raylets = [psutil.Process(n.all_processes["raylet"][0].process.pid) for n in nodes]
        wait_until(lambda: any(gate.held(raylet) for raylet in raylets))
        return next(worker for raylet in raylets for worker in gate.held(raylet))

    def kill_head_worker(self, gate: "Gate") -> None:
        self.worker_at_work(gate, self.ray.head_node).kill()

    def kill_a_worker(self, gate: "Gate") -> None:
        self.worker_at_work(gate, self.ray.head_node, self.other).kill()

    def kill_other_node(self, gate: "Gate") -> None:
        self.worker_at_work(gate, self.other)
        self.ray.remove_node(self.other, allow_graceful=False)

    def restore(self) -> None:
        if self.other not in self.ray.worker_nodes:
            self.other = self.ray.add_node(**NODE)


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    """One cluster for all tests, with Ray's own authentication but no token in the home folder."""
    cluster = TwoNodes()
    yield cluster
    cluster.ray.shutdown()


@pytest.fixture
def two_nodes(nodes: TwoNodes) -> TwoNodes:
    nodes.restore()
    return nodes


def job_on(nodes: TwoNodes, **options: Any) -> Cluster:
    return Cluster(nodes.address, **{"batch_size": 128, **options})


def rows_of(location: str) -> list[tuple[str, bytes]]:
    try:
        opened = ddh.index.open(location, create=False)
    except DDHError:  # Milvus Lite sends a channel away that was silent for long; a new one is fine
        opened = ddh.index.open(location, create=False)
    with opened as index:
        return [(row.key, row.code.tobytes()) for row in index.items()]


def new_index(location: str | Path, model: ModelFiles) -> str:
    ddh.index.open(location, bits=model.bits, model_id=model.id).close()
    return str(location)


class Gate:
    """Holds the workers whose pictures come at or after a key, until it is opened."""

    def __init__(self, folder: Path, key: str):
        self.folder, self.key = folder, key

    def before(self, location: str, prefix: str = "") -> ImageLocation:
        folder, key = self.folder, self.key

        class Held(ImageLocation):  # a local class travels to the workers as it is
            def open(self, files: Any) -> Any:
                if files[-1].key >= key:
                    (folder / str(os.getpid())).touch()
                    while not (folder / "open").exists():
                        time.sleep(0.02)
                return super().open(files)

        return Held(location, prefix)

    def held(self, raylet: psutil.Process) -> list[psutil.Process]:
        """The workers of a node that wait here."""
        pids = {file.name for file in self.folder.iterdir()}
        return [worker for worker in raylet.children(recursive=True) if str(worker.pid) in pids]

    def open(self) -> None:
        (self.folder / "open").touch()


class Struck(IndexTarget):
    """An index; while certain batches are written something happens to the workers."""

    def __init__(self, location: str, gate: Gate, blows: dict[int, Callable[[Gate], None]]):
        super().__init__(ddh.index.open(location, create=False))
        self.gate, self.blows, self.finished = gate, blows, 0

    def write(self, batch: Batch, outcome: Outcome) -> Written:
        written = super().write(batch, outcome)
        self.finished += 1
        if blow := self.blows.pop(self.finished, None):
            blow(self.gate)
            if not self.blows:
                self.gate.open()
        return written


def run(*arguments: Any) -> dict[str, Any]:
    """A command's JSON document, which must be all of its output."""
    done = CliRunner().invoke(cli, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


# -- into the engines, with deaths ----------------------------------------------------------------


def test_every_row_is_there_once_though_a_worker_and_a_node_die(
    two_nodes, photos, model, expected, postgres, tmp_path
):
    files, gate = ModelFiles.read(model), Gate(tmp_path, "light")
    blows = {4: two_nodes.kill_head_worker, 12: two_nodes.kill_other_node}
    target = Struck(new_index(f"{postgres}#killed", files), gate, blows)
    location = gate.before(str(photos))
    report = encode_on_cluster(location, files, target, job_on(two_nodes))
    assert report.retried > 0
    assert report.rows == len(expected)
    assert not report.skipped
    rows = rows_of(f"{postgres}#killed")
    assert len(rows) == len(expected)
    assert dict(rows) == expected


def test_milvus_has_each_row_once_though_a_worker_dies(
    two_nodes, photos, model, expected, milvus, tmp_path
):
    files, gate = ModelFiles.read(model), Gate(tmp_path, "dark/5")
    target = Struck(new_index(f"{milvus}#killed", files), gate, {4: two_nodes.kill_a_worker})
    location = gate.before(f"file://{photos}/dark", "dark")
    report = encode_on_cluster(location, files, target, job_on(two_nodes, actors=1))
    assert report.retried > 0
    rows = rows_of(f"{milvus}#killed")
    assert len(rows) == report.rows == len(expected) // 2
    assert dict(rows).items() <= expected.items()


def test_the_local_engine_gets_the_rows_that_it_gets_without_ray(
    two_nodes, some_photos, model, tmp_path, monkeypatch
):
    monkeypatch.setenv("DDH_STATE", str(tmp_path / "state"))
    (some_photos / "one" / "broken.png").write_bytes(b"no picture")
    (some_photos / "two" / "empty.jpg").touch()
    add = ("index", "add", some_photos, "--model", model, "--index")
    ray = ("--ray", two_nodes.address, "--batch-size", 64, "--actors", 1)
    alone = run(*add, tmp_path / "alone.index")
    with_ray = run(*add, tmp_path / "ray.index", *ray)
    assert with_ray["new"] == alone["new"] == 2 + len(list(some_photos.rglob("*.png"))) - 3
    record = read_jobs()[0]
    assert record["state"] == "done"
    assert record["done"] == record["total"] == with_ray["new"] + 2
    by_name = sorted(with_ray["skipped"], key=lambda entry: entry["name"])
    assert by_name == alone["skipped"]
    assert [entry["name"] for entry in by_name] == ["one/broken.png", "two/empty.jpg"]
    assert whole_rows(tmp_path / "ray.index") == whole_rows(tmp_path / "alone.index")

    (some_photos / "one" / "broken.png").unlink()
    (some_photos / "two" / "empty.jpg").unlink()
    changed = next((some_photos / "two").iterdir())
    changed.write_bytes(next((some_photos / "one").iterdir()).read_bytes())
    os.utime(changed, (1, 1))
    again = run(*add, tmp_path / "ray.index", *ray)
    assert (again["new"], again["changed"], again["skipped"]) == (0, 1, [])
    nothing = run(*add, tmp_path / "ray.index", *ray)
    assert nothing["workers"] == 0, "nothing to do starts no worker"
    assert run(*add, tmp_path / "ray.index")["unchanged"] == nothing["unchanged"]


def whole_rows(location: Path) -> dict[str, tuple]:
    with ddh.index.open(location, create=False) as index:
        return {row.key: (row.code.tobytes(), row.path, row.stamp) for row in index.items()}


# -- Parquet shards, and a driver that dies -------------------------------------------------------


def shard_rows(folder: Path) -> list[tuple[str, bytes]]:
    table = pyarrow.parquet.read_table(folder)
    assert table.schema.metadata[b"ddh.bit_order"] == b"big"
    return list(zip(table["key"].to_pylist(), table["code"].to_pylist(), strict=True))


def test_a_job_goes_on_after_its_driver_was_killed_and_after_ctrl_c(
    two_nodes, some_photos, model, expected, tmp_path
):
    """Into Parquet shards; large pictures, listed last, keep the job from ending too early."""
    (some_photos / "two" / "broken.png").write_bytes(b"no picture")
    (some_photos / "zzz").mkdir()
    Image.new("RGB", (4000, 4000)).save(some_photos / "zzz" / "large.png")
    for i in range(63):
        shutil.copy(some_photos / "zzz" / "large.png", some_photos / "zzz" / f"large {i}.png")
    images, codes = len(list(some_photos.rglob("[0-9]*.png"))), tmp_path / "codes"
    job = ["encode", str(some_photos), "-m", str(model), "-o", str(codes)]
    job += ["--ray", two_nodes.address, "--batch-size", "32", "--actors", "1"]
    for blow, status, shards in ((signal.SIGKILL, -9, 3), (signal.SIGINT, 130, 6)):
        driver = subprocess.Popen([sys.executable, "-m", "ddh", *job], stderr=subprocess.DEVNULL)
        wait_until(lambda: len(list(codes.glob("codes-*"))) >= shards or driver.poll() is not None)  # noqa: B023
        driver.send_signal(blow)
        assert driver.wait(120) == status
    shutil.rmtree(some_photos / "zzz")
    done = run(*job)
    assert done["images"] == images
    assert done["encoded"] <= images - 6 * 16, "what was done is not done again"
    assert [entry["name"] for entry in done["skipped"]] == ["two/broken.png"]
    rows = shard_rows(codes)
    assert len(rows) == len(dict(rows)) == images
    assert dict(rows).items() <= by_new_name(expected).items()


def by_new_name(expected: dict[str, bytes]) -> dict[str, bytes]:
    """The codes of `some_photos`."""
    return {key.replace("dark/1", "one").replace("dark/2", "two"): code
            for key, code in expected.items()}  # fmt: skip


def wait_until(happened: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


# -- a picture that ends its workers --------------------------------------------------------------


def deadly(folder: Path) -> ImageLocation:
    """A folder with pictures whose readers die; the class travels to the workers as it is."""

    class Deadly(ImageLocation):
        def open(self, files: Any) -> Any:
            if any("deadly" in file.key for file in files):
                os._exit(1)
            return super().open(files)

    return Deadly(str(folder), "")


def test_a_picture_that_kills_its_workers_is_found_and_left_out(
    two_nodes, some_photos, model, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(pipeline, "ATTEMPTS", 1)  # starting workers takes long
    first = next((some_photos / "one").iterdir())
    (some_photos / "one" / "deadly.png").write_bytes(first.read_bytes())
    files, location = (
        ModelFiles.read(model),
        new_index(tmp_path / "a.index", ModelFiles.read(model)),
    )
    target = IndexTarget(ddh.index.open(location))
    job = job_on(two_nodes, batch_size=16)
    report = encode_on_cluster(deadly(some_photos), files, target, job)
    assert [entry["name"] for entry in report.skipped] == ["one/deadly.png"]
    assert "workers ended while reading it" in report.skipped[0]["reason"]
    names = {f"{folder}/{file.name}" for folder in ("one", "two")
             for file in (some_photos / folder).iterdir()}  # fmt: skip
    rows = dict(rows_of(location))
    assert rows.keys() == names - {"one/deadly.png"}
    assert rows.items() <= by_new_name(expected).items()
