"""Model folders: a kill while saving, damaged files, models of strangers."""

import json
import os
import random
import signal
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ddh
from ddh._core.errors import ModelError
from ddh.hashers import create, storage

KILLS = 200 if os.environ.get("DDH_SLOW") else 12
BITS, COLUMNS = 32, 4000  # half a megabyte: a kill often hits the arrays


def models() -> list:
    X = np.random.default_rng(0).normal(size=(40, COLUMNS))
    return [create("LSH", bits=BITS, random_state=seed).fit(X) for seed in range(2)]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    models()[0].save(tmp_path / "model")
    return tmp_path / "model"


def kill_while_saving(folder: Path, model, seconds: float) -> None:
    """A child process, forked since it imports nothing then, that is killed after `seconds`."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told, b"x")
        model.save(folder)
        os._exit(0)
    os.read(ready, 1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ready)
    os.close(told)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("fresh", [False, True])
def test_a_kill_leaves_the_old_model_or_the_new_one(tmp_path, fresh):
    rng = random.Random(fresh)
    both = models()
    started = time.perf_counter()
    ids = [model.save(tmp_path / "timed") for model in both]
    once = (time.perf_counter() - started) / 2
    for number in range(KILLS):
        folder = tmp_path / (str(number) if fresh else "model")
        if not fresh:
            both[0].save(folder)
        kill_while_saving(folder, both[1], rng.uniform(0, once))
        if (folder / "model.json").exists():
            assert ddh.load(folder).model_id in ids[fresh:]
        else:
            assert fresh
        both[0].save(folder)  # whatever was left
        assert ddh.load(folder).model_id == ids[0]
        assert {file.name for file in folder.iterdir()} == {"model.json", "model.safetensors"}


def test_every_moment_of_a_save(saved, monkeypatch):
    """Each step between two system calls on files, as it is found after a kill there."""
    new = models()[1]
    old_id, new_id = ddh.load(saved).model_id, new.model_id
    found = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        found.append(ddh.load(saved).model_id)
        result = replace(self, target)
        found.append(ddh.load(saved).model_id)
        return result

    monkeypatch.setattr(Path, "replace", watched)
    new.save(saved)
    assert found == [old_id] * 3 + [new_id] * 3


def test_arrays_of_another_model_are_refused(saved, tmp_path):
    models()[1].save(tmp_path / "other")
    (tmp_path / "other" / storage.ARRAYS_NAME).replace(saved / storage.ARRAYS_NAME)
    with pytest.raises(ModelError, match="does not belong"):
        ddh.load(saved)


def test_a_model_without_a_digest_is_read_as_before(saved):
    rewrite(saved, arrays_sha256=None)
    codes = ddh.load(saved).transform(np.ones((1, COLUMNS)))
    np.testing.assert_array_equal(codes, models()[0].transform(np.ones((1, COLUMNS))))


def test_a_folder_of_the_user_is_refused_with_leftovers_in_it_too(tmp_path):
    (tmp_path / f".{storage.ARRAYS_NAME}.{'0' * 32}").write_bytes(b"")
    (tmp_path / ".model.json.backup").write_text("mine")
    with pytest.raises(ModelError, match="other things in it"):
        models()[0].save(tmp_path)


def rewrite(folder: Path, **changes) -> None:
    path = folder / storage.JSON_NAME
    description = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in description.items() if v is not None}))


@pytest.mark.parametrize(
    "changes",
    [
        {"method": ["LSH"]},
        {"bits": "32"},
        {"bits": 31},
        {"settings": ["bits"]},
        {"settings": {"bits": "32"}},
        {"settings": {"bits": 33}, "bits": 33},
        {"fitted": 7},
        {"fitted": {"n_features_in_": "many"}},
        {"fitted": {"n_features_in_": -1}},
        {"fitted": {"n_features_in_": COLUMNS + 1}},
        {"format": [1]},
    ],
)
def test_wrong_types_in_model_json(saved, changes):
    rewrite(saved, **changes)
    with pytest.raises(ModelError):
        ddh.load(saved)


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", "\udcff", ""])
def test_strange_json(saved, text):
    (saved / storage.JSON_NAME).write_text(text, errors="surrogateescape")
    with pytest.raises(ModelError):
        ddh.load(saved)


@pytest.mark.parametrize("name", [storage.JSON_NAME, storage.ARRAYS_NAME])
def test_a_folder_in_place_of_a_file(saved, name):
    (saved / name).unlink()
    (saved / name).mkdir()
    with pytest.raises(ModelError):
        ddh.load(saved)


def damaged_arrays(folder: Path, case: str) -> None:
    path = folder / storage.ARRAYS_NAME
    arrays = load_file(path)
    name = max(arrays, key=lambda key: arrays[key].size)
    if case == "nan":
        arrays[name].flat[-1] = np.nan
        save_file(arrays, path)
    elif case == "cut":
        save_file(arrays | {name: arrays[name][:-1].copy()}, path)
    elif case == "one dimension":
        save_file(arrays | {name: arrays[name].ravel()}, path)
    elif case == "no array":
        save_file({"x": np.zeros(1)}, path)
    else:
        header = json.dumps({name: {"dtype": case, "shape": [4], "data_offsets": [0, 8]}}).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))


@pytest.mark.parametrize(
    "case", ["nan", "cut", "one dimension", "no array", "BF16", "F8_E4M3", "F8_E5M2", "Q7"]
)
def test_strange_arrays(saved, case):
    damaged_arrays(saved, case)
    rewrite(saved, arrays_sha256=None)
    with pytest.raises(ModelError):
        ddh.load(saved)
