"""`ddh completion` in real shells."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddh.cli import cli

PROGRAMS = Path(sys.executable).parent
PATH = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
ENVIRONMENT = {**os.environ, "PATH": PATH, "TERM": "dumb"}


def type_in(shell: list[str], keys: str, awaited: str, seconds: float = 30) -> str:
    """What a terminal shows after keys are typed in a shell, up to the awaited text."""
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(shell[0], shell, ENVIRONMENT)
    shown, deadline = "", time.monotonic() + seconds
    try:
        os.write(terminal, keys.encode())
        while awaited not in shown and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536).decode("utf-8", "replace")
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)
    return shown


def test_bash_completes_on_a_terminal():
    keys = 'eval "$(ddh completion bash)"\nddh doct\t'
    assert "ddh doctor " in type_in(["bash", "--norc", "--noprofile", "-i"], keys, "ddh doctor ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ddh comp", {"completion"}),
        ("ddh index ad", {"add"}),
        ("ddh fit --dep", {"--depth"}),
        ("ddh fit --depth ", {"head", "last-stage", "network"}),
        ("ddh completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_what_bash_offers(words, expected):
    script = f"""
        eval "$(ddh completion bash)"
        COMP_WORDS=({words} {"''" if words.endswith(" ") else ""})
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        _ddh_completion ddh
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_right_for_their_shell(shell, tmp_path):
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert result.stdout.startswith("# From now on: ")
    assert "_DDH_COMPLETE" in result.stdout
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on this machine: its script was not read by it")
    script = tmp_path / "script"
    script.write_text(result.stdout)
    subprocess.run([shell, "-n", script], check=True)


def test_another_shell_is_refused():
    result = CliRunner().invoke(cli, ["completion", "tcsh"])
    assert result.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in result.output
