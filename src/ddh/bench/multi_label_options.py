"""Options that the NUS-WIDE benches (tables 4 and 5) share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ddh.images.nus import MOST_FREQUENT

_OPTIONS = (
    click.option(
        "--list",
        "list_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help='Instead of NUS-WIDE: a list of lines "path 0 1 0 ..."; paths start at --data.',
    ),
    click.option("--concepts", default=MOST_FREQUENT, show_default=True, help="Most frequent."),
    click.option("--queries", default=100, show_default=True, help="Queries of each concept."),
    click.option(
        "--training", default=500, show_default=True, help="Training images of each concept."
    ),
)


def multi_label_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--list, --concepts, --queries and --training."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
