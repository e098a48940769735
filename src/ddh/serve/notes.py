"""What people keep with a collection: tags of pictures, and searches by name.

Both are texts beside the index (its settings), in every engine, so that no row is written anew.
"""

import json
import threading
from collections.abc import Sequence
from typing import Any

from ddh._core.errors import DDHError, InputError
from ddh.index import Index
from ddh.index.features import SETTING_CHARACTERS as PART
from ddh.index.header import PAGE_SETTING
from ddh.serve.names import folded

TAGS, SEARCHES = f"{PAGE_SETTING}tags", f"{PAGE_SETTING}searches"
MAX_TAGS, MAX_TAGGED, MAX_SEARCHES = 500, 200_000, 200
MAX_NAME = 60  # characters


class Notes:
    """Tags and saved searches of one index. Safe for threads; other processes' changes are seen."""

    def __init__(self, index: Index) -> None:
        self._index, self._lock = index, threading.Lock()

    def tags(self) -> dict[str, list[str]]:
        """The keys of each tag, tags by name."""
        found = self._read(TAGS, {})
        return {tag: found[tag] for tag in sorted(found)}

    def tag(self, keys: Sequence[str], add: Sequence[str], remove: Sequence[str]) -> None:
        """Add tags to pictures and remove others."""
        with self._lock:
            tags = self.tags()
            for name in map(_tag_name, add):
                tags[name] = list(dict.fromkeys([*tags.get(name, []), *keys]))
            for name in map(_tag_name, remove):
                gone = set(keys)
                tags[name] = [key for key in tags.get(name, []) if key not in gone]
            tags = {name: tagged for name, tagged in tags.items() if tagged}
            if len(tags) > MAX_TAGS or sum(map(len, tags.values())) > MAX_TAGGED:
                raise InputError(
                    f"a collection has at most {MAX_TAGS} tags, on {MAX_TAGGED:,} pictures in all"
                )
            self._write(TAGS, tags)

    def searches(self) -> list[dict[str, str]]:
        """Saved searches, each with its name and the address that shows it."""
        return list(self._read(SEARCHES, []))

    def save(self, name: str, address: str) -> list[dict[str, str]]:
        """Save a search, or replace the one of this name; an empty address deletes it."""
        name = " ".join(name.split())
        if not name or len(name) > MAX_NAME:
            raise InputError(f"a saved search has a name of 1 to {MAX_NAME} characters")
        with self._lock:
            kept = [search for search in self.searches() if search["name"] != name]
            if address:
                kept.append({"name": name, "address": address})
            if len(kept) > MAX_SEARCHES:
                raise InputError(f"at most {MAX_SEARCHES} searches are saved: delete some")
            self._write(SEARCHES, kept)
            return kept

    def _read(self, name: str, default: Any) -> Any:
        settings = self._index.settings()
        parts, text = int(settings.get(name, "0")), ""
        for part in range(parts):
            text += settings.get(f"{name}_{part}", "")
        try:
            return json.loads(text) if text else default
        except ValueError as error:
            raise DDHError(f"the {name} of this index are damaged: {error}") from error

    def _write(self, name: str, value: Any) -> None:
        text = json.dumps(value)
        parts = [text[start : start + PART] for start in range(0, len(text), PART)]
        values = {f"{name}_{i}": part for i, part in enumerate(parts)}
        self._index.set_setting(**{name: str(len(parts))}, **values)


def _tag_name(name: str) -> str:
    tag = folded(name.strip().lstrip("#").strip()).replace(" ", "-")
    if not tag or len(tag) > MAX_NAME or not tag.isprintable() or '"' in tag:
        raise InputError(f"a tag is a word of 1 to {MAX_NAME} characters, not {name[:80]!r}")
    return tag
