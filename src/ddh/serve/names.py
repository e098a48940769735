"""Texts of all rows in two blocks of memory, and the rows that hold every word of a query."""

import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

MAX_WORDS = 16
WORDS = re.compile(r'"([^"]+)"|(\S+)')

native: Any = None
with suppress(ImportError):  # built without a compiler: Python does the same, slower
    native = import_module("ddh.serve._names")


class PackedTexts(Sequence[str]):
    """Texts by position, their UTF-8 bytes one after the other, each ended by a newline."""

    def __init__(self) -> None:
        self.bytes, self._ends = bytearray(), array("q")
        self._counts: NDArray[np.int64] | None = None

    @classmethod
    def from_arrays(cls, content: NDArray[np.uint8], ends: Rows) -> "PackedTexts":
        """Texts from their bytes and the positions behind them."""
        texts = cls()
        texts.bytes += content.tobytes()
        texts._ends.frombytes(ends.tobytes())
        return texts

    def append(self, text: str) -> None:
        """Add a text; one that words are to be found in has no newline of its own."""
        self.bytes += text.encode("utf-8", "replace") + b"\n"
        self._ends.append(len(self.bytes))

    @property
    def ends(self) -> Rows:
        """The position behind each text."""
        return np.frombuffer(self._ends, np.int64) if len(self._ends) else np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        start = self._ends[row - 1] if row else 0
        return self.bytes[start : self._ends[row] - 1].decode()

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def rows_with(self, words: Sequence[str]) -> Rows:
        """Positions of the texts that hold every word."""
        wanted = list(dict.fromkeys(word.encode() for word in words))[:MAX_WORDS]
        if not wanted:
            return np.arange(len(self))
        if self._counts is None:
            self._counts = np.bincount(np.frombuffer(self.bytes, np.uint8), minlength=256)
        counts = self._counts
        anchors = {
            word: min(range(len(word[:256])), key=lambda i: int(counts[word[i]])) for word in wanted
        }
        wanted.sort(key=lambda word: counts[word[anchors[word]]])
        if native is None:
            return _rows_with(self.bytes, self.ends, wanted)
        found = np.empty(len(self), np.int32)
        rows = native.find(
            self.bytes, self.ends, wanted, bytes(anchors[word] for word in wanted), found
        )
        return found[:rows].astype(np.int64)


def _rows_with(texts: bytearray, ends: Rows, words: list[bytes]) -> Rows:
    """As the native search, word by word."""
    rows, at = [], texts.find(words[0])
    while at >= 0:
        row = int(np.searchsorted(ends, at, side="right"))
        end = int(ends[row])
        start = int(ends[row - 1]) if row else 0
        if all(texts.find(word, start, end) >= 0 for word in words[1:]):
            rows.append(row)
        at = texts.find(words[0], end)
    return np.array(rows, np.int64)


def folded(text: str) -> str:
    """A text as it is compared: without case and without variants of the same character."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold()


def words_of(query: str) -> list[str]:
    """The words that a query asks for; quotes keep several together."""
    found: Iterable[tuple[str, str]] = WORDS.findall(folded(query))
    return [quoted or word for quoted, word in found][:MAX_WORDS]
