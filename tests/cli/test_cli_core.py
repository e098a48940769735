"""`ddh fit | encode | info | demo`: what they print, write and refuse."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from ddh.cli import VERBS, cli, main


def run(*arguments, code=0):
    """Run `ddh` in this process; returns standard output."""
    result = CliRunner().invoke(cli, [str(part) for part in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout


def ddh(*arguments):
    """Run `ddh` as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "ddh", *map(str, arguments)], capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for number in range(14):
        colour = rng.integers(0, 256, 3)
        noise = rng.integers(0, 40, (48, 48, 3))
        pixels = np.clip(colour + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02d}.png")
    (folder / "bad.png").write_bytes(b"\x89PNG broken")
    return folder


@pytest.fixture(scope="module")
def model(pictures, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.ddh"
    text = run("fit", pictures, "-o", path, "--bits", 16, "--size", 32, "--epochs", 2)
    assert "Learned 16-bit codes from 14 images" in text
    assert "bad.png" in text
    assert not path.with_name("m.ddh.work").exists()
    return path


def test_fit_takes_weights_for_the_labels(pictures, tmp_path):
    from ddh.backbones import create, save

    save(create("resnet18-tiny", "random"), tmp_path / "labels.safetensors")
    fixed = ["fit", pictures, "-b", 8, "--size", 32, "--epochs", 1, "--label-weights"]
    run(*fixed, tmp_path / "labels.safetensors", "-o", tmp_path / "m")
    saved = json.loads((tmp_path / "m" / "model.json").read_text())
    assert saved["settings"]["label_weights"] == str(tmp_path / "labels.safetensors")
    result = ddh(*fixed, tmp_path / "none.safetensors", "-o", tmp_path / "n")
    assert result.returncode == 2
    assert "none.safetensors" in result.stderr


def test_fit_prints_json(pictures, tmp_path):
    out = tmp_path / "m"
    document = json.loads(
        run("fit", pictures, "-o", out, "-b", 8, "--size", 32, "--epochs", 1, "--json")
    )
    assert document["images"] == 14
    assert document["skipped"][0]["name"] == "bad.png"
    assert document["id"] == json.loads(run("info", out, "--json"))["id"]


def test_fit_replaces_a_model_only_by_force(tmp_path):
    """An index may depend on the codes of the model that is there."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((60, 12), np.float32))
    command = ["fit", tmp_path / "x.npy", "-o", tmp_path / "m", "--epochs", 1, "--bits"]
    run(*command, 8)
    before = (tmp_path / "m" / "model.json").read_bytes()
    refused = ddh(*command, 12)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert (tmp_path / "m" / "model.json").read_bytes() == before
    run(*command, 12, "--force")
    assert json.loads(run("info", tmp_path / "m", "--json"))["bits"] == 12


def test_fit_on_a_file_of_features_and_with_labels(tmp_path):
    features = np.random.default_rng(0).standard_normal((60, 12)).astype(np.float32)
    np.save(tmp_path / "x.npy", features)
    labels = tmp_path / "labels.csv"
    labels.write_text("".join(f"{i},{'ab'[i % 2]}\n" for i in range(60)))
    run("fit", tmp_path / "x.npy", "-o", tmp_path / "m", "-b", 12, "--labels", labels)
    run("encode", tmp_path / "x.npy", "-m", tmp_path / "m", "-o", tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz") as saved:
        assert saved["codes"].shape == (60, 2)
    labels.write_text("0,a\n")
    result = CliRunner().invoke(
        cli, ["fit", str(tmp_path / "x.npy"), "-o", str(tmp_path / "n"), "--labels", str(labels)]
    )
    assert "no label for 59 images" in str(result.exception)


def test_encode_writes_npz_and_csv(pictures, model, tmp_path):
    text = run("encode", pictures, "-m", model, "-o", tmp_path / "codes.npz")
    assert "Encoded 14 images" in text
    assert "bad.png" in text
    with np.load(tmp_path / "codes.npz") as saved:
        names, codes = list(saved["names"]), saved["codes"]
        assert int(saved["bits"]) == 16
    run("encode", pictures, "-m", model, "-o", tmp_path / "codes.csv")
    lines = (tmp_path / "codes.csv").read_text().splitlines()
    assert lines[0] == "name,code"
    assert lines[1:] == [f"{n},{c.tobytes().hex()}" for n, c in zip(names, codes, strict=True)]
    assert json.loads(run("info", tmp_path / "codes.npz", "--json"))["images"] == 14


def test_encode_resumes_and_refuses_another_models_work(pictures, model, tmp_path, monkeypatch):
    monkeypatch.setattr("ddh.cli.encode.PART_IMAGES", 5)
    out = tmp_path / "codes.npz"
    run("encode", pictures, "-m", model, "-o", out)
    expected = np.load(out)["codes"]
    seen = []
    from ddh.hashers.ddh import DDH

    whole = DDH.encode_images

    def interrupted(self, images, batch_size=None):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(len(images))
        return whole(self, images, batch_size)

    monkeypatch.setattr(DDH, "encode_images", interrupted)
    other = tmp_path / "other.npz"
    CliRunner().invoke(cli, ["encode", str(pictures), "-m", str(model), "-o", str(other)])
    assert not other.exists()
    assert len(list((tmp_path / "other.npz.work").glob("*.npz"))) == 2
    monkeypatch.setattr(DDH, "encode_images", whole)
    again = CliRunner().invoke(cli, ["encode", str(pictures), "-m", str(model), "-o", str(other)])
    assert "interrupted run" in str(again.exception)
    run("encode", pictures, "-m", model, "-o", other, "--resume")
    assert np.array_equal(np.load(other)["codes"], expected)
    assert not (tmp_path / "other.npz.work").exists()


def test_errors_are_one_line_and_exit_code_2(tmp_path, pictures, model, monkeypatch, capfd):
    for arguments, said in (
        (["fit", tmp_path, "-o", tmp_path / "m"], "no images"),
        (["fit", pictures, "-o", tmp_path / "m", "--k1", "50", "--size", "32"], "lower"),
        (["encode", pictures, "-m", pictures, "-o", tmp_path / "c.npz"], "not a ddh model"),
        (["encode", pictures, "-m", model, "-o", tmp_path / "c.txt"], ".npz or .csv"),
        (["fit", tmp_path / "nothing", "-o", tmp_path / "m"], "does not exist"),
        (["fly"], "No such command"),
        (["add", pictures, "-i", model / "model.json" / "x.index"], "model.json: File exists"),
        (["dedup", pictures, "--sheet", model / "model.json" / "x.png"], "nothing can be written"),
        (["dedup", pictures, "-o", pictures], "is a directory"),
        (["fit", pictures, "-o", tmp_path / "m", "--device", "cuda:77"], "cannot be used"),
    ):
        monkeypatch.setattr("sys.argv", ["ddh", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        errors = capfd.readouterr().err
        assert end.value.code == 2, (arguments, errors)
        assert said in errors
        assert "Traceback" not in errors


def test_a_warning_is_one_line(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("DDH_CACHE", str(tmp_path))
    (tmp_path / "fingerprints.sqlite").write_bytes(b"not a database" * 100)
    shown = ddh("dedup", pictures, "--quiet").stderr
    assert shown.startswith("ddh: warning: the cache")
    assert shown.count("\n") == 1


def test_a_mistyped_command_as_a_user_sees_it():
    done = ddh("serch", "cat.jpg")
    assert done.returncode == 2
    assert "Did you mean `python -m ddh search`" in done.stderr
    assert "Traceback" not in done.stderr


def test_interrupt_ends_with_130_and_can_be_resumed(tmp_path):
    features = np.random.default_rng(0).standard_normal((3000, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", features)
    command = [sys.executable, "-m", "ddh", "fit", str(tmp_path / "x.npy"), "-o",
               str(tmp_path / "m"), "--epochs", "2000"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    checkpoint = tmp_path / "m.work" / "ddh-run" / "training.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    *_, said, how = process.stderr.read().strip().splitlines()
    assert said == "stopped: what was done is kept. To go on:"
    assert shlex.split(how) == ["ddh", *command[3:], "--resume"]
    assert checkpoint.exists()


def test_commands_that_go_on_after_an_interruption():
    from ddh.cli import how_to_go_on

    assert how_to_go_on(["index", "add", "my photos", "-i", "p"]).endswith(
        "\n  ddh index add 'my photos' -i p"
    )
    assert how_to_go_on(["fit", "x", "-o", "m", "--resume"]).endswith("ddh fit x -o m --resume")
    table = ["bench", "table2", "--data", "d"]
    assert how_to_go_on(table).endswith("To go on:\n  ddh bench table2 --data d")
    assert (
        how_to_go_on(["search", "x"]) == how_to_go_on([]) == how_to_go_on(["index", "info"]) == ""
    )


def test_hints_of_fit_work_when_pasted(pictures, tmp_path):
    folder = tmp_path / "my photos"
    shutil.copytree(pictures, folder)
    (folder / "film.mov").touch()
    text = run("fit", folder, "-o", tmp_path / "m.ddh", "--bits", 16, "--size", 32, "--epochs", 2)
    hints = [line.strip() for line in text.splitlines() if line.startswith("  ddh ")]
    assert len(hints) == 2
    assert "Not read: 1 .mov." in text
    for hint in hints:
        run(*shlex.split(hint)[1:])


def test_info_tells_about_the_installation_and_a_model(model):
    text = run("info")
    assert "hamming kernel:" in text
    assert "torch:" in text
    assert "bits: 16" in run("info", model)


def test_demo_beats_lsh_and_itq_and_draws_a_sheet(tmp_path):
    document = json.loads(run("demo", "-o", tmp_path / "demo", "--json"))
    scores = {row["method"]: row["mAP@100"] for row in document["scores"]}
    assert scores["DDH"] > scores["ITQ"] > scores["LSH"]
    with Image.open(document["contact sheet"]) as sheet:
        assert sheet.width > 500


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_help(verb):
    assert "Usage:" in run(verb, "--help")
