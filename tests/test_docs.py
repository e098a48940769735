"""The documentation is true: the reference is the commands' own help, links lead somewhere.

That its code runs is tested in tests/docs.
"""

import re
import subprocess
import sys

import pytest

from ddh.cli import cli
from ddh.train import PRESETS


def documents(repository):
    return [repository / "README.md", *sorted((repository / "docs").glob("*.md"))]


def test_command_line_reference_is_up_to_date(repository, tmp_path):
    # In a process of its own: click keeps the help option of a command's first use.
    written = tmp_path / "cli.md"
    subprocess.run([sys.executable, repository / "docs" / "reference.py", written], check=True)
    assert (repository / "docs" / "cli.md").read_text() == written.read_text(), "run `make docs`"


def test_links_between_documents_lead_somewhere(repository):
    for document in documents(repository):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if not target.startswith(("http:", "https:", "mailto:")):
                assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_commands_in_the_documents_exist(repository):
    """Every `ddh VERB --option` in a code block is a verb and options that are there."""
    import click

    for document in documents(repository):
        if document.name == "cli.md":
            continue
        for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", document.read_text(), re.S):
            for line in block.replace("\\\n", " ").splitlines():
                words = line.split("#")[0].split()
                if not words or words[0] != "ddh":
                    continue
                command: click.Command = cli
                rest = words[1:]
                while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
                    found = command.get_command(click.Context(command), rest[0])
                    assert found is not None, f"{document.name}: {line}"
                    command, rest = found, rest[1:]
                known = {
                    name
                    for parameter in command.params
                    for name in [*parameter.opts, *parameter.secondary_opts]
                }
                for word in rest:
                    if word.startswith("--") and word not in ("--help", "--version"):
                        assert word.split("=")[0] in known, f"{document.name}: {line}"


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_documented(repository, name):
    assert f"`{name}`" in (repository / "docs" / "method.md").read_text()
