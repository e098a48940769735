"""kill -9 while `ddh encode`, `ddh index add` and `ddh pretrain` work: the next run ends the same.

Two runs do not share a folder, and a full disk costs nothing that was done.
"""

import errno
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import ddh.index
from ddh import DDH
from ddh._core.atomic import DiskFull, exclusive
from ddh._core.errors import InputError
from ddh.backbones import ResNet
from ddh.cli import cli
from ddh.hashers import ddh as method
from ddh.index.check import check

IMAGES = 24

CHILD = """
import sys, time
import ddh.backbones
from ddh.cli import cli
from ddh.cli import encode
from ddh.hashers.ddh import DDH
from ddh.pretrain import pretraining
from ddh.train.trainer import Trainer

pause = float(sys.argv[1])
pretraining.CHECKPOINT_SECONDS = 0.0
encode.PART_IMAGES = 4
whole, save = DDH.encode_images, Trainer._save

def slowly(self, images, batch_size=None):
    for batch in whole(self, images, 4):
        yield batch
        time.sleep(pause)

def waiting(self, *given):
    save(self, *given)
    time.sleep(200 * pause)  # until it is killed

def narrow(*given):
    return ddh.backbones.ResNet("resnet18", 16, tiny_stem=True, width=4)

DDH.encode_images, Trainer._save = slowly, waiting
ddh.backbones.create = narrow
cli(sys.argv[2:])
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("kills")
    (place / "photos").mkdir()
    rng = np.random.default_rng(0)
    for number in range(IMAGES):
        pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / "photos" / f"{number:02d}.png")
    options = {"backbone": "resnet18-tiny", "weights": "random", "size": 32, "device": "cpu"}
    torch.manual_seed(0)
    narrow = ResNet("resnet18", 32, tiny_stem=True, width=4)
    with patch.object(method, "create", lambda *given: narrow):
        DDH(bits=16, k1=3, epochs=1, **options).fit(place / "photos").save(place / "model")
    return place


def start(pause: float, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-c", CHILD, str(pause), *map(str, arguments), "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run(*arguments: object) -> None:
    process = start(0, *arguments)
    output, _ = process.communicate(timeout=250)
    assert process.returncode == 0, output.decode()


def kill_when(progress: Callable[[], int], reached: int, *arguments: object) -> None:
    process = start(0.3, *arguments)
    deadline = time.monotonic() + 120
    while progress() < reached:
        assert process.poll() is None, process.stdout.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def expected(place) -> dict[str, bytes]:
    batches = ddh.load(place / "model").encode_images(place / "photos", 4)
    codes = [code.tobytes() for batch in batches for code in batch.codes]
    return {f"{number:02d}.png": code for number, code in enumerate(codes)}


def test_encode(place, expected, tmp_path):
    out = tmp_path / "codes.npz"
    command = "encode", place / "photos", "-m", place / "model", "-o", out, "--resume"
    parts = [tmp_path / "codes.npz.work" / f"{4 * part}.npz" for part in range(IMAGES // 4)]
    kill_when(lambda: sum(part.exists() for part in parts), 2, *command)
    assert not out.exists()
    run(*command)
    with np.load(out) as saved:
        codes = [code.tobytes() for code in saved["codes"]]
        assert dict(zip(saved["names"].tolist(), codes, strict=True)) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["codes.npz"]


def test_two_encodes_do_not_share_a_folder(place, tmp_path):
    out = tmp_path / "codes.npz"
    (tmp_path / "codes.npz.work").mkdir()
    command = "encode", place / "photos", "-m", place / "model", "-o", out, "--resume"
    with exclusive(tmp_path / "codes.npz.work"):
        second = CliRunner().invoke(cli, [*map(str, command)])
    assert isinstance(second.exception, InputError)
    assert "another run works in" in str(second.exception)


def test_encode_on_a_full_disk(place, expected, tmp_path, monkeypatch):
    savez = np.savez

    def on_a_full_disk(stream, **arrays) -> None:
        if "names" in arrays:  # the result, after all parts
            raise OSError(errno.ENOSPC, "No space left on device")
        savez(stream, **arrays)

    monkeypatch.setattr("ddh.cli.encode.PART_IMAGES", 4)
    monkeypatch.setattr(np, "savez", on_a_full_disk)
    command = "encode", place / "photos", "-m", place / "model", "-o", tmp_path / "codes.npz"
    full = CliRunner().invoke(cli, [*map(str, command), "--quiet"])
    assert isinstance(full.exception, DiskFull), full.output
    assert len(list((tmp_path / "codes.npz.work").iterdir())) == IMAGES // 4
    monkeypatch.setattr(np, "savez", savez)
    monkeypatch.setattr("ddh.cli.encode.encode_images", None)  # all of it is kept
    assert CliRunner().invoke(cli, [*map(str, command), "--resume", "--quiet"]).exit_code == 0
    with np.load(tmp_path / "codes.npz") as saved:
        assert [code.tobytes() for code in saved["codes"]] == list(expected.values())


def test_pretrain(place, tmp_path):
    options = ("--backbone", "resnet18-tiny", "--weights", "random", "--size", 16, "--epochs", 3)
    command = ("pretrain", place / "photos", *options, "--batch-size", 8, "--device", "cpu")
    run(*command, "-o", tmp_path / "whole.safetensors")
    checkpoints = tmp_path / "cut.safetensors.work" / "ddh-run"
    out = tmp_path / "cut.safetensors"

    def written() -> int:
        return len(list(checkpoints.glob("*.safetensors")))

    kill_when(written, 1, *command, "-o", out)
    assert not out.exists()
    run(*command, "-o", out, "--resume")
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert not checkpoints.exists()


def rows(folder: Path) -> dict[str, bytes]:
    with ddh.index.open(folder, create=False) as index:
        return {row.key: row.code.tobytes() for row in index.items()}


def test_index_add(place, expected, tmp_path):
    folder = tmp_path / "photos.index"
    command = "index", "add", place / "photos", "--model", place / "model", "--index", folder

    def written() -> int:
        try:
            return len(rows(folder))
        except ddh.index.IndexNotFound:
            return 0

    kill_when(written, 8, *command)
    assert 8 <= written() < IMAGES
    assert check(folder).problems == []
    run(*command)
    assert rows(folder) == expected
