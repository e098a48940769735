"""Run `ddh` in this process, as the tests of commands do."""

import json

from click.testing import CliRunner

from ddh.cli import cli


def run(*arguments: object) -> dict:
    """A command's JSON document."""
    return json.loads(text(*arguments, "--json"))


def text(*arguments: object) -> str:
    """What a command prints."""
    done = CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout
