"""`ddh dedup`: verified duplicates in folders of pictures, and which picture of each to keep."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddh._core.errors import InputError
from ddh._core.output import csv_line, describe_failures, emit, json_option, quiet_option
from ddh.cli.index import open_collection
from ddh.cli.options import ANY_PATH, EXISTING, sheet_option
from ddh.cli.search import draw_sheet
from ddh.duplicates.keeping import KEEP

if TYPE_CHECKING:
    from ddh.duplicates import Duplicates, Group, Picture
    from ddh.index.collection import Collection

SHOWN_GROUPS = 20
SHEET_GROUPS = 200


@click.command()
@click.argument("folders", nargs=-1, type=EXISTING)
@click.option(
    "-i", "--index", "location", metavar="INDEX",
    help="Compare the files of this index instead of folders.",
)  # fmt: skip
@click.option("--folder", help="With --index: below this folder of the collection only.")
@click.option(
    "--keep", type=click.Choice(list(KEEP)), default="pixels",
    help="Which picture of a group stays: the one with the most pixels, the most or fewest bytes, "
    "the oldest, the newest, or by its path.",
)  # fmt: skip
@click.option("-o", "--out", type=ANY_PATH, help="Write the groups: .csv, .json.")
@sheet_option
@json_option
@quiet_option
def dedup(
    folders: tuple[Path, ...], location: str | None, folder: str | None, keep: str,
    out: Path | None, sheet: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Find duplicates in folders and suggest which picture of each group to keep.

    Needs no model and no index. Every duplicate is verified against the kept picture on its
    pixels; what is only alike is listed apart and never proposed for removal. The picture with the
    most pixels is kept, then the most bytes per pixel, then the better format, the oldest file
    and the first path, unless --keep says otherwise.

    \b
    ddh dedup photos/ phone/ --sheet duplicates.png
    ddh dedup photos/ --keep oldest -o duplicates.csv
    ddh dedup --index photos.index --json
    """
    from ddh.duplicates import find_duplicates

    if out is not None and out.suffix not in (".csv", ".json"):
        raise InputError(f"the groups are written to .csv or .json, not {out.name!r}")
    if (location is None) == (not folders):
        raise InputError("give folders of pictures, or an index with --index")
    if location is None:
        found = find_duplicates(folders, keep=keep)
    else:
        with open_collection(location, None) as collection:
            found = find_duplicates(indexed_files(collection, folder), keep=keep)
    if out is not None:
        document = json.dumps(found.as_json(), indent=2)
        out.write_text(_csv(found) if out.suffix == ".csv" else document, newline="")
    if sheet is not None and found.groups:
        draw_sheet(map(_shown, found.groups[:SHEET_GROUPS]), sheet)
    emit(found.as_json(), _text(found), as_json)


def indexed_files(collection: "Collection", folder: str | None) -> list[Path]:
    """The files of an index that are still there."""
    if collection.root is None:
        raise InputError("the indexed folder is not where it was: run `ddh index add` on it first")
    files = (collection.root / row.key for row in collection.index.items(folder=folder))
    return [file for file in files if file.is_file()]


def _text(found: "Duplicates") -> str:
    lines = [_summary(found)]
    for group in found.groups[:SHOWN_GROUPS]:
        lines += ["", _line("keep", group.keep)]
        lines += [_line(member.kind, member.picture) for member in group.members]
    if (more := len(found.groups) - SHOWN_GROUPS) > 0:
        lines += ["", f"... and {more:,} more groups: -o duplicates.csv or --json lists them all."]
    if found.similar:
        lines += ["", f"{len(found.similar):,} more pairs are alike, but not the same (--json)."]
    failures = [{"name": str(one.path), "reason": one.reason} for one in found.skipped]
    lines += ["", describe_failures(failures)] if failures else []
    return "\n".join([*lines, "", "Nothing was changed."])


def _summary(found: "Duplicates") -> str:
    extra = found.removable
    if not extra:
        return f"No duplicates among {found.compared:,} pictures."
    size = sum(member.picture.bytes for member in extra) / 1e6
    return (
        f"{len(found.groups):,} groups among {found.compared:,} pictures: "
        f"{len(extra):,} duplicates could go ({size:,.1f} MB)."
    )


def _line(label: str, picture: "Picture") -> str:
    return f"  {label:<12}  {picture.width:>5} x {picture.height:<5}  {picture.path}"


def _rows(group: "Group") -> Iterator[tuple["Picture", str, float]]:
    yield group.keep, "keep", 1.0
    yield from ((member.picture, member.kind, member.score) for member in group.members)


def _csv(found: "Duplicates") -> str:
    lines = [csv_line(["group", "path", "kind", "score", "width", "height", "bytes"])]
    for number, group in enumerate(found.groups, 1):
        lines += [
            csv_line([number, str(one.path), kind, score, one.width, one.height, one.bytes])
            for one, kind, score in _rows(group)
        ]
    return "".join(lines)


def _shown(group: "Group") -> list[tuple[Path | None, str]]:
    """The entries of a group's row on the contact sheet."""
    return [(one.path, f"{kind}  {one.width}x{one.height}") for one, kind, _ in _rows(group)]
