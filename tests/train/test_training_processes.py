"""Several processes learn what one learns; a killed one ends the job, which can be resumed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from processes_script import features, fits, outcome

import ddh
from ddh._core.errors import DDHError, InputError, ModelError
from ddh.train import checkpoint_io
from ddh.train.distributed import SINGLE, Processes, job
from ddh.train.linear import FILE

SCRIPT = Path(__file__).with_name("processes_script.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(*command: object) -> subprocess.Popen:
    return subprocess.Popen(
        [*TORCHRUN, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The folder in which two processes have left all that the script does."""
    folder = tmp_path_factory.mktemp("together")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | shared | {"RANK": rank, "OMP_NUM_THREADS": "1"},
        )
        for rank in "01"
    ]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    return folder


def test_loss_and_gradient_over_shards_equal_the_dense_formula(together):
    errors = json.loads((together / "errors.json").read_text())
    assert len(errors) == 4
    assert max(errors.values()) < 1e-9


@pytest.mark.filterwarnings("ignore:depth 'last stage' did not make the neighbours")
@pytest.mark.parametrize("number", range(len(fits())), ids=list(fits()))
def test_two_processes_learn_what_one_learns(together, number):
    curve, z = outcome(list(fits())[number], None)
    found = np.load(together / f"{number}.npz")
    np.testing.assert_allclose(found["curve"], curve, rtol=1e-5)
    np.testing.assert_allclose(found["z"], z, atol=1e-5)
    certain = np.abs(z) > 1e-5
    assert np.array_equal((found["z"] >= 0)[certain], (z >= 0)[certain])


def workers(process: subprocess.Popen) -> list[psutil.Process]:
    return [p for p in psutil.Process(process.pid).children() if "ddh" in p.cmdline()]


def test_a_killed_process_ends_the_job_and_resume_goes_on(tmp_path):
    X, _ = features()
    np.save(tmp_path / "X.npy", X)
    out = tmp_path / "model"
    command = ["-m", "ddh", "fit", tmp_path / "X.npy", "-o", out, "--bits", 12, "--epochs", 15]
    process = start(*command)
    work = tmp_path / "model.work"
    deadline = time.monotonic() + 100
    while not (work / "ddh-run" / FILE).exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers(process)[1].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - killed < 20
    assert process.returncode != 0
    assert errors.count("another process of this job has ended") == 1
    assert "--resume" in errors
    assert not out.exists()
    resumed = start(*command, "--resume")
    assert resumed.wait() == 0, resumed.stderr.read()
    assert not work.exists()
    assert resumed.stdout.read().count("Learned 12-bit codes") == 1
    whole = ddh.DDH(bits=12, epochs=15, device="cpu").fit(X)
    found = ddh.load(out)
    np.testing.assert_allclose(found.hash_weight_, whole.hash_weight_, atol=1e-5)
    curves = [[entry["loss"] for entry in m.history_] for m in (found, whole)]
    np.testing.assert_allclose(*curves, rtol=1e-5)


# -- without other processes --------------------------------------------------------------


def test_shards_cover_every_row_once():
    for total, size in [(10, 3), (2, 4), (7, 7), (100, 1)]:
        rows = [Processes(rank, size).shard(total) for rank in range(size)]
        assert [r.start for r in rows] == [0, *[r.stop for r in rows[:-1]]]
        assert rows[-1].stop == total
        assert max(r.stop - r.start for r in rows) - min(r.stop - r.start for r in rows) <= 1


def test_without_torchrun_a_process_is_alone():
    with job("cpu") as processes:
        assert processes is SINGLE
        assert processes.run_on_main(lambda: 3) == 3
    with pytest.raises(InputError, match="wrong"), job("cpu"):
        raise InputError("wrong")


def test_a_mapped_file_of_half_precision_is_as_good_as_memory(tmp_path):
    X = features()[0].astype(np.float16)
    np.save(tmp_path / "X.npy", X)
    model = ddh.DDH(bits=8, epochs=2, device="cpu")
    inside = model.fit(X.astype(np.float32)).hash_weight_
    mapped = model.fit(np.load(tmp_path / "X.npy", mmap_mode="r")).hash_weight_
    assert np.array_equal(inside, mapped)


class Store(dict):
    """A key-value store as torch's, within one process."""

    def set(self, key, value):
        self[key] = value

    def check(self, keys):
        return all(key in self for key in keys)

    def get(self, key, default=None):
        return self[key]


def test_what_the_first_process_refuses_all_refuse():
    store = Store()
    first, second = Processes(0, 2, store), Processes(1, 2, store)

    def refuse():
        raise InputError("there are no images")

    with pytest.raises(InputError, match="no images"):
        first.run_on_main(refuse)
    with pytest.raises(DDHError, match="no images"):
        second.run_on_main(lambda: pytest.fail("the second process only listens"))
    first.run_on_main(lambda: {"edges": 4})
    assert second.run_on_main(lambda: None) == {"edges": 4}


def test_a_checkpoint_of_several_processes_is_resumed_by_one(tmp_path):
    U, path = torch.randn(7, 4), tmp_path / "training.safetensors"
    shards = {}
    for rank in range(3):
        rows = Processes(rank, 3).shard(7)
        name = f"training-shard-9-{rows.start}-{rows.stop}.safetensors"
        checkpoint_io.write(tmp_path / name, {"outputs": U[rows]})
        shards[name] = [rows.start, rows.stop]
    state = {"step": 9}
    checkpoint_io.write(path, {"total": U.sum(dim=0)}, state | {"shards": shards})
    outputs = torch.zeros(7, 4)
    _, tensors = checkpoint_io.load(path, {}, {"outputs": outputs}, 7)
    assert torch.equal(outputs, U)
    part = torch.zeros(4, 4)
    checkpoint_io.load(path, {}, {"outputs": part}, 7, Processes(1, 2))
    assert torch.equal(part, U[3:])
    checkpoint_io.save(path, tensors, state, {"outputs": outputs}, 7)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    outputs.zero_()
    checkpoint_io.load(path, {}, {"outputs": outputs}, 7)
    assert torch.equal(outputs, U)
    shards_gone = state | {"shards": shards}
    checkpoint_io.write(path, tensors, shards_gone)
    with pytest.raises(ModelError, match="missing or damaged"):
        checkpoint_io.load(path, {}, {"outputs": outputs}, 7)
