"""`ddh dedup`: verified duplicates in folders of pictures, and which picture of each to keep."""

import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddh._core.cache import cache_folder
from ddh._core.errors import InputError
from ddh._core.output import csv_line, describe_failures, emit, escaped, json_option, quiet_option
from ddh.cli.index import find_folder, open_collection
from ddh.cli.options import EXISTING, FILE, NEW_FILE, NEW_FOLDER, sheet_option
from ddh.cli.search import MISSING, draw_sheet

if TYPE_CHECKING:
    from ddh.duplicates import Duplicates, Group, Outcome, Picture, Skipped
    from ddh.duplicates.actions import Action
    from ddh.index.collection import Collection

# the rules of `ddh.duplicates.keeping`, named here so that a usage error imports nothing
KEEP = ("pixels", "bytes", "smallest", "oldest", "newest", "path", "shortest-path")
SHOWN_GROUPS = 20
SHEET_GROUPS = 200


@click.command()
@click.argument("folders", nargs=-1, type=EXISTING)
@click.option(
    "-i", "--index", "location", metavar="INDEX",
    help="Compare the files of this index; without folders, those of `ddh add`.",
)  # fmt: skip
@click.option(
    "--folder", help="With --index: below this folder only, by its path or its name in keys."
)
@click.option(
    "--keep", type=click.Choice(KEEP), default="pixels",
    help="Which picture of a group stays: the one with the most pixels, the most or fewest bytes, "
    "the oldest, the newest, or by its path.",
)  # fmt: skip
@click.option(
    "--cache/--no-cache", default=True,
    help="Keep what was measured in the user's cache folder: a second run reads new files only.",
)  # fmt: skip
@click.option("-o", "--out", type=NEW_FILE, help="Write the groups: .csv, .json.")
@sheet_option
@click.option("--move-to", type=NEW_FOLDER, help="Move the duplicates to this folder.")
@click.option("--trash", is_flag=True, help="Move the duplicates to the system's trash.")
@click.option(
    "--hardlink", is_flag=True, help="Replace identical files by hard links to the kept picture."
)
@click.option(
    "--journal", type=NEW_FILE,
    help="New file that lists what was done, for --undo; by default in the user's state folder.",
)  # fmt: skip
@click.option(
    "--apply", "listed", type=FILE, metavar="FILE",
    help="Act on the list in this file (.json, .csv), verified again, instead of searching.",
)  # fmt: skip
@click.option(
    "--undo", "undone", type=FILE, metavar="JOURNAL", help="Restore what a journal lists."
)
@json_option
@quiet_option
@click.pass_context
def dedup(
    ctx: click.Context, folders: tuple[Path, ...], location: str | None, folder: str | None,
    keep: str, cache: bool, out: Path | None, sheet: Path | None, move_to: Path | None, trash: bool,
    hardlink: bool, journal: Path | None, listed: Path | None, undone: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Find duplicates in folders and suggest which picture of each group to keep.

    Needs no model and no index. Every duplicate is verified against the kept picture on its
    pixels; what is only alike is listed apart and never proposed for removal. A picture without
    text or a watermark is kept, with the most pixels (borders apart), then one in colour, with the
    camera's EXIF and sharp, then the most bytes per pixel, the better format, the oldest file and
    the first path, unless --keep says otherwise.

    Nothing is changed unless --move-to, --trash or --hardlink says so, and --undo restores it.
    Files that have changed since they were compared are left alone and named.

    \b
    ddh dedup photos/ phone/ --sheet duplicates.png
    ddh dedup photos/ --keep oldest -o duplicates.csv
    ddh dedup --apply duplicates.csv --trash
    ddh dedup --index photos.index --json
    """
    from ddh.duplicates import act, find_duplicates, removals, undo
    from ddh.duplicates.dismissed import Dismissed
    from ddh.index.location import default_location

    action = _action(move_to, trash, hardlink)
    searches = bool(folders) or location is not None
    if undone is not None:
        if action or listed or searches:
            raise InputError("--undo takes nothing but its journal")
        restored = undo(undone)
        _report(ctx, {"restored": restored.as_json()}, _undone(restored), restored, as_json)
        return
    if listed is not None:
        if action is None or searches:
            raise InputError("--apply takes no folders, and --move-to, --trash or --hardlink")
        from ddh.duplicates.lists import read_list, verify

        wanted, refused = verify(read_list(listed))
        outcome = act(wanted, action, folder=move_to, journal=journal)
        outcome.refused[:0] = refused
        _report(ctx, {"acted": outcome.as_json()}, _acted(outcome, action), outcome, as_json)
        return
    if out is not None and out.suffix not in (".csv", ".json"):
        raise InputError(f"the groups are written to .csv or .json, not {out.name!r}")
    if location is not None and folders:
        raise InputError("give folders of pictures, or an index with --index, not both")
    stored = cache_folder() / "fingerprints.sqlite" if cache else None
    if folders:
        _refuse_inside(move_to, folders)
        found = find_duplicates(folders, keep=keep, cache=stored)
    else:
        with open_collection(location or default_location(), None) as collection:
            files, missing = indexed_files(collection, folder)
            _refuse_inside(move_to, [root.path for root in collection.roots])
            found = find_duplicates(files, keep=keep, cache=stored)
            found.skipped[:0] = missing
            found = Dismissed.read(collection.index).without(found)
    if out is not None:
        text = _csv(found) if out.suffix == ".csv" else json.dumps(found.as_json(), indent=2)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, newline="", encoding="utf-8")
    if sheet is not None and found.groups:
        draw_sheet(map(_shown, found.groups[:SHEET_GROUPS]), sheet)
    shown = "\n\n".join(filter(None, [_text(found, out), _written(found, out, sheet)]))
    if action is None:
        emit(found.as_json(), f"{shown}\n\nNothing was changed.", as_json)
        return
    wanted = [one for one in removals(found) if action != "hardlink" or one.kind == "identical"]
    outcome = act(wanted, action, folder=move_to, journal=journal)
    document = found.as_json() | {"acted": outcome.as_json()}
    _report(ctx, document, f"{shown}\n\n{_acted(outcome, action)}", outcome, as_json)


def _action(move_to: Path | None, trash: bool, hardlink: bool) -> "Action | None":
    chosen: list[Action] = []
    chosen += ["move"] if move_to is not None else []
    chosen += ["trash"] if trash else []
    chosen += ["hardlink"] if hardlink else []
    if len(chosen) > 1:
        raise InputError("give one of --move-to, --trash and --hardlink")
    return chosen[0] if chosen else None


def _refuse_inside(move_to: Path | None, folders: Iterable[Path]) -> None:
    for folder in folders:
        if move_to is not None and move_to.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{move_to} lies inside of {folder}: choose a folder outside of it")


def _report(
    ctx: click.Context, document: dict[str, Any], text: str, outcome: "Outcome", as_json: bool
) -> None:
    """Print the result; files that were left alone make the command fail."""
    emit(document, text, as_json)
    if outcome.refused:
        ctx.exit(1)


def _acted(outcome: "Outcome", action: "Action") -> str:
    what = {"move": "Moved", "trash": "Moved to the trash", "hardlink": "Replaced by hard links"}
    lines = [f"{what[action]}: {len(outcome.done):,} files."]
    if outcome.done:
        lines.append(f"Undo it with: ddh dedup --undo {shlex.quote(str(outcome.journal))}")
    return "\n".join(lines + _refusals(outcome))


def _undone(outcome: "Outcome") -> str:
    lines = [f"In their old places: {len(outcome.done):,} files."]
    return "\n".join(lines + _refusals(outcome))


def _refusals(outcome: "Outcome") -> list[str]:
    lines = [f"  {file.path}: {file.reason}" for file in outcome.refused]
    return [f"Left alone: {len(lines):,} files.", *lines] if lines else []


def indexed_files(
    collection: "Collection", folder: str | None
) -> tuple[list[Path], list["Skipped"]]:
    """The files of an index that are there, and those that are not."""
    from ddh.duplicates import Skipped

    files, missing = list[Path](), list[Skipped]()
    for row in collection.index.items(folder=folder and find_folder(collection, folder)):
        file = collection.roots.file(row.path or row.key)
        if file is not None and file.is_file():
            files.append(file)
        elif row.path is not None:
            why = MISSING.get(collection.missing(row) or "", "its folder is not known")
            missing.append(Skipped(file or Path(row.path), why))
    if not files:
        away = ", ".join(escaped(root.path) for root in collection.roots if not root.is_there)
        mount = f"mount {away}, or " if away else ""
        raise InputError(
            f"none of the {len(missing):,} pictures is there: {mount}run `ddh index add` on the "
            "folder that holds them now"
        )
    return files, missing


def _text(found: "Duplicates", out: Path | None) -> str:
    lines = [_summary(found)]
    for group in found.groups[:SHOWN_GROUPS]:
        lines += ["", _line("keep", group.keep)]
        lines += [_line(member.kind, member.picture) for member in group.members]
    if (more := len(found.groups) - SHOWN_GROUPS) > 0:
        where = "-o duplicates.csv or --json lists" if out is None else f"{out} lists"
        lines += ["", f"... and {more:,} more groups: {where} them all."]
    if found.similar:
        lines += ["", f"{len(found.similar):,} more pairs are alike, but not the same (--json)."]
    failures = [{"name": str(one.path), "reason": one.reason} for one in found.skipped]
    lines += ["", describe_failures(failures)] if failures else []
    return "\n".join(lines)


def _written(found: "Duplicates", out: Path | None, sheet: Path | None) -> str:
    """The files that were written."""
    lines = [f"List: {out}"] if out is not None else []
    if sheet is not None and not found.groups:
        lines.append("Contact sheet: not drawn, as there are no duplicates")
    elif sheet is not None:
        more = len(found.groups) > SHEET_GROUPS
        lines.append(
            f"Contact sheet: {sheet}{f', the first {SHEET_GROUPS} groups' if more else ''}"
        )
    return "\n".join(lines)


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
    from ddh.images.decoding import printable

    lines = [csv_line(["group", "path", "kind", "score", "width", "height", "bytes", "digest"])]
    for number, group in enumerate(found.groups, 1):
        lines += [
            csv_line(
                [
                    number,
                    printable(one.path),
                    kind,
                    score,
                    one.width,
                    one.height,
                    one.bytes,
                    one.digest,
                ]
            )
            for one, kind, score in _rows(group)
        ]
    return "".join(lines)


def _shown(group: "Group") -> list[tuple[Path | None, str]]:
    """The entries of a group's row on the contact sheet."""
    return [(one.path, f"{kind}  {one.width}x{one.height}") for one, kind, _ in _rows(group)]
