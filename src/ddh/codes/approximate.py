"""Search that may miss a neighbour, many times faster: rows in lists around binary centres.

Centres are found by k-means in Hamming space (nearest centre, then the majority of each bit). How
many lists a query looks through is measured on rows of the database when the index is built.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError
from ddh._core.spans import spans
from ddh._core.threads import thread_map
from ddh.codes import scan
from ddh.codes.inputs import Codes, check_codes, neighbour_count, rows_and_queries, thread_count
from ddh.codes.kernels import Neighbours, native

_FEWEST_ROWS = 10_000  # below, a scan takes no time
_MOST_ROWS = 1 << 31
_TRAINING_ROWS_PER_LIST = 64
_ROUNDS = 8
_TRIAL_QUERIES, _TRIAL_NEIGHBOURS = 2048, 10
_SAFETY = 0.25  # share of the misses allowed that is held back, because a trial is a sample
_QUERIES_AT_ONCE = 2048


def _majority(codes: Codes, lists: NDArray[np.int64], centres: Codes) -> Codes:
    """The majority of each bit in each list; the centre of an empty list stays."""
    order = np.argsort(lists, kind="stable")
    found, starts = np.unique(lists[order], return_index=True)
    ones = np.add.reduceat(np.unpackbits(codes[order], axis=1), starts, axis=0, dtype=np.int64)
    sizes = np.diff(np.append(starts, len(codes)))
    moved = centres.copy()
    moved[found] = np.packbits(2 * ones >= sizes[:, None], axis=1)
    return moved


def _centres(database: Codes, lists: int, rng: np.random.Generator, threads: int) -> Codes:
    """k-means in Hamming space on some of the rows."""
    rows = rng.permutation(len(database))[: _TRAINING_ROWS_PER_LIST * lists]
    sample = database[np.sort(rows)]
    centres = sample[np.sort(rng.permutation(len(sample))[:lists])]
    for _ in range(_ROUNDS):
        nearest = scan.search(sample, centres, 1, threads).indices[:, 0]
        moved = _majority(sample, nearest, centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


class ApproximateIndex:
    """Rows of packed codes in lists, for search that finds nearly all of the nearest rows.

    `recall` is the share of the ten nearest rows that is to be found; `probes`, the number of
    lists looked through, is set so that it is reached for rows of the database, and
    `measured_recall` says what was. Queries unlike the database may find less. Where lists would
    not be faster (few rows, or codes without structure), `probes` is 0 and every search is an
    exact scan. Memory: the rows once more, and 4 bytes each.
    """

    def __init__(
        self,
        database: ArrayLike,
        bits: int,
        recall: float = 0.99,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        if not 0 < recall <= 1:
            raise InputError(f"the recall is above 0 and at most 1, not {recall}")
        self.database = check_codes(database, bits, "the database's rows")
        self.centres = self.database[:0]
        self.bits, self.probes, self.measured_recall = bits, 0, 1.0
        n = len(self.database)
        if n > _MOST_ROWS:
            raise InputError(f"an approximate index holds {_MOST_ROWS} rows at most")
        if n < _FEWEST_ROWS:
            return
        threads = thread_count(threads)
        rng = np.random.default_rng(seed)
        # about twice the square root: centres and rows of lists are then about as much work
        lists = 1 << round(float(np.log2(n)) / 2 + 1)
        self.centres = _centres(self.database, lists, rng, threads)
        nearest = scan.search(self.database, self.centres, 1, threads).indices[:, 0]
        self._ids = np.argsort(nearest, kind="stable").astype(np.uint32)
        self._rows = self.database[self._ids]
        sizes = np.bincount(nearest, minlength=len(self.centres))
        self._offsets = np.concatenate([[0], sizes.cumsum()])
        self._set_probes(recall, rng, threads)

    def __len__(self) -> int:
        return len(self.database)

    def __repr__(self) -> str:
        lists = f"{self.probes} of {len(self.centres)} lists" if self.probes else "exact"
        return f"ApproximateIndex({len(self)} rows of {self.bits} bits, {lists})"

    def search(
        self, queries: ArrayLike, k: int, threads: int | None = None, probes: int | None = None
    ) -> Neighbours:
        """The k nearest rows that the lists hold, in the form of `ddh.codes.search`.

        `probes` looks through so many lists instead of what the index has set; where those hold
        fewer than k rows, more are taken.
        """
        queries, _ = rows_and_queries(queries, self.database)
        k, threads = min(neighbour_count(k), len(self)), thread_count(threads)
        probes = self.probes if probes is None else neighbour_count(probes)
        if not (probes and len(self.centres) and k and len(queries)):
            return scan.search(queries, self.database, max(k, 1), threads)
        answer = Neighbours.empty(len(queries), k)
        waiting = np.arange(len(queries))
        while len(waiting):
            lists = scan.search(queries[waiting], self.centres, probes, threads).indices
            enough = (np.diff(self._offsets)[lists].sum(axis=1) >= k).nonzero()[0]
            found = self._look_through(queries[waiting[enough]], lists[enough], k, threads)
            answer.distances[waiting[enough]], answer.indices[waiting[enough]] = found
            waiting, probes = np.delete(waiting, enough), 2 * probes
        return answer

    def _look_through(
        self, queries: Codes, lists: NDArray[np.int64], k: int, threads: int
    ) -> Neighbours:
        """The k nearest rows of the given lists of each query; they hold at least k."""
        look = self._look_natively if native() else self._look_by_numpy
        parts = spans(len(queries), _QUERIES_AT_ONCE)
        found = thread_map(lambda part: look(queries[part], lists[part], k), parts, threads)
        found.append(Neighbours.empty(0, k))
        return Neighbours(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def _look_natively(self, queries: Codes, lists: NDArray[np.int64], k: int) -> Neighbours:
        from ddh.codes import _hamming

        kernel = native()
        assert kernel is not None
        rows = queries, self._rows, queries.shape[1], lists.astype(np.uint32)
        options = *rows, self._offsets, self._ids, k
        _, distances, indices = kernel.found(_hamming.list_search, *options)
        return Neighbours(distances.reshape(-1, k), indices.reshape(-1, k))

    def _look_by_numpy(self, queries: Codes, lists: NDArray[np.int64], k: int) -> Neighbours:
        found = Neighbours.empty(len(queries), k)
        for query, probed in enumerate(lists):
            rows = np.concatenate(
                [np.arange(self._offsets[one], self._offsets[one + 1]) for one in probed]
            )
            away = scan.hamming(queries[query : query + 1], self._rows[rows])[0]
            ids = self._ids[rows].astype(np.int64)
            order = np.lexsort((ids, away))[:k]
            found.distances[query], found.indices[query] = away[order], ids[order]
        return found

    def _set_probes(self, recall: float, rng: np.random.Generator, threads: int) -> None:
        """The fewest lists with that recall; from a quarter of them on, nothing is gained."""
        rows = np.sort(rng.permutation(len(self))[:_TRIAL_QUERIES])
        k = _TRIAL_NEIGHBOURS + 1
        true = scan.search(self.database[rows], self.database, k, threads).indices

        def found(probes: int) -> float:
            near = self.search(self.database[rows], k, threads, probes).indices
            both = (near[:, :, None] == true[:, None, :]) & (true != rows[:, None])[:, None, :]
            return float(both.sum() / (true != rows[:, None]).sum())

        recall += _SAFETY * (1 - recall)
        low, high, most = 0, 1, len(self.centres) // 4
        while high < most and found(high) < recall:
            low, high = high, 2 * high
        if high >= most:
            return
        while high - low > max(1, high // 16):
            middle = (low + high) // 2
            low, high = (middle, high) if found(middle) < recall else (low, middle)
        self.probes, self.measured_recall = high, found(high)
