"""The code blocks of a Markdown file, and a folder in which they run one after the other.

The rule for README.md and docs/*.md:

- ```python blocks of a file run in order, in one namespace;
- ```sh blocks run in order, each in a bash of its own that stops at the first failure. What a
  block leaves running in the background (`ddh serve ... &`) is there for the blocks below it;
- ```console is for commands that cannot run here: an installation, a data set or a server that
  is elsewhere, a bench of minutes. Their verbs and options are checked all the same;
- ```text is for output and formulas; ```json, ```sql, ```yaml and the like are data.

A block has no fence of its own for "skip": what is shown as code to be run is run.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUN = {"python", "sh"}
SHOWN = {"console", "text", "json", "sql", "yaml", "toml", "csv"}
SECONDS = 240
# Pages name ports that people use; tests take free ones, so that they can run side by side.
SHOWN_PORTS = ("8080", "18080")


@dataclass(frozen=True)
class Block:
    """One fenced block: where it stands, its language and its text."""

    file: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a Markdown file, in order."""
    text = path.read_text(encoding="utf-8")
    for found in re.finditer(r"^```([^\n`]*)\n(.*?)^```[ ]*$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, found.start()) + 2
        yield Block(path.name, line, found[1].strip(), found[2])


def indented_code(path: Path) -> list[int]:
    """Lines that Markdown shows as code because they are indented: they would escape the rule."""
    lines = path.read_text(encoding="utf-8").splitlines()
    fenced, found, before = False, [], ""
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("    ") and not before.strip():
            found.append(number)
        before = line
    return found


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Runner:
    """Runs the blocks of one file in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {shown: str(free_port()) for shown in SHOWN_PORTS}
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self._groups: list[int] = []

    def run(self, block: Block) -> str:
        """Run a block; what a shell block printed. Raises where it fails."""
        text = re.sub(r"\b1?8080\b", lambda shown: self.ports[shown[0]], block.text)
        if block.language == "sh":
            return self._shell(block, text)
        code = compile("\n" * (block.line - 1) + text, block.file, "exec")
        exec(code, self.names)
        return ""

    def _shell(self, block: Block, text: str) -> str:
        output = self.folder / ".output"
        with output.open("w") as stream:  # no pipe: a program in the background would keep it open
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=self.folder, env=self._environment(), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            )  # fmt: skip
            self._groups.append(process.pid)
            code = process.wait(SECONDS)
        shown = output.read_text(encoding="utf-8", errors="replace")
        assert code == 0, f"{block.place} ends with {code}:\n{text}\n{shown}"
        return shown

    def _environment(self) -> dict[str, str]:
        programs = Path(sys.executable).parent
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("DDH_")},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "OMP_NUM_THREADS": "1",
        }

    def close(self) -> None:
        """End what blocks have left in the background."""
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
