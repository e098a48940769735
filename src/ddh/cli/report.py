"""`ddh report`: the results of the benches as one self-contained HTML page."""

from pathlib import Path

import click

from ddh.cli.options import ANY_PATH, NEW_FILE

LARGEST = 5_000_000


@click.command(short_help="Join the results of `ddh bench` into one HTML page.")
@click.argument("folder", type=ANY_PATH)
@click.option("--output", "-o", type=NEW_FILE, help="The page; by default report.html in FOLDER.")
@click.option("--title", default="Deep discrete hashing, measured")
def report(folder: Path, output: Path | None, title: str) -> None:
    """Join the results in FOLDER into one page with tables, curves and example retrievals.

    The page needs no network and no other file: mail it, or open it in any browser.

    \b
    ddh bench table2 --data DIR -o results
    ddh report results
    """
    from ddh._core.atomic import write_atomic
    from ddh._core.errors import InputError
    from ddh.bench.report_page import page, read_outcomes

    content = page(read_outcomes(folder), title).encode()
    if len(content) > LARGEST:
        raise InputError(
            f"the page would have {len(content) / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}; "
            "make a report of fewer benches"
        )
    target = output or folder / "report.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, content)
    click.echo(f"{target} ({len(content) / 1e6:.2f} MB)")
