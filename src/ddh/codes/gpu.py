"""Exact Hamming search on a GPU; the answers are those of the CPU. Imports torch when used.

A search goes through the rows in the order of their indices, in stages that grow: the k nearest
rows so far give a distance that a later row must stay below, so that few rows of the next stage
become candidates. No array of queries x rows exists at any time.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh._core.spans import spans
from ddh.codes import inputs
from ddh.codes.kernels import Neighbours
from ddh.codes.packing import MAX_BITS
from ddh.codes.pairs import pair_plan
from ddh.codes.scan import Pairs, RadiusNeighbours

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ddh.codes.kernel_torch import Candidates, Queries, TorchKernel

_FIRST_ROWS, _FIRST_ROWS_OF_FEW = 1024, 4096  # all of which are candidates
_GROWTH, _GROWTH_OF_FEW = 16, 128  # of the stages at most
_FEW_QUERIES = 8  # fewer stages are worth more candidates
_LEAST_ROOM, _SORTED_ROOM = 8192, 16384
_QUERIES_AT_ONCE = 4096
_RADIUS_QUERIES, _RADIUS_ROOM = 1000, 4096
_MEMORY_SHARE = 0.7  # of the device's free memory that resident rows may take
_CHUNK_BYTES = 1 << 28  # of rows on their way to the device
_ALIGNED = 64  # rows: stages consist of whole tiles, see `_hamming.cu`
_MOST_PAIR_ROWS = 1 << 31
_SORTED_ROW, _LONGEST_KEY = 1500.0, 32  # see `pair_plan`


def _device(name: "str | torch.device") -> "torch.device":
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device={name!r} is no device of torch: {error}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"device={str(name)!r} needs a GPU and a build of torch for it; this machine offers "
            "none. Leave device out to search on the CPU"
        )
    return device


def _kernel(device: "torch.device") -> "TorchKernel":
    from ddh.codes import kernel_cuda, kernel_torch

    if kernel_cuda.available(device):
        return kernel_cuda.CudaKernel(device)
    return kernel_torch.TorchKernel(device)


def _words(width: int) -> int:
    """Words of 32 bits to a padded code: 1, 2 or a multiple of 4."""
    words = -(-width // 4)
    return words if words <= 2 else -(-words // 4) * 4


class GpuIndex:
    """Packed codes on a GPU, for exact search.

    Parameters
    ----------
    database : array of shape (n, bytes)
        Packed codes, see `ddh.codes.pack`; also a uint8 tensor of torch. Codes that the device
        has no memory for stay where they are (a memory map, for instance), and every search
        streams them through the device.
    device : str
        A device of torch. On one without NVIDIA's run-time compiler, torch's own operations
        search, more slowly.
    resident : bool, optional
        Whether the codes are kept on the device. By default they are where they fit.

    Examples
    --------
    >>> index = codes.GpuIndex(database)  # doctest: +SKIP
    >>> distances, indices = index.search(queries, k=10)  # doctest: +SKIP
    """

    def __init__(
        self,
        database: "ArrayLike | Tensor",
        device: "str | torch.device" = "cuda",
        resident: bool | None = None,
    ) -> None:
        import torch

        self.device = _device(device)
        self._kernel = _kernel(self.device)
        self._host: Any = _rows(database)
        self._length, self.width = self._host.shape
        self._word_count = _words(self.width)
        if resident is None:
            free = (
                torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else 1 << 62
            )
            resident = 4 * self._word_count * self._length < _MEMORY_SHARE * free
        self.resident = resident
        self._rows: Tensor | None = None
        if resident:
            self._rows = self._on_device()
            self._host = None

    def __len__(self) -> int:
        return int(self._length)

    def __repr__(self) -> str:
        where = "on" if self.resident else "streamed to"
        return f"GpuIndex({len(self)} rows of {8 * self.width} bits {where} {self.device})"

    # -- rows ----------------------------------------------------------------------------------

    def _on_device(self) -> "Tensor":
        """All rows as words, padded, on the device."""
        import torch

        room = -(-len(self) // _ALIGNED) * _ALIGNED
        host = self._host
        whole = isinstance(host, torch.Tensor) and host.device == self.device
        if whole and self.width == 4 * self._word_count and room == len(self):
            words: Tensor = host.contiguous().view(torch.int32)
            return words
        rows = torch.zeros((room, self._word_count), dtype=torch.int32, device=self.device)
        for part in spans(len(self), max(1, _CHUNK_BYTES // self.width)):
            rows.view(torch.uint8)[part, : self.width] = _tensor(host[part]).to(self.device)
        return rows

    def _chunks(self) -> "Iterator[tuple[Tensor, int, int]]":
        """(rows, index of the first, number) of the parts of the database, one after the other.

        Streamed rows go through two pinned buffers: while one part is searched, the next one is
        on its way.
        """
        import torch

        if self._rows is not None:
            yield self._rows, 0, len(self)
            return
        size = max(_ALIGNED, _CHUNK_BYTES // (4 * self._word_count) // _ALIGNED * _ALIGNED)
        cuda = self.device.type == "cuda"
        shape = (min(size, -(-len(self) // _ALIGNED) * _ALIGNED), self._word_count)
        pinned = [torch.zeros(shape, dtype=torch.int32, pin_memory=cuda) for _ in range(2)]
        there = [torch.zeros(shape, dtype=torch.int32, device=self.device) for _ in range(2)]
        copies = torch.cuda.Stream(self.device) if cuda else None
        searched: list[Any] = [None, None]
        parts = spans(len(self), size)

        def send(turn: int) -> Any:
            part, host, to = parts[turn], pinned[turn % 2], there[turn % 2]
            if copies is not None and turn >= 2:
                arrived[turn % 2].synchronize()
            rows = host.view(torch.uint8)[: part.stop - part.start, : self.width]
            rows.copy_(_tensor(self._host[part]))
            if copies is None:
                to.copy_(host)
                return None
            with torch.cuda.stream(copies):
                if searched[turn % 2] is not None:
                    copies.wait_event(searched[turn % 2])
                to.copy_(host, non_blocking=True)
                return copies.record_event()

        arrived: list[Any] = [send(0), None]
        for turn, part in enumerate(parts):
            if cuda:
                torch.cuda.current_stream(self.device).wait_event(arrived[turn % 2])
            yield there[turn % 2], part.start, part.stop - part.start
            if cuda:
                searched[turn % 2] = torch.cuda.current_stream(self.device).record_event()
            if turn + 1 < len(parts):
                arrived[(turn + 1) % 2] = send(turn + 1)

    def _prepared(self, queries: "NDArray[np.uint8]") -> "Queries":
        import torch

        words = torch.zeros((len(queries), self._word_count), dtype=torch.int32)
        words.view(torch.uint8)[:, : self.width] = torch.from_numpy(queries)
        return self._kernel.prepare(words.to(self.device))

    def _checked(self, queries: ArrayLike) -> "NDArray[np.uint8]":
        empty = np.empty((0, self.width), np.uint8)
        return inputs.rows_and_queries(queries, empty)[0]

    # -- the nearest rows ----------------------------------------------------------------------

    def search(self, queries: ArrayLike, k: int) -> Neighbours:
        """The k nearest rows of each query, as `ddh.codes.search` gives them."""
        asked = self._checked(queries)
        k = min(inputs.neighbour_count(k), len(self))
        answers = [Neighbours.empty(0, k)]
        for part in spans(len(asked), _QUERIES_AT_ONCE) if k else []:
            answers.append(self._nearest(asked[part], k))
        if not k:
            return Neighbours.empty(len(asked), 0)
        return Neighbours(*(np.concatenate(column) for column in zip(*answers, strict=True)))

    def _nearest(self, asked: "NDArray[np.uint8]", k: int) -> Neighbours:

        queries = self._prepared(asked)
        room = max(_LEAST_ROOM, 1 << (4 * k - 1).bit_length())
        found, limits, lost = self._start(queries, room)
        # about so many rows of a stage become candidates for each neighbour
        few = len(asked) <= _FEW_QUERIES
        growth = min(_GROWTH_OF_FEW if few else _GROWTH, max(1, (room - k) // (2 * k)))
        first = _FIRST_ROWS_OF_FEW if few else _FIRST_ROWS
        seen = 0
        for rows, base, count in self._chunks():
            begin = 0
            while begin < count:
                target = max(first, seen * (1 + growth)) - base
                end = min(count, max(target, begin + _ALIGNED) // _ALIGNED * _ALIGNED)
                self._kernel.scan(rows, begin, end, base, queries, limits, found)
                self._kernel.keep_nearest(found, k, limits, lost)
                begin, seen = end, base + end
        answer = self._answer(found, len(asked), room, k)
        again = lost[: len(asked)].nonzero().flatten().cpu().numpy()
        if len(again):
            careful = self._in_small_steps(asked[again], k, room)
            answer.distances[again], answer.indices[again] = careful
        return answer

    def _start(self, queries: "Queries", room: int) -> "tuple[Candidates, Tensor, Tensor]":
        import torch

        from ddh.codes.kernel_torch import FAR, Candidates

        total = len(queries.words)
        each = torch.full((queries.count,), room, dtype=torch.int64, device=self.device)
        found = Candidates.with_room(each, total, self.device)
        limits = torch.full((total,), -1, dtype=torch.int32, device=self.device)
        limits[: queries.count] = FAR
        return found, limits, torch.zeros(total, dtype=torch.int32, device=self.device)

    def _answer(self, found: "Candidates", queries: int, room: int, k: int) -> Neighbours:
        from ddh.codes.kernel_torch import ROW_BITS

        keys = found.keys.view(queries, room)[:, :k].cpu().numpy()
        return Neighbours((keys >> ROW_BITS).astype(np.int32), keys & ((1 << ROW_BITS) - 1))

    def _in_small_steps(self, asked: "NDArray[np.uint8]", k: int, room: int) -> Neighbours:
        """The same for queries with more candidates than room: halve a stage until it fits."""
        queries = self._prepared(asked)
        found, limits, lost = self._start(queries, room)
        for rows, base, count in self._chunks():
            waiting = [(0, count)]
            while waiting:
                begin, end = waiting.pop()
                before = found.counts.clone()
                self._kernel.scan(rows, begin, end, base, queries, limits, found)
                if end - begin > _FIRST_ROWS and bool((found.counts > room).any()):
                    found.counts.copy_(before)
                    middle = (begin + end) // 2 // _ALIGNED * _ALIGNED
                    waiting += [(middle, end), (begin, middle)]
                else:
                    self._kernel.keep_nearest(found, k, limits, lost)
        return self._answer(found, len(asked), room, k)

    # -- all rows within a radius --------------------------------------------------------------

    def search_radius(self, queries: ArrayLike, radius: int) -> RadiusNeighbours:
        """All rows within `radius` of each query, as `ddh.codes.search_radius` gives them."""
        asked = self._checked(queries)
        radius = min(inputs.search_radius_bits(radius), MAX_BITS)
        counts, keys = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for part in spans(len(asked), _RADIUS_QUERIES) if len(self) else []:
            found = self._within(asked[part], radius)
            counts.append(found[0])
            keys.append(found[1])
        from ddh.codes.kernel_torch import ROW_BITS

        sizes = np.concatenate(counts) if len(self) else np.zeros(len(asked), np.int64)
        limits = np.concatenate([[0], sizes.cumsum()]).astype(np.int64)
        all_keys = np.concatenate(keys)
        distances = (all_keys >> ROW_BITS).astype(np.int32)
        return RadiusNeighbours(limits, distances, all_keys & ((1 << ROW_BITS) - 1))

    def _within(
        self, asked: "NDArray[np.uint8]", radius: int
    ) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Rows within the radius per query, and their sorted keys one query after the other."""
        import torch

        from ddh.codes.kernel_torch import Candidates

        queries = self._prepared(asked)
        total = len(queries.words)
        limits = torch.full((total,), -1, dtype=torch.int32, device=self.device)
        limits[: len(asked)] = radius + 1
        room = torch.full((len(asked),), _RADIUS_ROOM, dtype=torch.int64, device=self.device)
        while True:
            found = Candidates.with_room(room, total, self.device)
            for rows, base, count in self._chunks():
                self._kernel.scan(rows, 0, count, base, queries, limits, found)
            counts = found.counts[: len(asked)].long()
            if bool((counts <= room).all()):
                break
            room = counts
        query = torch.arange(len(asked), device=self.device).repeat_interleave(counts)
        first = (counts.cumsum(0) - counts)[query]
        place = torch.arange(len(query), device=self.device) - first + found.starts[query]
        # 1,000 queries, 13 bits of distance and 40 of the row fit one number
        keys = ((query << 53) | found.keys[place]).sort().values & ((1 << 53) - 1)
        return counts.cpu().numpy(), keys.cpu().numpy()

    # -- all pairs within a radius -------------------------------------------------------------

    def pairs_within(self, radius: int) -> Pairs:
        """All pairs of rows within `radius`, as `ddh.codes.pairs_within` gives them."""
        import torch

        radius = inputs.search_radius_bits(radius)
        if len(self) >= _MOST_PAIR_ROWS:
            raise InputError(f"pairs are found among fewer than {_MOST_PAIR_ROWS} rows on a GPU")
        rows = (self._rows if self._rows is not None else self._on_device())[: len(self)]
        plan = pair_plan(len(self), 8 * self.width, radius, _SORTED_ROW, _LONGEST_KEY)
        masks = np.zeros((max(1, len(plan.parts)), 4 * self._word_count), np.uint8)
        masks[: len(plan.parts), : self.width] = plan.masks(self.width, "little")
        wanted = torch.from_numpy(masks.view(np.int32)[: len(plan.parts)]).to(self.device)
        pairs, distances = [], []
        for table in plan.tables if len(self) else []:
            ids, ends = self._sorted([plan.parts[part] for part in table], rows)
            found = self._kernel.scan_pairs(
                rows[ids.long()].contiguous(),
                ends,
                ids,
                radius,
                wanted,
                plan.shared,
                plan.table_bits(table),
                max(1 << 20, len(self)),
            )
            pairs.append(found[0].cpu())
            distances.append(found[1].cpu().to(torch.int32))
        if not pairs:
            none = np.empty(0, np.int64)
            return Pairs(none, none, none.astype(np.int32))
        order = (keys := torch.cat(pairs).to(self.device)).argsort()
        numbers = keys[order].cpu().numpy()
        away = torch.cat(distances)[order.cpu()].numpy()
        return Pairs(numbers >> 32, numbers & 0xFFFFFFFF, away)

    def _sorted(self, parts: list[tuple[int, int]], rows: "Tensor") -> "tuple[Tensor, Tensor]":
        """Rows by some parts of their bits: ids in that order, and where each one's bucket ends."""
        import torch

        key = torch.zeros(len(rows), dtype=torch.int64, device=self.device)
        for start, stop in parts:
            for word in range(start // 32, (stop - 1) // 32 + 1):
                low, high = max(start - 32 * word, 0), min(stop - 32 * word, 32)
                bits = (rows[:, word].long() >> low) & ((1 << (high - low)) - 1)
                key = (key << (high - low)) | bits
        key -= 1 << 31  # 32 bits at most: sort them as signed numbers of that size
        sorted_keys, order = key.to(torch.int32).sort()
        del key
        _, counts = torch.unique_consecutive(sorted_keys, return_counts=True)
        ends = counts.cumsum(0).to(torch.int32).repeat_interleave(counts)
        return order.to(torch.int32), ends


def _rows(database: "ArrayLike | Tensor") -> Any:
    """Packed codes as they are: an array of NumPy or a tensor of torch."""
    import torch

    if not isinstance(database, torch.Tensor):
        return inputs.packed_rows(database, "the database's rows")
    if database.dtype != torch.uint8 or database.ndim != 2:
        raise InputError(
            "the database's rows are an (n, bytes) tensor of uint8, "
            f"not {database.dtype} of shape {tuple(database.shape)}"
        )
    return database.contiguous()


def _tensor(rows: Any) -> "Tensor":
    import torch

    if isinstance(rows, torch.Tensor):
        return rows
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())
