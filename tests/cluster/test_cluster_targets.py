"""What is there already and what is left, the manifest, the choice of workers, and the commands."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import ddh.index
from ddh._core.errors import DDHError, InputError, MissingDependency, ModelError
from ddh._core.progress import bar
from ddh.cli import cli
from ddh.cluster import (
    Cluster,
    ImageLocation,
    IndexTarget,
    ModelFiles,
    Report,
    ShardTarget,
    bind_url,
    encoder,
    pipeline,
)
from ddh.cluster.batches import Batch, ImageFile, Outcome, cut
from ddh.cluster.encoder import Encoder
from ddh.cluster.pipeline import connect
from ddh.index import FileStamp, Row, Written

BITS = 12


def pictures(count: int) -> list[ImageFile]:
    return [ImageFile(f"{i:03d}.png", "", 1, 1) for i in range(count)]


def encoded(batch: Batch) -> Outcome:
    """Codes that tell the pictures apart."""
    rows = [
        Row(
            file.key, np.array([int(file.key[:3]), 0], np.uint8), file.key,
            FileStamp(file.mtime_ns, file.size, "0"),
        )
        for file in batch.files
    ]  # fmt: skip
    return Outcome(batch.id, rows=rows)


def shards(location: str, source: str = "photos") -> ShardTarget:
    return ShardTarget(location, source, BITS, "some-model")


def keys(folder: Path) -> list[str]:
    return sorted(pyarrow.parquet.read_table(folder)["key"].to_pylist())


def fill(target: ShardTarget, batches: list[Batch]) -> Report:
    """A run of the job without workers; what was found is in the report as unchanged."""
    report = Report()
    for batch in batches:
        left = target.plan(batch, report)
        if left is not None:
            report.new += target.write(left, encoded(left)).added
    return report


def test_shards_hold_the_rows_and_say_whose_they_are(tmp_path):
    target = shards(str(tmp_path / "codes"))
    fill(target, list(cut(pictures(100), 16)))
    target.finish()
    table = pyarrow.parquet.read_table(tmp_path / "codes").sort_by("key")
    assert table.column_names == ["key", "code", "path", "metadata"]
    assert table["code"].to_pylist() == [bytes([i, 0]) for i in range(100)]
    assert table["path"].equals(table["key"])
    facts = {"ddh.bits": "12", "ddh.bit_order": "big", "ddh.model_id": "some-model"}
    assert (
        facts.items() <= {k.decode(): v.decode() for k, v in table.schema.metadata.items()}.items()
    )


def test_a_second_run_does_what_is_left_and_clears_what_is_gone(tmp_path):
    batches = list(cut(pictures(100), 16))
    first = shards(str(tmp_path))
    fill(first, batches[:3])
    done = sum(map(len, batches[:3]))
    second = shards(str(tmp_path))
    report = fill(second, batches)
    assert (report.unchanged, report.new) == (done, 100 - done)
    second.finish()
    assert keys(tmp_path) == [p.key for p in pictures(100)]

    (tmp_path / ".codes-left-by-a-killed-writer").touch()
    third = shards(str(tmp_path))
    assert fill(third, list(cut(pictures(50), 16))).rows == 50
    third.finish()
    assert keys(tmp_path) == [p.key for p in pictures(50)]
    assert all(file.suffix == ".parquet" for file in tmp_path.iterdir())


def test_a_shard_that_was_deleted_is_made_again(tmp_path):
    batches = list(cut(pictures(40), 16))
    target = shards(str(tmp_path))
    fill(target, batches)
    next(tmp_path.glob("codes-*")).unlink()
    again = shards(str(tmp_path))
    assert 0 < fill(again, batches).new < 40
    assert keys(tmp_path) == [p.key for p in pictures(40)]


def test_skipped_pictures_are_known_to_the_next_run(tmp_path):
    (batch,) = cut(pictures(8), 16)
    skipped = [{"name": "004.png", "reason": "odd \u2028 text"}]
    target = shards(str(tmp_path))
    outcome = encoded(Batch(batch.files[:4]))
    target.write(batch, Outcome(batch.id, rows=outcome.rows, skipped=skipped))
    again, report = shards(str(tmp_path)), Report()
    assert again.plan(batch, report) is None
    assert (report.unchanged, report.skipped) == (4, skipped)
    again.finish()
    assert keys(tmp_path) == [file.key for file in batch.files[:4]]


def test_shards_of_another_job_are_refused(tmp_path):
    (batch,) = cut(pictures(8), 16)
    target = shards(str(tmp_path), "s3://one")
    target.write(batch, encoded(batch))
    with pytest.raises(InputError, match="another job"):
        shards(str(tmp_path), "s3://two")
    with pytest.raises(InputError, match="another job"):
        ShardTarget(str(tmp_path), "s3://one", BITS, "other-model")


@pytest.mark.parametrize("where", ["memory://codes-of-a-test", "file://{}/codes"])
def test_shards_can_be_written_to_a_url(where, tmp_path):
    """Into an object store, and on a shared disk."""
    location, batches = where.format(tmp_path), list(cut(pictures(40), 16))
    fill(shards(location), batches[1:])
    again = shards(location)
    assert fill(again, batches).new == len(batches[0])
    again.finish()
    fs, root = fsspec.core.url_to_fs(location)
    files = fs.glob(f"{root}/*.parquet")
    found = [k for f in files for k in pyarrow.parquet.read_table(fs.open(f))["key"].to_pylist()]
    assert sorted(found) == [p.key for p in pictures(40)]
    fs.rm(root, recursive=True)


def test_an_index_keeps_metadata_and_knows_what_is_current(tmp_path):
    location = str(tmp_path / "a.index")
    ddh.index.open(location, bits=BITS, model_id="m").close()
    index = ddh.index.open(location)
    target = IndexTarget(index)
    (batch,) = cut(pictures(8), 16)
    target.write(batch, encoded(batch))
    row = index.get("003.png")
    index.upsert([row.key], [row.code], stamps=[row.stamp], metadata=[{"album": "best"}])
    changed = [p._replace(size=2) if p.key == "003.png" else p for p in pictures(9)]
    report = Report()
    left = target.plan(Batch(changed), report)
    assert [file.key for file in left.files] == ["003.png", "008.png"]
    assert report.unchanged == 7
    assert target.write(left, encoded(left)) == Written(1, 1)
    assert len(index) == 9
    assert index.get("003.png").metadata == {"album": "best"}
    index.close()


def test_the_pictures_of_a_url_stay_those_of_its_index(tmp_path):
    with ddh.index.open(tmp_path / "a.index", bits=BITS) as index:
        assert bind_url(index, "s3://bucket/photos/") == ""
        assert bind_url(index, "s3://bucket/photos/2024") == "2024"
        with pytest.raises(InputError, match="holds the pictures of s3://bucket/photos"):
            bind_url(index, "s3://bucket/photos-of-others")
        assert bind_url(index, "gs://new/photos", moved=True) == ""
        assert bind_url(index, "gs://new/photos/a/b") == "a/b"


def error_of(*job: Any, files: list[ImageFile]) -> Exception:
    outcome = Encoder(*job).encode(Batch(files))
    assert not outcome.rows
    assert outcome.error is not None
    return outcome.error


def test_a_worker_reports_what_cannot_work_on_its_node(some_photos, model, monkeypatch):
    monkeypatch.setattr(encoder, "FIRST_PAUSE_S", 0.001)
    sent, source, version = ModelFiles.read(model), ImageLocation(str(some_photos)), ddh.__version__
    listed = list(source.files())
    with pytest.raises(InputError, match="a node of the cluster has ddh"):
        raise error_of(sent, "cpu", source, "0.0", files=listed)
    elsewhere = ImageLocation(str(some_photos / "no"))
    with pytest.raises(InputError, match="is not there on the node"):
        raise error_of(sent, "cpu", elsewhere, version, files=listed)
    with pytest.raises(ModelError, match="it was sent as another"):
        raise error_of(sent._replace(id="another"), "cpu", source, version, files=listed)
    gone = [file._replace(path="/not/there/on/this/node.png") for file in listed]
    worker = Encoder(sent, "cpu", source, version)
    outcome = worker.encode(Batch([*listed[:5], gone[5]]))
    assert (len(outcome.rows), len(outcome.skipped)) == (5, 1)
    with pytest.raises(DDHError, match=r"failed 4 times: the node .* can open none of 3 files"):
        raise error_of(sent, "cpu", source, version, files=gone[:3])


def test_a_batch_that_fails_for_a_while_is_retried(some_photos, model, monkeypatch):
    monkeypatch.setattr(encoder, "FIRST_PAUSE_S", 0.001)
    source = ImageLocation(str(some_photos))
    open_files, failures = source.open, [OSError("the disk is tired"), OSError("still")]
    monkeypatch.setattr(
        source, "open", lambda files: _raise(failures.pop()) if failures else open_files(files)
    )
    worker = Encoder(ModelFiles.read(model), "cpu", source, ddh.__version__)
    outcome = worker.encode(Batch(list(source.files())[:3]))
    assert outcome.error is None
    assert len(outcome.rows) == 3


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("options", "available", "workers"),
    [
        ({}, {"CPU": 16.0}, (16, 0)),
        ({}, {"CPU": 16.0, "GPU": 4.0}, (4, 1)),
        ({"gpus_per_actor": 0.5}, {"CPU": 16.0, "GPU": 4.0}, (8, 0.5)),
        ({"gpus_per_actor": 0.0}, {"CPU": 16.0, "GPU": 4.0}, (16, 0)),
        ({"device": "cpu"}, {"CPU": 16.0, "GPU": 4.0}, (16, 0)),
        ({"actors": 3}, {"CPU": 16.0}, (3, 0)),
        ({"actors": 8, "gpus_per_actor": 1.0}, {"CPU": 2.0}, (8, 1)),  # a cluster that will grow
    ],
)
def test_workers_are_chosen_by_what_the_cluster_has(options, available, workers):
    assert Cluster("auto", **options).resources(available) == workers


def test_a_cluster_without_what_is_asked_for_is_refused():
    with pytest.raises(InputError, match="no GPU for a worker"):
        Cluster("auto", gpus_per_actor=1.0).resources({"CPU": 4.0})


def refused(match: str, *arguments: object) -> None:
    with pytest.raises(DDHError, match=match):
        CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)


def test_commands_refuse_what_they_cannot_do(tmp_path, photos, model):
    encode = ("encode", "s3://bucket/photos", "-m", model, "-o")
    refused("add --ray local", *encode, tmp_path / "a.npz")
    refused("folder of Parquet files", *encode, tmp_path / "a.npz", "--ray", "auto")
    refused("not the file", "encode", model / "model.json", *encode[2:], "codes", "--ray", "auto")
    refused("s3fs", *encode, tmp_path / "codes", "--ray", "auto")
    add = ("index", "add", photos / "dark" / "1", "-m", model, "-i", tmp_path / "a.index")
    refused("--prune", *add, "--ray", "auto", "--prune")
    refused("no Ray cluster to be reached", *add, "--ray", "127.0.0.1:1")


def test_ray_is_not_imported_without_the_option(tmp_path, model):
    (tmp_path / "broken.png").touch()
    add = ["index", "add", str(tmp_path), "-m", str(model), "-i", str(tmp_path / "a.index")]
    script = f"from ddh.cli import cli; cli({add}, standalone_mode=False)"
    script += "; import sys; assert 'ray' not in sys.modules and 'ddh.cluster' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_missing_ray_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r'pip install "ddh\[ray\]"'), connect("local"):
        pass


class FakeRay:
    """Ray's errors, without Ray."""

    class exceptions:
        class RayError(Exception):
            pass


def test_many_deadly_pictures_and_a_broken_pipeline_blame_nobody_else(tmp_path, monkeypatch):
    """Batches with a deadly picture do not come back; the first pipelines break on the way."""
    deadly = {f"{i:03d}.png" for i in range(5, 100, 8)}
    breaks = iter(range(2))

    def run_without_ray(driver, arguments):
        for done, batch in enumerate(arguments[0]):
            if done == 10 and next(breaks, None) is not None:
                raise FakeRay.exceptions.RayError("a node is gone")
            if not deadly & {file.key for file in batch.files}:
                yield replace(encoded(batch), worker="one")

    monkeypatch.setattr(pipeline._Driver, "_run", run_without_ray)
    target, report = shards(str(tmp_path)), Report()
    with bar("Encoding", total=None) as progress:
        driver = pipeline._Driver(FakeRay, (), 2, 0.0, target, report, progress)
        first, *others = cut([file for file in pictures(100) if file.key not in deadly], 4)
        driver.encode([first, *cut(pictures(100), 4), *others])
    assert {entry["name"] for entry in report.skipped} == deadly
    assert sorted(set(keys(tmp_path))) == [f.key for f in pictures(100) if f.key not in deadly]


def test_workers_that_never_start_are_an_error(tmp_path, monkeypatch):
    def broken(driver, arguments):
        raise FakeRay.exceptions.RayError("no module named ddh")
        yield

    monkeypatch.setattr(pipeline._Driver, "_run", broken)
    with bar("Encoding", total=None) as progress:
        target = shards(str(tmp_path))
        driver = pipeline._Driver(FakeRay, (), 2, 0.0, target, Report(), progress)
        with pytest.raises(DDHError, match="nothing gets done: no module named ddh"):
            driver.encode(list(cut(pictures(8), 4)))
