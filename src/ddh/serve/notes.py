"""What people keep with a collection: tags of pictures, and searches by name.

Both are texts beside the index (its settings), in every engine, so that no row is written anew.
"""

import threading
from collections.abc import Sequence

from ddh._core.errors import InputError
from ddh.index import Index
from ddh.index.page_settings import SEARCHES, TAGS, read_page_setting, write_page_setting
from ddh.serve.names import folded

MAX_TAGS, MAX_TAGGED, MAX_SEARCHES = 500, 200_000, 200
MAX_NAME = 60  # characters


class Notes:
    """Tags and saved searches of one index. Safe for threads; other processes' changes are seen."""

    def __init__(self, index: Index) -> None:
        self._index, self._lock = index, threading.Lock()

    def tags(self) -> dict[str, list[str]]:
        """The keys of each tag, tags by name."""
        found: dict[str, list[str]] = read_page_setting(self._index, TAGS, {})
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
            write_page_setting(self._index, TAGS, tags)

    def searches(self) -> list[dict[str, str]]:
        """Saved searches, each with its name and the address that shows it."""
        return list(read_page_setting(self._index, SEARCHES, []))

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
            write_page_setting(self._index, SEARCHES, kept)
            return kept


def _tag_name(name: str) -> str:
    tag = folded(name.strip().lstrip("#").strip()).replace(" ", "-")
    if not tag or len(tag) > MAX_NAME or not tag.isprintable() or '"' in tag:
        raise InputError(f"a tag is a word of 1 to {MAX_NAME} characters, not {name[:80]!r}")
    return tag
