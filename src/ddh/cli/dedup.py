"""`ddh dedup`: groups of near-duplicates, and which image of each to keep."""

import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddh._core.errors import InputError
from ddh._core.output import csv_line, emit, json_option, quiet_option
from ddh._core.progress import track
from ddh.cli.index import open_collection
from ddh.cli.options import ANY_PATH, NEW_FOLDER, index_option, sheet_option
from ddh.cli.search import draw_sheet

if TYPE_CHECKING:
    from ddh.duplicates import DuplicateGroup
    from ddh.index.collection import Collection

SHOWN_GROUPS = 20
SHEET_GROUPS = 200
DEFAULT_SHARE = 0.95

Member = dict[str, Any]  # key, file, width, height, bytes, distance to the best in bits, keep


@click.command()
@index_option
@click.option("--radius", type=int, help="Largest Hamming distance between two images, in bits.")
@click.option(
    "--share", type=float,
    help=f"Smallest fraction of equal bits, instead of --radius.  [default: {DEFAULT_SHARE}]",
)  # fmt: skip
@click.option("--folder", help="Look below this folder of the collection only.")
@click.option("-o", "--out", type=ANY_PATH, help="Write the groups: .csv, .json.")
@sheet_option
@click.option(
    "--move-to", type=NEW_FOLDER, help="Move all but the best of each group into this folder."
)
@json_option
@quiet_option
def dedup(
    location: str, radius: int | None, share: float | None, folder: str | None, out: Path | None,
    sheet: Path | None, move_to: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Find groups of near-duplicates and suggest which image of each to keep.

    The best image is the one with the most pixels, then the most bytes, then the one indexed
    first. Nothing is changed unless --move-to says where to; nothing is ever deleted.

    \b
    ddh dedup --index photos.index --sheet duplicates.png
    ddh dedup --index photos.index --radius 2 -o duplicates.csv
    ddh dedup --index photos.index --move-to duplicates/
    """
    from ddh.duplicates import find_groups

    if out is not None and out.suffix not in (".csv", ".json"):
        raise InputError(f"the groups are written to .csv or .json, not {out.name!r}")
    with open_collection(location, None) as collection:
        within = _radius(radius, share, collection.index.bits)
        found = find_groups(collection.index, within, folder=folder)
        groups = [_ranked(collection, group) for group in track(found, "Measuring", unit="group")]
        extra = [member for group in groups for member in group if not member["keep"]]
        document: dict[str, Any] = {
            "index": location, "radius": within, "groups": groups, "duplicates": len(extra),
            "bytes": sum(member["bytes"] for member in extra),
        }  # fmt: skip
        if out is not None:
            text = _csv(groups) if out.suffix == ".csv" else json.dumps(document, indent=2)
            out.write_text(text, newline="")
        if sheet is not None and groups:
            draw_sheet(map(_shown, groups[:SHEET_GROUPS]), sheet)
        if move_to is not None:
            document["moved"] = _move(collection, extra, move_to)
    emit(document, _text(document, move_to), as_json)


def _radius(radius: int | None, share: float | None, bits: int) -> int:
    if radius is not None and share is not None:
        raise InputError("give --radius or --share, not both")
    if radius is not None:
        if not 0 <= radius <= bits:
            raise InputError(f"--radius is a number of bits from 0 to {bits}, not {radius}")
        return radius
    share = DEFAULT_SHARE if share is None else share
    if not 0 < share <= 1:
        raise InputError(f"--share lies between 0 and 1, not {share}")
    return math.floor((1 - share) * bits + 1e-9)


def _ranked(collection: "Collection", group: "DuplicateGroup") -> list[Member]:
    """The members of a group, the one to keep first, the others by their distance to it."""
    from ddh.duplicates import measure, rank

    rows = collection.index.get_many([hit.key for hit in group])
    files = {row.key: collection.file(row.key) for row in rows}
    ranked = rank(rows, [measure(file) for file in files.values()])
    return [
        {
            "key": row.key, "file": files[row.key] and str(files[row.key]), **size._asdict(),
            "distance": distance, "keep": place == 0,
        }
        for place, (row, size, distance) in enumerate(ranked)
    ]  # fmt: skip


def _text(document: dict[str, Any], move_to: Path | None) -> str:
    groups, radius = document["groups"], document["radius"]
    if not groups:
        return f"No two images lie within {radius} bits of each other."
    lines = [
        f"{len(groups):,} groups within {radius} bits: {document['duplicates']:,} "
        f"images could go ({document['bytes'] / 1e6:,.1f} MB)."
    ]
    for group in groups[:SHOWN_GROUPS]:
        lines.append("")
        lines += [
            f"  {'keep' if m['keep'] else '':<4}  {m['distance']:>4} bits  "
            f"{m['width']:>5} x {m['height']:<5}  {m['file'] or m['key']}"
            for m in group
        ]
    if (more := len(groups) - SHOWN_GROUPS) > 0:
        lines += ["", f"... and {more:,} more groups: -o duplicates.csv or --json lists them all."]
    moved = "Nothing was changed. --move-to FOLDER moves all but the best of each group."
    if move_to is not None:
        moved = f"Moved {document['moved']:,} images to {move_to}."
    return "\n".join([*lines, "", moved])


def _csv(groups: list[list[Member]]) -> str:
    lines = [csv_line(["group", "key", "file", "width", "height", "bytes", "distance", "keep"])]
    for number, group in enumerate(groups, 1):
        lines += [csv_line([number, *member.values()]) for member in group]
    return "".join(lines)


def _shown(group: list[Member]) -> list[tuple[Path | None, str]]:
    """The entries of a group's row on the contact sheet."""
    return [
        (
            Path(m["file"]) if m["file"] else None,
            f"{'keep' if m['keep'] else str(m['distance']) + ' bits'}  {m['width']}x{m['height']}",
        )
        for m in group
    ]


def _move(collection: "Collection", extra: list[Member], folder: Path) -> int:
    """Move all but the best of each group, under their keys, and drop their rows."""
    if collection.root is None:
        raise InputError("the indexed folder is not where it was: run `ddh index add` on it first")
    if folder.resolve().is_relative_to(collection.root):
        raise InputError(f"{folder} lies inside of the indexed folder: choose one outside of it")
    moved = 0
    for key in (member["key"] for member in extra):
        source, target = collection.root / key, folder / key
        if not source.is_file():
            continue
        if target.exists():
            raise InputError(f"{target} is there already; {moved} images were moved before")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, target)
        collection.index.delete([key])
        moved += 1
    return moved
