"""The page file of a local index: the packed codes one after the other, and nothing else.

Slot s lies at byte s * width. The file is cut into blocks of `BLOCK_ROWS` slots; a CRC-32 of
each block is kept with the rows, not here, so that a block which does not fit the rows is
always told apart, whatever happened to the file.
"""

import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ddh.index.rows import Codes

BLOCK_ROWS = 1 << 14  # 128 KB of 64-bit codes, 2 KB of deletion marks


def block_count(slots: int) -> int:
    """Blocks that hold `slots` slots."""
    return -(-slots // BLOCK_ROWS)


def block_span(block: int, slots: int) -> slice:
    """The slots of one block, the last block being shorter."""
    return slice(block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, slots))


def extend_checksums(tail: int, slots: int, codes: Codes) -> dict[int, int]:
    """Checksums of the blocks that change when `codes` follow `slots` slots.

    `tail` is the checksum of the last, unfinished block; a CRC goes on where it stopped, so
    adding costs the new bytes only.
    """
    end = slots + len(codes)
    changed = {}
    for block in range(slots // BLOCK_ROWS, block_count(end)):
        span = block_span(block, end)
        start = max(span.start, slots)
        before = tail if start > span.start else 0
        changed[block] = zlib.crc32(codes[start - slots : span.stop - slots].data, before)
    return changed


class PageFile:
    """One page file; writers take turns by the lock of the rows, readers map it."""

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width = path, width

    def identity(self) -> tuple[int, int] | None:
        """Which file it is: another one under the same name has another identity."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def map(self, slots: int) -> Codes:
        """The first `slots` slots, or as many whole ones as there are, without reading them."""
        try:
            there = min(slots, self.path.stat().st_size // self.width)
        except FileNotFoundError:
            there = 0
        if not there:
            return np.empty((0, self.width), np.uint8)
        return np.asarray(np.memmap(self.path, np.uint8, "r", shape=(there, self.width)))

    def write(self, slot: int, codes: Codes) -> None:
        """Put codes at `slot` and after it."""
        with self.path.open("r+b" if self.path.exists() else "w+b", buffering=0) as stream:
            stream.seek(slot * self.width)
            left = np.ascontiguousarray(codes).data.cast("B")
            while left:
                left = left[stream.write(left) :]


def unsound_blocks(
    codes: Codes, slots: int, checksums: NDArray[np.int64], trusted: NDArray[np.int64]
) -> list[int]:
    """Blocks whose bytes do not have their checksum; those that equal `trusted` are not read."""
    known = np.zeros(len(checksums), bool)
    known[: len(trusted)] = trusted[: len(checksums)] == checksums[: len(trusted)]
    bad = []
    for block in np.flatnonzero(~known).tolist():
        span = block_span(block, slots)
        if span.stop > len(codes) or zlib.crc32(codes[span].data) != checksums[block]:
            bad.append(block)
    return bad
