"""Options that the table benches share on the command line."""

import ast
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ddh._core.errors import InputError
from ddh._core.output import json_option, quiet_option

Command = Callable[..., Any]

output_option = click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Folder for results; a second run goes on where the first one stopped.",
)
_SHARED = (
    click.option(
        "--data",
        type=click.Path(path_type=Path),
        envvar="DDH_DATA",
        show_envvar=True,
        help="Folder of the data set.",
    ),
    output_option,
    click.option(
        "--features",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Ready features: an .npz with features, labels, and query (which rows ask).",
    ),
    click.option("--backbone", default="efficientnet-lite0", show_default=True),
    click.option("--weights", default="auto", show_default=True, help="auto, random or a file."),
    click.option("--size", type=int, help="Side of the network's input in pixels."),
    click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, ..."),
    click.option(
        "--subset", type=int, help="Only so many training images, and fewer queries: a quick run."
    ),
    click.option("--seeds", default="0,1,2", show_default=True, help="For methods with chance."),
    click.option("--methods", help="Only these rows, separated by commas."),
    click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="METHOD.NAME=VALUE",
        help="A setting of a method, for example DDH.k1=50. May be repeated.",
    ),
)


@dataclass(frozen=True)
class BenchOptions:
    """The values of the shared options."""

    data: Path | None
    output: Path
    features: Path | None
    backbone: str
    weights: str
    size: int | None
    device: str
    subset: int | None
    seeds: str
    methods: str | None
    changes: tuple[str, ...]
    as_json: bool

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        """The seeds as numbers."""
        return whole_numbers(self.seeds, "seeds")

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Changed settings by method."""
        return settings_of(self.changes)

    def data_folder(self, what: str) -> Path:
        """The folder of the data set, or an error that says how to name it."""
        if self.data is None:
            raise InputError(
                f"where is {what}? Give its folder with --data DIR (or the environment variable "
                "DDH_DATA), or ready features with --features FILE"
            )
        return self.data


def shared_options(command: Command) -> Command:
    """--data, --output, --features and so on, --json and --quiet."""
    for option in reversed(_SHARED):
        command = option(command)
    return quiet_option(json_option(command))


def bits_option(default: str) -> Callable[[Command], Command]:
    """--bits with the lengths of the paper's table."""
    return click.option("--bits", default=default, show_default=True, help="Code lengths.")


def whole_numbers(text: str, what: str) -> tuple[int, ...]:
    """ "16,32,64" -> (16, 32, 64)."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{what} are whole numbers separated by commas, not {text!r}") from error


def settings_of(changes: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """("DDH.k1=50",) -> {"DDH": {"k1": 50}}; values are Python literals, or else plain text."""
    settings: dict[str, dict[str, Any]] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        method, dot, parameter = name.partition(".")
        if not (equals and dot and parameter):
            raise InputError(f"--set takes METHOD.NAME=VALUE, not {change!r}")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        settings.setdefault(method, {})[parameter] = value
    return settings


def command_line() -> str:
    """The command as it was typed, for the results, without the folders of this machine."""
    words = []
    for word in sys.argv[1:]:
        name, equals, value = word.partition("=")
        path = Path(value if equals and name.startswith("--") else word)
        short = path.name if path.is_absolute() else str(path)
        words.append(f"{name}={short}" if equals and name.startswith("--") else short)
    return "ddh " + shlex.join(words)
