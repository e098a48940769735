"""What a command prints: text for people, or one JSON document with `--json`."""

import json
from collections.abc import Callable
from typing import Any

import click

from ddh._core import progress

SHOWN_FAILURES = 10


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`: one JSON document on standard output and nothing else."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
    )(command)


def quiet_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--quiet`: no progress bars."""

    def switch(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        progress.set_quiet(value)

    return click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=switch,
        help="Show no progress bars.",
    )(command)  # fmt: skip


def emit(document: dict[str, Any], text: str, as_json: bool) -> None:
    """Print the document or its text."""
    click.echo(json.dumps(document, indent=2, default=str) if as_json else text)


def describe_failures(failures: list[dict[str, Any]]) -> str:
    """The files that a long job had to skip, named; empty when there are none."""
    if not failures:
        return ""
    shown = [f"  {entry['name']}: {entry['reason']}" for entry in failures[:SHOWN_FAILURES]]
    more = len(failures) - len(shown)
    if more:
        shown.append(f"  ... and {more} more (all of them with --json)")
    count = len(failures)
    return "\n".join(
        [f"Skipped {count} file{'s' if count > 1 else ''} that could not be used:", *shown]
    )
