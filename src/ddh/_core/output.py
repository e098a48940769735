"""What the commands share: lazy groups, `--json` and `--quiet`, and how answers are printed."""

import ast
import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

SHOWN_FAILURES = 10


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`: one JSON document on standard output and nothing else."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
    )(command)


def quiet_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--quiet`: no progress bars."""

    def switch(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        from ddh._core import progress

        progress.set_quiet(value)

    return click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=switch,
        help="Show no progress bars.",
    )(command)  # fmt: skip


def emit(document: dict[str, Any], text: str, as_json: bool) -> None:
    """Print the document or its text."""
    click.echo(json.dumps(document, indent=2, default=str) if as_json else escaped(text))


def escaped(text: object) -> str:
    """Text that can be printed: bytes of file names that are not UTF-8 as \\xNN."""
    text = re.sub("[\udc80-\udcff]", lambda odd: f"\\x{ord(odd[0]) - 0xDC00:02x}", str(text))
    return text.encode("utf-8", "backslashreplace").decode()


def open_viewer(target: str) -> None:
    """Show a file or a page in the user's program for it, or say that there is none."""
    import webbrowser

    has_viewer = not sys.platform.startswith("linux") or shutil.which("xdg-open") is not None
    if not has_viewer and "://" in target:
        try:
            has_viewer = bool(webbrowser.get())
        except webbrowser.Error:
            has_viewer = False
    if not has_viewer or click.launch(target) != 0:
        click.echo(f"No program to show it was found here: open {target} yourself.", err=True)


def csv_line(values: Iterable[object]) -> str:
    """A line of a CSV file; text that a spreadsheet would run as a formula gets an apostrophe."""
    line = io.StringIO()
    formulas = ("=", "+", "-", "@", "\t", "\r")
    csv.writer(line).writerow(
        f"'{v}" if isinstance(v, str) and v.startswith(formulas) else v for v in values
    )
    return line.getvalue()


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


class LazyGroup(click.Group):
    """A click group whose commands are imported on first use, so that `ddh` starts at once.

    `short_helps` are for commands that are not made by a function of their name.
    """

    def __init__(
        self,
        *args: Any,
        verbs: dict[str, str] | None = None,
        short_helps: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.verbs, self.short_helps = verbs or {}, short_helps or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.verbs:
            return None
        module, attribute = self.verbs[name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, with their short help from the sources: nothing is imported."""
        limit = formatter.width - 6 - max(map(len, self.verbs), default=0)
        rows = [(name, self._short_help(ctx, name, limit)) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def _short_help(self, ctx: click.Context, name: str, limit: int) -> str:
        if name in self.short_helps:
            return self.short_helps[name]
        module, attribute = self.verbs[name].split(":")
        spec = find_spec(module)
        tree = ast.parse(Path(spec.origin).read_bytes()) if spec and spec.origin else ast.parse("")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == attribute:
                calls = [call for call in node.decorator_list if isinstance(call, ast.Call)]
                for option in (option for call in calls for option in call.keywords):
                    if option.arg == "short_help" and isinstance(option.value, ast.Constant):
                        return str(option.value.value)
                return click.Command(name, help=ast.get_docstring(node)).get_short_help_str(limit)
        command = self.get_command(ctx, name)  # made in another way than by a function
        return "" if command is None else command.get_short_help_str(limit)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but with the nearest command in the error for a mistyped one."""
        name = args[0]
        near = get_close_matches(name, self.verbs, n=2, cutoff=0.6)
        if name not in self.verbs and near and not name.startswith("-"):
            meant = " or ".join(f"`{ctx.command_path} {verb}`" for verb in near)
            ctx.fail(f"There is no command {name!r}. Did you mean {meant}?")
        return super().resolve_command(ctx, args)
