"""The searches of `ddh.codes.gpu` in torch alone: for devices that have no CUDA compiler.

Codes are (n, words) int32 here, rows padded with zeros. What a scan finds are candidates: numbers
distance << 40 | row, whose order is the tie rule.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ddh._core.spans import spans

ROW_BITS = 40
FAR = 1 << 14  # a distance above every other
_BLOCK = 1 << 24  # distances at once


@dataclass
class Queries:
    """Queries in the form of a kernel, padded to a multiple of `size`; `count` of them are real."""

    words: Tensor
    count: int
    kernel: str
    size: int
    ones: Tensor | None = None
    operands: Tensor | None = None


@dataclass
class Candidates:
    """Rows found for each query: `counts` of them, room for `starts[i]..starts[i + 1]`."""

    counts: Tensor  # int32; more than there is room for: some were lost
    starts: Tensor  # int64
    keys: Tensor  # int64
    room: int  # of the query with the most

    @classmethod
    def with_room(cls, room: Tensor, queries: int, device: torch.device) -> "Candidates":
        """Room for each query; `queries` includes those of the padding, which have none."""
        starts = torch.zeros(queries + 1, dtype=torch.int64, device=device)
        starts[1 : len(room) + 1] = room.cumsum(0)
        starts[len(room) + 1 :] = starts[len(room)]
        total, most = (int(x) for x in torch.stack([starts[-1], room.max()]).tolist())
        keys = torch.empty(total, dtype=torch.int64, device=device)
        return cls(torch.zeros(queries, dtype=torch.int32, device=device), starts, keys, most)


def popcount(words: Tensor) -> Tensor:
    """Ones of int32 numbers."""
    x = words - ((words >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    return (((x + (x >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24


class TorchKernel:
    """Scans as sums of popcounts, selection by sorting."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def ones(self, words: Tensor) -> Tensor:
        """|q| of each row."""
        return popcount(words).sum(1, dtype=torch.int32)

    def prepare(self, queries: Tensor) -> Queries:
        """Queries (q, words) int32 in the order that their kernel wants them."""
        return Queries(queries, len(queries), "torch", 1)

    def scan(
        self,
        rows: Tensor,
        begin: int,
        end: int,
        base: int,
        queries: Queries,
        limits: Tensor,
        found: Candidates,
    ) -> None:
        """Append the rows begin..end that are nearer than `limits` to the candidates."""
        for part in spans(end, max(1024, _BLOCK // len(queries.words)), begin):
            distances = torch.zeros(
                (len(queries.words), part.stop - part.start), dtype=torch.int32, device=self.device
            )
            for word in range(rows.shape[1]):
                distances += popcount(queries.words[:, word, None] ^ rows[None, part, word])
            query, row = (distances < limits[:, None]).nonzero(as_tuple=True)
            keys = (distances[query, row].long() << ROW_BITS) | (row + part.start + base)
            new = torch.bincount(query, minlength=len(queries.words))
            place = torch.arange(len(query), device=self.device) - (new.cumsum(0) - new)[query]
            slot = found.starts[query] + found.counts[query] + place
            fits = slot < found.starts[query + 1]
            found.keys[slot[fits]] = keys[fits]
            found.counts += new.to(torch.int32)

    def keep_nearest(self, found: Candidates, k: int, limits: Tensor, lost: Tensor) -> None:
        """Sort the candidates, keep the k nearest, and lower the limits to the last of them."""
        queries = int(found.starts[-1]) // found.room  # those of the padding have no room
        counts = found.counts[:queries]
        lost[:queries] |= (counts > found.room).to(torch.int32)
        counts.clamp_(max=found.room)
        keys = found.keys.view(queries, found.room)
        there = torch.arange(found.room, device=self.device) < counts[:, None]
        keys.copy_(keys.where(there, keys.new_tensor((1 << 63) - 1)).sort(dim=1).values)
        full = counts >= k
        last = (keys[:, k - 1] >> ROW_BITS).to(torch.int32)
        limits[:queries] = limits[:queries].where(~full, last)
        counts.clamp_(max=k)

    def scan_pairs(
        self,
        rows: Tensor,
        ends: Tensor,
        ids: Tensor,
        radius: int,
        masks: Tensor,
        chosen: int,
        table: int,
        room: int,
    ) -> tuple[Tensor, Tensor]:
        """Pairs `first << 32 | second` of ids within a radius in one bucket, and distances."""
        pairs = [torch.empty(0, dtype=torch.int64, device=self.device)]
        away = [torch.empty(0, dtype=torch.int32, device=self.device)]
        place = torch.arange(len(rows), device=self.device)
        for gap in range(1, len(rows)):
            place = place[place + gap < ends[place]]
            if not len(place):
                break
            differ = rows[place] ^ rows[place + gap]
            distances = popcount(differ).sum(1, dtype=torch.int32)
            near = distances <= radius
            equal = ((differ[near, None, :] & masks) == 0).all(dim=2)
            first = equal & (equal.cumsum(1) <= chosen)
            weights = torch.tensor([1 << part for part in range(len(masks))], dtype=torch.int64)
            here = (first * weights.to(self.device)).sum(1) == table
            a, b = ids[place[near][here]].long(), ids[place[near][here] + gap].long()
            pairs.append((torch.minimum(a, b) << 32) | torch.maximum(a, b))
            away.append(distances[near][here])
        return torch.cat(pairs), torch.cat(away)
