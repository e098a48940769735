"""Jobs on a real Ray cluster of two nodes into the real engines, with workers and nodes killed."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import ddh.index
from ddh._core.errors import DDHError, InputError
from ddh._core.jobs import read_jobs
from ddh.cli import cli
from ddh.cluster import (
    Cluster,
    IndexTarget,
    ModelFiles,
    ShardTarget,
    encode_on_cluster,
    open_place,
    scheduler,
)
from ddh.cluster.batches import Batch
from ddh.cluster.connection import connect
from ddh.cluster.neighbours import labels_on_cluster, lists_on_cluster
from ddh.cluster.pictures import Picture
from ddh.cluster.scheduler import SLOTS, Done, Scheduler
from ddh.cluster.writing import Outcome
from ddh.neighbours import approximate_labels, cosine_space
from ddh.neighbours.approximate import approximate_lists

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

        self.ray = RayCluster(
            initialize_head=True, head_node_args={**NODE, "_system_config": HEALTH}
        )
        self.other = self.ray.add_node(**NODE)
        self.address: str = self.ray.address

    def kill_worker(self, *nodes: Any) -> None:
        """The process of an encoder on one of the nodes."""
        for node in nodes:
            raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
            for process in raylet.children(recursive=True):
                if "".join(process.cmdline()).startswith("ray::Encoder"):
                    process.kill()
                    return
        raise AssertionError("no encoder runs there")

    def kill_head_worker(self) -> None:
        self.kill_worker(self.ray.head_node)

    def kill_a_worker(self) -> None:
        self.kill_worker(self.ray.head_node, self.other)

    def kill_other_node(self) -> None:
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


def new_index(location: str, model: ModelFiles) -> str:
    ddh.index.open(location, bits=model.bits, model_id=model.id).close()
    return location


class Struck(IndexTarget):
    """An index; when a certain batch is done something happens, in the middle of the job."""

    def __init__(self, location: str, model: ModelFiles, blows: dict[int, Callable[[], None]]):
        super().__init__(location, model.bits, model.id)
        self.blows, self.finished = blows, 0

    def done(self, batch: Batch, outcome: Outcome) -> None:
        super().done(batch, outcome)
        self.finished += 1
        self.blows.get(self.finished, lambda: None)()


def run(*arguments: Any) -> dict[str, Any]:
    """A command's JSON document, which must be all of its output."""
    done = CliRunner().invoke(cli, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


# -- into the engines, with deaths ----------------------------------------------------------------


def test_every_row_is_there_once_though_a_worker_and_a_node_die(
    two_nodes, photos, model, expected, postgres
):
    files = ModelFiles.read(model)
    blows = {4: two_nodes.kill_head_worker, 12: two_nodes.kill_other_node}
    target = Struck(new_index(f"{postgres}#killed", files), files, blows)
    report = encode_on_cluster(open_place(str(photos)), files, target, job_on(two_nodes))
    assert report.lost >= 2
    assert report.rows == len(expected)
    assert not report.skipped
    rows = rows_of(f"{postgres}#killed")
    assert len(rows) == len(expected)
    assert dict(rows) == expected


def test_milvus_is_written_by_the_workers_each_row_once_though_one_dies(
    two_nodes, photos, model, expected, milvus
):
    files = ModelFiles.read(model)
    target = Struck(new_index(f"{milvus}#killed", files), files, {4: two_nodes.kill_a_worker})
    job = job_on(two_nodes, actors=1)
    report = encode_on_cluster(open_place(f"file://{photos}/dark", "dark"), files, target, job)
    assert report.lost == 1
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
    two_nodes, photos, model, expected, tmp_path
):
    """From a zip archive, which only fsspec can list and read, into Parquet shards."""
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for file in (photos / "dark").rglob("*.png"):
            archive.write(file, file.relative_to(photos))
        archive.writestr("dark/broken.png", b"no picture")
    source, codes = f"zip://::file://{tmp_path}/photos.zip", tmp_path / "codes"
    job = ["encode", source, "-m", str(model), "-o", str(codes), "--ray", two_nodes.address]
    job += ["--batch-size", "32", "--actors", "1"]
    for blow, status, shards in ((signal.SIGKILL, -9, 5), (signal.SIGINT, 130, 15)):
        driver = subprocess.Popen([sys.executable, "-m", "ddh", *job], stderr=subprocess.DEVNULL)
        wait_until(lambda: len(list(codes.glob("codes-*"))) >= shards or driver.poll() is not None)  # noqa: B023
        driver.send_signal(blow)
        assert driver.wait(60) == status
    done = run(*job)
    assert done["images"] == len(expected) // 2
    assert done["encoded"] <= done["images"] - 10 * 16, "what was done is not done again"
    assert [entry["name"] for entry in done["skipped"]] == ["dark/broken.png"]
    rows = shard_rows(codes)
    assert len(rows) == len(expected) // 2
    assert dict(rows).items() <= expected.items()
    assert len(list(codes.glob("_manifest-*"))) == 1


def wait_until(happened: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_shards_of_another_job_are_refused(photos, model, tmp_path):
    files = ModelFiles.read(model)
    target = ShardTarget(str(tmp_path), "s3://one", files.bits, files.id)
    target.done(Batch([Picture("a.png", "a.png", 1, 1)]), Outcome())
    target.close()
    with pytest.raises(InputError, match="another job"):
        ShardTarget(str(tmp_path), "s3://two", files.bits, files.id)


# -- the scheduler alone, with workers that do as they are told -----------------------------------


def obedient_class() -> type:
    """A class that travels to the workers as it is, since they cannot import this file."""

    class Obedient:
        """A worker whose pictures say what it does."""

        def ready(self) -> None:
            pass

        def encode(self, batch_id: str, pictures: list[Picture]) -> Outcome:
            for picture in pictures:
                if picture.key == "kill":
                    os._exit(1)
                if picture.key == "refuse":
                    raise InputError("not this one")
                if picture.key == "fail twice":
                    attempts = len(list(Path(picture.path).iterdir()))
                    if attempts < 2:
                        (Path(picture.path) / str(attempts)).touch()
                        raise OSError("the disk is tired")
            return Outcome(skipped=[{"name": picture.key, "reason": ""} for picture in pictures])

    return Obedient


def batch_of(*keys: str, path: str = "") -> Batch:
    return Batch([Picture(key, path, 1, 1) for key in keys])


@pytest.fixture
def obedient(two_nodes: TwoNodes) -> Iterator[Callable[..., Iterator[Any]]]:
    with connect(two_nodes.address) as ray:
        remote = ray.remote(obedient_class()).options(num_cpus=0, max_concurrency=SLOTS)

        def start() -> tuple[Any, Any]:
            actor = remote.remote()
            return actor, actor.ready.remote()

        yield lambda batches, workers=2: Scheduler(ray, start, workers).run(batches)


def test_no_more_batches_are_taken_than_the_bound(obedient):
    taken, done, most = 0, 0, 0

    def batches() -> Iterator[Batch]:
        nonlocal taken, most
        for number in range(50):
            taken += 1
            most = max(most, taken - done)
            yield batch_of(f"{number}")

    for result in obedient(batches()):
        assert isinstance(result, Done)
        done += 1
    assert done == 50
    assert most == 2 * SLOTS


def test_a_picture_that_kills_its_workers_is_found_and_left_out(obedient, monkeypatch):
    monkeypatch.setattr(scheduler, "MOST_DEATHS", 2)
    keys = [["a", "kill"], ["b", "c"], ["d"]]
    results = list(obedient(batch_of(*names) for names in keys))
    skipped = [entry for result in results if isinstance(result, Done)
               for entry in result.outcome.skipped]  # fmt: skip
    assert sorted(entry["name"] for entry in skipped) == [*"abcd", "kill"]
    assert [entry["name"] for entry in skipped if "ended" in entry["reason"]] == ["kill"]


def test_a_batch_that_fails_is_tried_again_and_then_stops_the_job(obedient, tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "FIRST_PAUSE_S", 0.05)
    (result,) = obedient(iter([batch_of("fail twice", path=str(tmp_path))]))
    assert result.batch.errors == 2
    with pytest.raises(InputError, match="not this one"):
        list(obedient(iter([batch_of("refuse")])))
    with pytest.raises(DDHError, match=r"from fail twice on failed 4 times: .*No such file"):
        list(obedient(iter([batch_of("fail twice", path=str(tmp_path / "gone"))])))


# -- labels ---------------------------------------------------------------------------------------


def test_labels_of_a_cluster_are_those_of_one_machine(two_nodes, tmp_path):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 16))[rng.integers(0, 40, 3000)] + rng.normal(size=(3000, 16))
    np.save(tmp_path / "features.npy", features.astype(np.float32))
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    with connect(two_nodes.address):
        S, report = labels_on_cluster(
            tmp_path / "features.npy", 10, 4,
            address=two_nodes.address, folder=tmp_path / "work", centre=True,
        )  # fmt: skip
        found = lists_on_cluster(
            tmp_path / "features.npy", 10, address=two_nodes.address, folder=tmp_path / "work",
            centre=True, shard_rows=700,
        )  # fmt: skip
    here = approximate_lists(cosine_space(mapped, centre=True), 10)
    assert np.array_equal(found.lists, here.lists)
    assert (found.recall, found.index) == (here.recall, here.index)
    expected, expected_report = approximate_labels(mapped, 10, 4, centre=True)
    assert (expected != S).nnz == 0
    assert report.label_recall == expected_report.label_recall
