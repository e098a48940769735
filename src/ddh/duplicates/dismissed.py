"""Pairs that someone has said are no duplicates, remembered with the index."""

import json
from collections.abc import Iterable
from dataclasses import replace

from ddh.duplicates.results import Duplicates, Group
from ddh.index import Index
from ddh.index.header import PAGE_SETTING

SETTING = f"{PAGE_SETTING}not_duplicates"
DIGITS = 12  # of each digest: enough to tell the pictures of a collection apart
MAX_PAIRS = 2000  # what fits into a setting of every engine; the oldest are forgotten

Pair = tuple[str, str]  # digests of two files


class Dismissed:
    """Pairs of digests, in any order; files may be renamed and moved."""

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._pairs = dict.fromkeys(_short(pair) for pair in pairs)

    @classmethod
    def read(cls, index: Index) -> "Dismissed":
        """Those of an index."""
        text = index.settings().get(SETTING, "")
        return cls((first, second) for first, second in json.loads(text or "[]"))

    def __contains__(self, pair: Pair) -> bool:
        return _short(pair) in self._pairs

    def changed(self, pairs: Iterable[Pair], *, are_duplicates: bool) -> "Dismissed":
        """With more pairs, or without pairs that are duplicates after all."""
        given = dict.fromkeys(map(_short, pairs))
        if are_duplicates:
            return Dismissed(pair for pair in self._pairs if pair not in given)
        return Dismissed([*self._pairs, *given][-MAX_PAIRS:])

    def write(self, index: Index) -> None:
        """Store them with an index."""
        index.set_setting(**{SETTING: json.dumps(list(self._pairs), separators=(",", ":"))})

    def without(self, found: Duplicates) -> Duplicates:
        """What was found, but for these pairs."""
        groups = []
        for group in found.groups:
            members = tuple(
                member
                for member in group.members
                if (group.keep.digest, member.picture.digest) not in self
            )
            groups += [Group(group.keep, members)] if members else []
        similar = [
            pair for pair in found.similar if (pair.first.digest, pair.second.digest) not in self
        ]
        return replace(found, groups=groups, similar=similar)


def _short(pair: Pair) -> Pair:
    first, second = sorted(digest[:DIGITS] for digest in pair)
    return first, second
