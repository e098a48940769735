"""The command line reference in docs/cli.md, written from the commands' own `--help`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ddh.cli import cli

HEADER = """# Command line

Written by `make docs` from the commands themselves; the tests keep it true.
"""


def reference() -> str:
    """The text of docs/cli.md."""
    return HEADER + "".join(_sections(cli, "ddh", None))


def _sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    settings = {**command.context_settings, "terminal_width": 100, "max_content_width": 100}
    ctx = click.Context(command, info_name=name, parent=parent, **settings)
    yield f"\n## {ctx.command_path}\n\n```text\n{command.get_help(ctx)}\n```\n"
    if isinstance(command, click.Group):
        for child in command.list_commands(ctx):
            inner = command.get_command(ctx, child)
            assert inner is not None
            yield from _sections(inner, child, ctx)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference())
