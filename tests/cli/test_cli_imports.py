"""What usage errors and help import: a command that is refused must be refused at once."""

import subprocess
import sys

import pytest

from ddh.bench import BENCHES
from ddh.cli import VERBS
from ddh.cli.dedup import KEEP
from ddh.duplicates import KEEP as RULES

# Each costs a tenth of a second or more.
HEAVY = {"scipy", "sklearn", "torch", "onnxruntime", "cv2", "matplotlib", "fastapi", "ray", "tqdm"}
EVERYDAY = ("add", "search", "dedup", "serve", "index", "fit", "encode", "info", "pretrain")
SCRIPT = """
import contextlib, io, sys
from ddh.cli import cli
for arguments in {commands!r}:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            cli(arguments, standalone_mode=False)
        except Exception as error:
            assert "nope" in str(error), error
        else:
            assert "--help" in arguments, arguments
print(*sorted(set({unwanted!r}) & set(sys.modules)))
"""


def imported(commands, unwanted):
    """Which of the modules a process has imported after all of these commands."""
    script = SCRIPT.format(commands=commands, unwanted=sorted(unwanted))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("group", [(), ("bench",)], ids=["ddh", "ddh bench"])
def test_the_list_of_commands_imports_none_of_them(group):
    assert imported([[*group, "--help"]], HEAVY | {"numpy", "PIL"}) == []


def test_usage_errors_of_everyday_commands_import_no_numpy():
    commands = [[verb, "--nope"] for verb in EVERYDAY] + [["index", "add", "--nope"], ["nope"]]
    assert imported(commands, HEAVY | {"numpy", "PIL"}) == []


def test_usage_errors_of_all_commands_import_nothing_heavy():
    commands = [[verb, "--nope"] for verb in VERBS] + [
        ["bench", name, "--nope"] for name in BENCHES
    ]
    assert imported(commands, HEAVY) == []


def test_the_rules_of_dedup_are_those_of_the_package():
    assert tuple(RULES) == KEEP
