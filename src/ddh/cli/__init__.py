"""The `ddh` command. Each verb is one module of this folder, imported only when it is used."""

import shlex
import sys
import warnings

import click

import ddh
from ddh._core.errors import DDHError
from ddh._core.output import LazyGroup, escaped

# verb -> "module:object"; the help of `ddh --help` reads each module's short help.
VERBS = {
    "add": "ddh.cli.add:add",
    "demo": "ddh.cli.demo:demo",
    "pretrain": "ddh.cli.pretrain:pretrain",
    "export": "ddh.cli.export:export",
    "fit": "ddh.cli.fit:fit",
    "encode": "ddh.cli.encode:encode",
    "index": "ddh.cli.index:index",
    "search": "ddh.cli.search:search",
    "dedup": "ddh.cli.dedup:dedup",
    "serve": "ddh.cli.serve:serve",
    "evaluate": "ddh.cli.evaluate:evaluate",
    "methods": "ddh.cli.methods:methods",
    "info": "ddh.cli.info:info",
    "report": "ddh.cli.report:report",
    "doctor": "ddh.cli.doctor:doctor",
    "completion": "ddh.cli.completion:completion",
    "plan": "ddh.cli.plan:plan",
    "bench": "ddh.bench:bench",
}
# What an interrupted command is started with again, beside its own arguments.
RESUMED = {
    "add": (), "index add": (), "index refit": (), "fit": ("--resume",), "encode": ("--resume",),
    "pretrain": ("--resume",),
    **{f"bench {name}": () for name in (
        "table2", "table3", "table4", "table5", "table6", "fig2", "fig3", "quality", "recall",
        "presets", "depths",
    )},
}  # fmt: skip
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


@click.group(
    cls=LazyGroup,
    verbs=VERBS,
    context_settings={**HELP_OPTIONS, "max_content_width": 100, "show_default": True},
)
@click.version_option(ddh.__version__, prog_name="ddh")
def cli() -> None:
    """Learn compact binary codes for pictures without labels, and search with them.

    \b
    ddh add ~/Pictures           make pictures ready to be searched
    ddh search cat.jpg           the pictures that are nearest to this one
    ddh serve --open             search, look through and compare in a browser
    ddh dedup                    find duplicates; changes nothing
    ddh demo                     see it work in a minute, nothing to download
    """


def how_to_go_on(arguments: list[str]) -> str:
    """What to say after Ctrl-C: the command that goes on, where what was done is kept."""
    verb = next((verb for verb in RESUMED if arguments[: len(verb.split())] == verb.split()), None)
    if verb is None:
        return ""
    more = [option for option in RESUMED[verb] if option not in arguments]
    command = shlex.join(["ddh", *arguments, *more])
    return f": what was done is kept. To go on:\n  {command}"


def _show_warning(message: Warning | str, *_: object) -> None:
    click.echo(escaped(f"ddh: warning: {message}"), err=True)


def main() -> None:
    """Run `ddh`; an error of ours is one clear line and exit code 2, Ctrl-C is exit code 130."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        status = cli(standalone_mode=False)  # of `ctx.exit`, which click returns here
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"\nstopped{how_to_go_on(sys.argv[1:])}", err=True)
        sys.exit(130)
    except DDHError as error:
        click.echo(escaped(f"ddh: {error}"), err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:  # a full disk, a file that may not be read
        if error.strerror is None:
            raise
        place = f"{error.filename}: " if error.filename else ""
        click.echo(escaped(f"ddh: {place}{error.strerror}"), err=True)
        sys.exit(2)
    if status:
        sys.exit(status)
