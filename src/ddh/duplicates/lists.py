"""Lists of duplicates that come back: JSON as printed, or CSV, both perhaps edited by hand."""

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh.duplicates.actions import Removal
from ddh.duplicates.finding import find_duplicates
from ddh.duplicates.keeping import DEFAULT_KEEP
from ddh.duplicates.results import Picture, Skipped
from ddh.images.decoding import unprintable

FORMATS = (
    'a list is JSON as `ddh dedup --json` prints it, {"groups": [{"keep": PATH, "members": '
    '[{"path": PATH}]}]}, or CSV with the columns group, path and kind, where the kind of the '
    "picture to keep is keep"
)


class Pair(NamedTuple):
    """A picture that may go and the one that stays, with their digests where the list has them."""

    path: Path
    keep: Path
    digest: str | None = None
    keep_digest: str | None = None


def read_list(file: str | os.PathLike[str]) -> list[Pair]:
    """The pairs of a list, JSON or CSV by its content."""
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the list {file} cannot be read: {error}") from error
    try:
        pairs = list(_json_pairs(text) if text.lstrip()[:1] in "{[" else _csv_pairs(text))
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"the list {file} cannot be used ({reason}): {FORMATS}") from error
    return pairs


def verify(pairs: Iterable[Pair]) -> tuple[list[Removal], list[Skipped]]:
    """Compare pairs on their pixels again: those that hold, and those that are refused."""
    groups: dict[Path, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.keep, []).append(pair)
    removals, refused = list[Removal](), list[Skipped]()
    for keep, group in track(list(groups.items()), "Verifying", unit="group"):
        together = _holding(keep, [pair.path for pair in group])
        for pair in group:
            found = _compare(pair, together)
            if isinstance(found, Removal):
                removals.append(found)
            else:
                refused.append(Skipped(pair.path, found))
    return removals, refused


def _compare(pair: Pair, together: dict[Path, Removal]) -> Removal | str:
    """A pair that holds, or why it does not."""
    for path in (pair.keep, pair.path):
        if not path.is_file():
            return f"{'it' if path is pair.path else f'the kept picture {path}'} is not there"
    # The rule of a search may keep another picture of the group than the list does.
    found = together.get(pair.path) or _holding(pair.keep, [pair.path]).get(pair.path)
    if found is None:
        return f"it is not a duplicate of {pair.keep}"
    if pair.digest not in (None, found.digest):
        return "it has changed since the list was made"
    if pair.keep_digest not in (None, found.keep_digest):
        return f"the kept picture {pair.keep} has changed since the list was made"
    return found


def _holding(keep: Path, paths: list[Path]) -> dict[Path, Removal]:
    """The files that are duplicates of the kept one, by their paths."""
    holding: dict[Path, Removal] = {}
    files = [path for path in (keep, *paths) if path.is_file()]
    if not keep.is_file() or len(files) < 2:
        return holding
    # A pair may be kept either way, whatever the default rule says of it.
    for group in find_duplicates(files, keep=DEFAULT_KEEP if len(paths) > 1 else "path"):
        kinds: dict[Path, tuple[Picture, str]] = {group.keep.path: (group.keep, "")}
        kinds |= {one.picture.path: (one.picture, one.kind) for one in group.members}
        if keep in kinds and (group.keep.path == keep or len(paths) == 1):
            kept = kinds.pop(keep)
            for path, (picture, kind) in kinds.items():
                kind = kind or kept[1]
                holding[path] = Removal(path, keep, kind, picture.digest, kept[0].digest)
    return holding


def _json_pairs(text: str) -> Iterator[Pair]:
    for group in json.loads(text)["groups"]:
        keep = _path(group["keep"])
        for member in group["members"]:
            yield Pair(_path(member["path"]), keep, member.get("digest"), group.get("digest"))


def _csv_pairs(text: str) -> Iterator[Pair]:
    head = text.partition("\n")[0]
    delimiter = max(",;\t", key=head.count)  # what spreadsheets of various countries write
    groups: dict[str, list[dict[str, Any]]] = {}
    table = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    if not {"group", "path", "kind"} <= set(table.fieldnames or ()):
        raise ValueError("a column is missing")
    for row in table:
        if any(row.values()):
            groups.setdefault(row["group"], []).append(row)
    for name, rows in groups.items():
        kept = [row for row in rows if row["kind"].strip() == "keep"]
        if len(kept) != 1:
            raise ValueError(f"group {name} has {len(kept)} pictures to keep")
        for row in rows:
            if row is not kept[0]:
                digests = row.get("digest") or None, kept[0].get("digest") or None
                yield Pair(_path(row["path"]), _path(kept[0]["path"]), *digests)


def _path(text: str) -> Path:
    """A path as `printable` and `csv_line` write it: odd bytes, and the apostrophe of formulas."""
    for read in (text, text[1:] if re.match(r"'[=+\-@\t\r]", text) else text, unprintable(text)):
        with suppress(ValueError):
            if read and os.path.lexists(read):
                return Path(read)
    if not text:
        raise ValueError("a path is empty")
    return Path(text)
