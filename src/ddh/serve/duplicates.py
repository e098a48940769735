"""Verified duplicates of the collection: found in the background, remembered, and acted upon."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from starlette.exceptions import HTTPException

from ddh._core.output import csv_line
from ddh.duplicates import Outcome, Removal, act, undo
from ddh.duplicates.actions import Action
from ddh.duplicates.dismissed import Dismissed
from ddh.duplicates.journal import new_journal
from ddh.duplicates.lists import Pair, verify
from ddh.duplicates.results import Skipped
from ddh.images.decoding import printable
from ddh.index import Index, Row
from ddh.serve.catalog import Catalog
from ddh.serve.disk_cache import DiskCache
from ddh.serve.duplicate_search import Found, SearchProcess
from ddh.serve.items import Pictures, picture_name

LOG = logging.getLogger("ddh.serve")
VERSION = b"1"  # change it when remembered results would mean something else
MAX_UNDONE = 50  # actions that are remembered
KEEP, SIMILAR = "keep", "similar"  # what stands for the kind of a kept picture, of a look-alike
FACTS = ("width", "height", "bytes", "digest")
COLUMNS = ("group", "path", "kind", "score", *FACTS)

ListName = Literal["duplicates", "similar"]
Wanted = Mapping[str, Sequence[str]]  # kept key -> keys that may go


@dataclass(frozen=True)
class Copy:
    """A picture of a group: its row and file, and how it differs from the kept one."""

    key: str
    name: str  # of its file, below the folders of the collection
    kind: str
    score: float
    facts: dict[str, Any]  # width, height, bytes and digest where they are known

    @property
    def digest(self) -> str:
        return str(self.facts.get("digest", ""))


Group = list[Copy]  # the one to keep first


class Duplicates:
    """Finds groups, remembers them in a cache, and acts on them. For one thread at a time."""

    def __init__(
        self, location: str, index: Index, writer: Index, pictures: Pictures, cache: DiskCache
    ) -> None:
        self._index, self._writer, self._pictures, self._cache = index, writer, pictures, cache
        local = index.engine == "local"
        self._name = str(Path(location).resolve()) if local else location
        self._process: SearchProcess | None = None
        self._failed, self._closing = False, False
        self._results: dict[str, Any] = self._recall(b"results") or {}
        self._actions: list[dict[str, Any]] = self._recall(b"actions") or []

    # -- searching ---------------------------------------------------------------------------

    def start(self, name: str, catalog: Catalog) -> None:
        """Look for duplicates among all files of the collection, unless that is being done."""
        if self._pictures.root is None:
            raise HTTPException(
                403, "the pictures are not at hand: start the service with --root FOLDER"
            )
        if self._process is not None or self._closing:
            return
        rows, absent = _rows_id(catalog), 0
        files: dict[str, tuple[str, str]] = {}
        for row in self._index.items():
            if file := self._file(row):
                files[str(file)] = row.key, picture_name(row)
            else:
                absent += 1

        def finished(found: Found | None) -> None:
            self._failed = found is None and not self._closing
            if found is not None:
                self._results = _by_key(found, files) | {"rows": rows}
                self._results["skipped"] += absent
            self._process = None
            if found is not None:
                self._remember(b"results", self._results)

        self._failed = False
        self._process = SearchProcess(name, list(files), finished)

    def stop(self) -> None:
        """Stop a search that is running."""
        if (process := self._process) is not None:
            self._closing = True
            process.stop()
            self._closing = False

    def close(self) -> None:
        """Stop for good."""
        self._closing = True
        if (process := self._process) is not None:
            process.stop()

    def state(self, catalog: Catalog) -> dict[str, Any]:
        """Whether there are results, and how far a search is."""
        process, results = self._process, self._results
        state = "ready" if results else "failed" if self._failed else "none"
        return {
            "state": "running" if process is not None else state,
            "message": process.message if process is not None else "",
            "done": process.done if process is not None else None,
            "finished": results.get("finished"),
            "compared": results.get("compared", 0),
            "skipped": results.get("skipped", 0),
            "outdated": bool(results) and results["rows"] != _rows_id(catalog),
            "undo": self._actions[-1] if self._actions else None,
        }

    # -- what was found ----------------------------------------------------------------------

    def groups(self, name: ListName = "duplicates", kind: str = "") -> list[Group]:
        """Groups without the files that are gone and the pairs that someone has dismissed."""
        dismissed = Dismissed.read(self._index)
        found = []
        for stored in self._results.get(name, []):
            kept, *members = (Copy(**copy) for copy in stored)
            if not self._pictures.exists(kept.name):
                continue
            shown = [
                copy
                for copy in members
                if (kept.digest, copy.digest) not in dismissed and self._pictures.exists(copy.name)
            ]
            if any(not kind or copy.kind == kind for copy in shown):
                found.append([kept, *shown])
        return found

    def page(self, groups: Sequence[Group], *, show_paths: bool) -> list[dict[str, Any]]:
        """Groups as in the JSON response; rows deleted since are left out."""
        rows = {
            row.key: row
            for row in self._index.get_many([copy.key for group in groups for copy in group])
        }
        shown = []
        for group in groups:
            items = [
                self._item(copy, rows[copy.key], show_paths) for copy in group if copy.key in rows
            ]
            if len(items) > 1 and items[0]["key"] == group[0].key:
                shown.append({"items": items, "keep": group[0].key})
        return shown

    def _item(self, copy: Copy, row: Row, show_paths: bool) -> dict[str, Any]:
        return {
            **self._pictures.item(row),
            **{name: copy.facts.get(name) for name in FACTS},
            "kind": copy.kind,
            "score": copy.score,
            "file": self._path(row, show_paths),
        }

    def csv(self, groups: Sequence[Group], *, show_paths: bool) -> Iterator[str]:
        """All groups as a table that `ddh dedup --apply` takes."""
        yield csv_line(COLUMNS)
        for number, group in enumerate(self.page(groups, show_paths=show_paths), 1):
            for item in group["items"]:
                values = [item["file"], *(item[name] for name in COLUMNS[2:])]
                yield csv_line([number, *values])

    def _path(self, row: Row, show_paths: bool) -> str:
        file = self._file(row) if show_paths else None
        return picture_name(row) if file is None else printable(file)

    def _file(self, row: Row) -> Path | None:
        return self._pictures.file(picture_name(row))

    # -- actions -----------------------------------------------------------------------------

    def act(
        self, action: Action, wanted: Wanted, folder: Path | None, after: str | None = None
    ) -> dict[str, Any]:
        """Take pictures away; pairs that were not found together are verified first.

        `after` names the journal of an action that this one continues: one undo is for both.
        """
        known = self._known()
        keys = {key for keep, keys in wanted.items() for key in (keep, *keys)}
        files = {row.key: self._file(row) for row in self._index.get_many(list(keys))}
        removals, pairs, refused = list[Removal](), list[Pair](), list[Skipped]()
        for keep, others in wanted.items():
            for key in others:
                path, kept = files.get(key), files.get(keep)
                if path is None or kept is None:
                    gone = key if path is None else keep
                    refused.append(Skipped(Path(key), f"{gone} is not there"))
                elif (keep, key) in known:
                    removals.append(Removal(path, kept, *known[keep, key]))
                else:
                    pairs.append(Pair(path, kept))
        verified, unverified = verify(pairs)
        outcome = act([*removals, *verified], action, folder=folder)
        outcome.refused += unverified
        if outcome.done:
            self._noted(action, outcome, after)
        outcome.refused += refused
        return self._answer(outcome)

    def _known(self) -> dict[tuple[str, str], tuple[str, str, str]]:
        """Kind and digests of the pairs that were verified."""
        known = {}
        for stored in self._results.get("duplicates", []):
            kept, *members = (Copy(**copy) for copy in stored)
            for copy in members:
                known[kept.key, copy.key] = copy.kind, copy.digest, kept.digest
        return known

    def _noted(self, action: Action, outcome: Outcome, after: str | None) -> None:
        name, files = outcome.journal.name, len(outcome.done)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"journal": name, "parts": [name], "action": action, "files": files, "time": now}
        others = list(self._actions)
        if others and after == others[-1]["journal"] and others[-1]["action"] == action:
            first = others.pop()
            entry |= {"journal": after, "files": first["files"] + files}
            entry["parts"] = [*_parts(first), name]
        self._actions = [*others, entry][-MAX_UNDONE:]
        self._remember(b"actions", self._actions)

    def undo(self, journal: str) -> dict[str, Any]:
        """Restore what one of the last actions did, by the name of its journal."""
        entry = next((each for each in self._actions if each["journal"] == journal), None)
        if entry is None:
            raise HTTPException(404, "there is no such action to undo")
        outcome, *others = (undo(new_journal().with_name(name)) for name in _parts(entry)[::-1])
        for other in others:
            outcome.done += other.done
            outcome.refused += other.refused
        if not outcome.refused:
            self._actions = [entry for entry in self._actions if entry["journal"] != journal]
            self._remember(b"actions", self._actions)
        return self._answer(outcome)

    def _answer(self, outcome: Outcome) -> dict[str, Any]:
        """An outcome in names of the collection."""
        return {
            "journal": outcome.journal.name if outcome.done else None,
            "done": [self._pictures.name(path) for path in outcome.done],
            "refused": [
                {
                    "name": self._pictures.name(one.path),
                    "reason": self._pictures.without_roots(one.reason),
                }
                for one in outcome.refused
            ],
        }

    def dismiss(self, wanted: Wanted, *, are_duplicates: bool) -> None:
        """Remember that pictures are no duplicates of others, or forget it."""
        digests = {
            copy["key"]: copy["facts"]["digest"]
            for stored in self._results.get("duplicates", [])
            for copy in stored
        }
        pairs = [
            (digests[keep], digests[key])
            for keep, others in wanted.items()
            for key in others
            if keep in digests and key in digests
        ]
        known = Dismissed.read(self._writer)
        known.changed(pairs, are_duplicates=are_duplicates).write(self._writer)

    # -- what is remembered ------------------------------------------------------------------

    def _recall(self, what: bytes) -> Any:
        content = self._cache.get(self._cached(what))
        try:
            return None if content is None else json.loads(content)
        except ValueError:
            return None

    def _remember(self, what: bytes, value: Any) -> None:
        self._cache.put(self._cached(what), json.dumps(value).encode())

    def _cached(self, what: bytes) -> str:
        content = VERSION + what + self._name.encode("utf-8", "surrogateescape")
        return hashlib.blake2b(content, digest_size=16).hexdigest()


def _parts(entry: dict[str, Any]) -> list[str]:
    """The journals of an action."""
    parts: list[str] = entry.get("parts", [entry["journal"]])
    return parts


def kinds(groups: Sequence[Group]) -> dict[str, int]:
    """How many pictures of each kind could go."""
    return dict(Counter(copy.kind for group in groups for copy in group[1:]).most_common())


def removable_bytes(groups: Sequence[Group]) -> int:
    """The bytes of the pictures that could go."""
    return sum(copy.facts.get("bytes") or 0 for group in groups for copy in group[1:])


def _by_key(found: Found, files: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """What was found, with rows in the place of paths."""
    rows = {printable(path): row for path, row in files.items()}

    def copy(path: str, kind: str, score: float, entry: dict[str, Any]) -> dict[str, Any]:
        key, name = rows[path]
        facts = {fact: entry[fact] for fact in FACTS if fact in entry}
        return {"key": key, "name": name, "kind": kind, "score": score, "facts": facts}

    return {
        "duplicates": [
            [copy(group["keep"], KEEP, 1.0, group)]
            + [copy(one["path"], one["kind"], one["score"], one) for one in group["members"]]
            for group in found["groups"]
        ],
        "similar": [
            [copy(path, SIMILAR, pair["score"], {}) for path in pair["paths"]]
            for pair in found["similar"]
        ],
        "compared": found["compared"],
        "skipped": len(found["skipped"]),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _rows_id(catalog: Catalog) -> str:
    """Changes when rows are added, removed or renamed."""
    digest = hashlib.blake2b(digest_size=16)
    for key in catalog.keys:
        digest.update(key.encode() + b"\0")
    return digest.hexdigest()
