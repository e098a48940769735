"""The Dockerfile agrees with the project; its command and its health check run here, unpacked."""

import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from doc_blocks import free_port

ROOT = Path(__file__).resolve().parents[2]
KNOWN = {
    "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "USER",
    "VOLUME", "WORKDIR",
}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    """The instructions in order, with continued lines joined and comments left out."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line[:1] != "#"]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (word, " ".join(rest.split()))
        for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())
    ]


def one(word: str) -> str:
    """The last instruction of a kind: what the final image has."""
    return [rest for found, rest in instructions() if found == word][-1]


def sent(path: str) -> bool:
    """Whether .dockerignore lets a path through; the last rule that fits counts."""
    through = True
    for rule in (ROOT / ".dockerignore").read_text().splitlines():
        if not rule.strip() or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!").removeprefix("**/")
        parts = Path(path).parts
        depths = range(1, len(parts) + 1)
        tried = ["/".join(parts[:n]) for n in depths] + (list(parts) if "**/" in rule else [])
        if any(fnmatch.fnmatchcase(name, pattern) for name in tried):
            through = rule.startswith("!")
    return through


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_all_instructions_are_known():
    found = instructions()
    assert {word for word, _ in found} == KNOWN
    assert found[0][0] == "FROM"
    for word in ("CMD", "ENTRYPOINT", "VOLUME"):
        assert isinstance(json.loads(one(word)), list)


def test_what_is_copied_is_there_and_is_sent():
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert sent(source), source
    assert sent("src/ddh/codes/_hamming.c")
    assert sent("src/ddh/cli/serve.py")
    for unwanted in (".git/config", ".venv/bin/python", "src/ddh/codes/_hamming.so", "tests/x.py"):
        assert not sent(unwanted), unwanted


def test_versions_agree(project):
    text = (ROOT / "Dockerfile").read_text()
    least = tuple(map(int, re.search(r">=(\d+)\.(\d+)", project["requires-python"]).groups()))
    for version in re.findall(r"^FROM python:(\d+)\.(\d+)-slim", text, re.MULTILINE):
        assert tuple(map(int, version)) >= least
    extras = re.search(r"\"\.\[([^]]+)\]\"", text)[1].split(",")
    assert "serve" in extras
    assert set(extras) <= set(project["optional-dependencies"])
    needed = [name for extra in extras for name in project["optional-dependencies"][extra]]
    assert not [name for name in needed if name.startswith(("torch", "ddh["))], "a light image"
    assert "-c constraints.txt" in text


def test_it_runs_as_somebody_without_rights():
    words = [word for word, _ in instructions()]
    assert one("USER") not in ("root", "0")
    assert words.index("USER") < words.index("CMD")


def command() -> list[str]:
    return json.loads(one("ENTRYPOINT")) + json.loads(one("CMD"))


def test_the_command_needs_a_token(tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "DDH_TOKEN"}
    done = subprocess.run(
        [sys.executable, "-m", *command()],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--token" in done.stderr


def test_the_command_serves_and_the_health_check_sees_it(tmp_path):
    import ddh.index

    port = free_port()
    shown = command()[command().index("--port") + 1]
    assert shown == one("EXPOSE")
    with ddh.index.open(tmp_path / command()[2], bits=64) as index:
        index.add(["a", "b"], np.zeros((2, 8), np.uint8))
    check = json.loads(re.search(r"CMD (\[.*\])", one("HEALTHCHECK"))[1])
    assert f"127.0.0.1:{shown}/health" in check[-1]
    check = [sys.executable, *(part.replace(shown, str(port)) for part in check[1:])]
    serve = [sys.executable, "-m", *(part.replace(shown, str(port)) for part in command())]
    environment = {**os.environ, "DDH_TOKEN": "a-token-for-the-test", "DDH_CACHE": str(tmp_path)}
    assert subprocess.run(check, capture_output=True).returncode != 0
    with subprocess.Popen(
        serve, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert "2 rows at http://0.0.0.0:" in process.stdout.readline()
            subprocess.run(check, check=True, timeout=30)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    assert subprocess.run(check, capture_output=True).returncode != 0
