"""Records of jobs: what a bar counts can be read by others, and nothing can harm the job."""

import json
import os
import signal
import subprocess
import sys
import time

import click
import pytest

from ddh._core import jobs
from ddh._core.progress import bar, track


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("DDH_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(jobs, "WRITTEN_EVERY", 0.0)
    return tmp_path / "state"


def test_a_bar_tells_its_job():
    with jobs.job("fit", "photos.ddh"):
        with bar("Training", total=40, unit="step") as progress:
            for step in range(20):
                progress.update(1)
                progress.set_postfix(loss=f"{1 / (step + 1):.4f}", workers=3, refresh=False)
                time.sleep(0.001)
        (running,) = jobs.read_jobs()
    assert running["state"] == "running"
    assert (running["kind"], running["title"]) == ("fit", "photos.ddh")
    assert (running["done"], running["total"], running["unit"]) == (20, 40, "step")
    assert running["message"] == "Training"
    assert 0 < running["seconds_left"] < 5
    (done,) = jobs.read_jobs()
    assert done["state"] == "done"
    assert done["seconds_left"] is None
    (loss,) = done["curves"]  # a count of workers is no curve
    assert loss["name"] == "loss"
    assert loss["x"] == list(range(1, 21))
    assert loss["y"][-1] == 0.05


def test_bars_without_a_job_write_nothing(state):
    with bar("Training", total=3) as progress:
        progress.update(3)
        progress.set_postfix(loss=1.0)
    assert list(track([1, 2], "Walk")) == [1, 2]
    assert not state.exists()


def test_track_counts_and_passes_everything_on():
    with jobs.job("index", "x"):
        assert list(track(range(7), "Walk", unit="row")) == list(range(7))
        (record,) = jobs.read_jobs()
    assert (record["done"], record["total"], record["message"]) == (7, 7, "Walk")


ENDS = [
    (ValueError("too small"), "failed"),
    (KeyboardInterrupt(), "stopped"),
    (click.Abort(), "stopped"),
]


@pytest.mark.parametrize(("error", "end"), ENDS)
def test_how_a_job_ended(error, end):
    with pytest.raises(type(error)), jobs.job("encode", "x"):
        raise error
    (record,) = jobs.read_jobs()
    assert record["state"] == end
    assert record["message"] == str(error)


def test_curves_are_thinned_and_keep_their_ends():
    curve = jobs.Curve()
    for x in range(12_345):
        curve.add(x, -x)
    found = curve.record("loss")
    assert 200 <= len(found["x"]) <= jobs.MAX_POINTS
    assert (found["x"][0], found["x"][-1]) == (0, 12_344)
    assert found["x"] == sorted(found["x"])
    assert found["y"] == [-x for x in found["x"]]


def test_writing_is_throttled(monkeypatch):
    monkeypatch.setattr(jobs, "WRITTEN_EVERY", 1e9)
    with jobs.job("fit", "x"), bar("Training", total=1000) as progress:
        for _ in range(1000):
            progress.update(1)
        assert jobs.read_jobs()[0]["done"] == 0  # what was written at the start
    assert jobs.read_jobs()[0]["done"] == 1000


def test_a_killed_job_is_lost():
    script = (
        "import time\nfrom ddh._core import jobs\n"
        "with jobs.job('fit', 'x'):\n  print('up', flush=True)\n  time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    assert jobs.read_jobs()[0]["state"] == "running"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert jobs.read_jobs()[0]["state"] == "lost"


def test_a_job_in_the_background_of_a_script_is_stopped():
    script = (
        "import signal, time\nfrom ddh._core import jobs\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # as a shell has it after `&`
        "with jobs.job('index', 'x'):\n  print('up', flush=True)\n  time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"up\n"
            assert jobs.stop_job(jobs.read_jobs()[0]["id"])
            process.wait(60)
        finally:
            process.kill()
    assert jobs.read_jobs()[0]["state"] == "stopped"


@pytest.fixture
def sigterm():
    """As it is in a new process: Ray, in another test, leaves a handler behind."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
def test_sigterm_is_ctrl_c_while_a_job_runs():
    with jobs.job("fit", "outer"):
        with jobs.job("fit", "inner"):
            assert signal.getsignal(signal.SIGTERM) == signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) == signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.usefixtures("sigterm")
def test_sigterm_is_ctrl_c_where_ray_handles_it():
    with pytest.raises(KeyboardInterrupt), jobs.job("encode", "x"):
        sys.exit(signal.SIGTERM)  # as its handler does, which replaces ours in ray.init
    assert jobs.read_jobs()[0]["state"] == "stopped"


@pytest.mark.usefixtures("sigterm")
def test_another_handler_of_sigterm_is_left_alone():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with jobs.job("fit", "x"):
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_another_process_with_the_same_number_is_not_the_job(state):
    with jobs.job("fit", "x"):
        (path,) = (state / "jobs").glob("*.json")
        record = json.loads(path.read_text())
        record["process"]["born"] = 1
        path.write_text(json.dumps(record))
        assert jobs.read_jobs()[0]["state"] == "lost"


def test_a_job_of_another_machine_is_lost_without_news(state):
    with jobs.job("fit", "x"):
        (path,) = (state / "jobs").glob("*.json")
        record = json.loads(path.read_text())
        record["process"] |= {"host": "elsewhere", "pid": 2**22 + 5}
        path.write_text(json.dumps(record))
        assert jobs.read_jobs()[0]["state"] == "running"
        record["updated"] = "2020-01-01T00:00:00+00:00"
        path.write_text(json.dumps(record))
        assert jobs.read_jobs()[0]["state"] == "lost"


def test_a_folder_that_cannot_be_written_harms_nothing(state):
    state.write_text("a file where the folder should be")
    with jobs.job("fit", "x"), bar("Training", total=2) as progress:
        progress.update(2)
    assert jobs.read_jobs() == []


def test_broken_records_are_passed_over(state):
    with jobs.job("fit", "good"):
        pass
    folder = state / "jobs"
    for number, text in enumerate(["", "{", "[]", "{}", '{"state": "running"}', "null", "\udcff"]):
        (folder / f"bad-{number}.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    (folder / "large.json").write_bytes(b" " * (jobs.MAX_RECORD_BYTES + 1))
    assert [record["title"] for record in jobs.read_jobs()] == ["good"]


def test_old_records_are_dropped(state, monkeypatch):
    monkeypatch.setattr(jobs, "MAX_RECORDS", 3)
    for number in range(6):
        with jobs.job("fit", str(number)):
            pass
    assert len(list((state / "jobs").iterdir())) <= 4
    assert jobs.read_jobs()[0]["title"] == "5"


def test_a_recorded_command_is_a_job_named_after_its_argument(monkeypatch):
    @jobs.recorded("index", "location")
    def command(location, folder):
        assert jobs.read_jobs()[0]["state"] == "running"
        return folder

    assert command(location="postgresql://user:secret@host/photos#cats", folder=1) == 1
    assert jobs.read_jobs()[0]["title"] == "photos#cats"
    assert command.__name__ == "command"
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(AssertionError):
        command(location="milvus://user:secret@host", folder=1)  # no job of its own runs
    assert len(jobs.read_jobs()) == 1


def test_a_child_process_does_not_write_the_record(state):
    with jobs.job("fit", "x") as job:
        before = {path: path.read_bytes() for path in (state / "jobs").iterdir()}
        child = os.fork()
        if child == 0:
            job.message = "from the child"
            job.write(now=True)
            os._exit(0)
        os.waitpid(child, 0)
        assert {path: path.read_bytes() for path in (state / "jobs").iterdir()} == before


def test_encode_is_a_job(tmp_path):
    """A real command, run to its end and run into an error."""
    import numpy as np
    from click.testing import CliRunner

    from ddh.cli import cli
    from ddh.hashers import LSH

    rng = np.random.default_rng(0)
    features = rng.normal(size=(20, 8))
    np.save(tmp_path / "x.npy", features)
    LSH(16).fit(features).save(tmp_path / "m.ddh")
    command = ["encode", str(tmp_path / "x.npy"), "-m", str(tmp_path / "m.ddh"), "-o"]
    assert CliRunner().invoke(cli, [*command, str(tmp_path / "codes.npz")]).exit_code == 0
    assert CliRunner().invoke(cli, [*command, str(tmp_path / "codes.txt")]).exit_code != 0
    failed, done = jobs.read_jobs()
    assert (done["kind"], done["title"], done["state"]) == ("encode", "codes.npz", "done")
    assert (failed["title"], failed["state"]) == ("codes.txt", "failed")
    assert ".npz or .csv" in failed["message"]
