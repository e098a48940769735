"""A click group whose commands are imported on first use, so that `ddh` starts at once."""

from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose commands live in modules that are imported on first use."""

    def __init__(self, *args: Any, verbs: dict[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verbs = verbs or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.verbs:
            return None
        module, attribute = self.verbs[name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command
