"""The `ddh` command. Each verb is one module of this folder, imported only when it is used."""

import sys
from importlib import import_module
from typing import Any

import click

import ddh
from ddh.errors import DDHError

# verb -> "module:object"; the help of `ddh --help` reads each module's short help.
VERBS = {
    "demo": "ddh.cli.demo:demo",
    "fit": "ddh.cli.fit:fit",
    "encode": "ddh.cli.encode:encode",
    "info": "ddh.cli.info:info",
    "bench": "ddh.bench:bench",
}


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
        return getattr(import_module(module), attribute)


@click.group(
    cls=LazyGroup,
    verbs=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(ddh.__version__, prog_name="ddh")
def cli() -> None:
    """Learn compact binary codes for pictures without labels, and search with them.

    \b
    ddh demo                              see it work in a minute, nothing to download
    ddh fit photos/ -o photos.ddh         learn 64-bit codes for a folder of pictures
    ddh encode photos/ -m photos.ddh -o codes.npz
    """


def main() -> None:
    """Run `ddh`; an error of ours is one clear line and exit code 2, Ctrl-C is exit code 130."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("\nstopped", err=True)
        sys.exit(130)
    except DDHError as error:
        click.echo(f"ddh: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)
