"""The searches in NumPy alone: runs everywhere, and is the measure the others are held to."""

import numpy as np
from numpy.typing import NDArray

from ddh._core.spans import spans
from ddh._core.threads import thread_map
from ddh.codes.inputs import Codes, Values
from ddh.codes.kernels import Found, Neighbours, ScoredNeighbours

_BLOCK_BYTES = 1 << 21  # of one intermediate array: two or three of them stay in the caches


def _words(codes: Codes) -> NDArray[np.unsignedinteger]:
    """The rows in the widest words their length allows; the order of bytes does not matter."""
    width = codes.shape[1]
    size = next(size for size in (8, 4, 2, 1) if width % size == 0)
    return codes.view(f"u{size}")


def _distances(a: NDArray[np.unsignedinteger], b: NDArray[np.unsignedinteger]) -> NDArray[np.int32]:
    total = np.zeros((len(a), len(b)), dtype=np.int32)
    for column in range(a.shape[1]):
        total += np.bitwise_count(a[:, column, None] ^ b[None, :, column])
    return total


def hamming(a: Codes, b: Codes) -> NDArray[np.int32]:
    """All distances between the rows of `a` and those of `b`."""
    return _distances(_words(a), _words(b))


def _nearest(queries: Codes, database: Codes, k: int) -> NDArray[np.int64]:
    """Sorted keys distance * n + row of the k nearest rows: their order is the tie rule."""
    rows, n = _words(database), len(database)
    best = np.empty((len(queries), 0), dtype=np.int64)
    for part in spans(n, max(k, 1024, _BLOCK_BYTES // (8 * len(queries)))):
        keys = _distances(_words(queries), rows[part]) * np.int64(n)
        keys += np.arange(part.start, part.stop)
        best = np.concatenate([best, keys], axis=1)
        if best.shape[1] > k:
            best = np.partition(best, k - 1, axis=1)[:, :k]
    return np.sort(best, axis=1)


def search(queries: Codes, database: Codes, k: int, threads: int) -> Neighbours:
    """The k nearest rows of each query, k at most the number of rows."""
    parts = spans(len(queries), max(1, min(16, -(-len(queries) // threads))))
    keys = thread_map(lambda part: _nearest(queries[part], database, k), parts, threads)
    distances, indices = np.divmod(np.concatenate(keys), len(database))
    return Neighbours(distances.astype(np.int32), indices)


def search_radius(queries: Codes, database: Codes, radius: int, threads: int) -> Found:
    """Limits, distances and indices of the rows within `radius` of each query."""
    rows, n = _words(database), len(database)

    def within(query: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
        keys = []
        for block in spans(n, _BLOCK_BYTES // 8):
            distances = _distances(query[None], rows[block])[0]
            inside = np.flatnonzero(distances <= radius)
            keys.append(distances[inside] * np.int64(n) + inside + block.start)
        return np.sort(np.concatenate(keys))

    found = thread_map(within, _words(queries), threads)
    limits = np.cumsum([0, *map(len, found)])
    distances, indices = np.divmod(np.concatenate(found), n)
    return limits, distances.astype(np.int32), indices


def _byte_sums(values: Values) -> NDArray[np.float64]:
    """(bytes, 256): the sum of the signed values of a byte, for each of its values.

    Halves of four bits are added up from left to right, then both halves, as `_asymmetric.h`
    does it: scores are the same to the last bit.
    """
    signs = np.unpackbits(np.arange(16, dtype=np.uint8)[:, None], axis=1)[:, 4:] * 2.0 - 1.0
    terms = values.reshape(-1, 2, 1, 4) * signs
    halves = ((terms[..., 0] + terms[..., 1]) + terms[..., 2]) + terms[..., 3]
    sums: NDArray[np.float64] = halves[:, 0, :, None] + halves[:, 1, None, :]
    return sums.reshape(-1, 256)


def _scores(sums: NDArray[np.float64], rows: Codes) -> NDArray[np.float64]:
    total = np.zeros(len(rows))
    for column, line in enumerate(sums):
        total += line[rows[:, column]]
    return total


def asymmetric_scores(values: Values, codes: Codes) -> NDArray[np.float64]:
    """Scores (q, n) of rows (n, bytes), or of those each query has of its own (q, n, bytes)."""
    each = codes if codes.ndim == 3 else [codes] * len(values)
    pairs = zip(values, each, strict=True)
    return np.array([_scores(_byte_sums(query), rows) for query, rows in pairs])


def search_asymmetric(values: Values, database: Codes, k: int, threads: int) -> ScoredNeighbours:
    """The k rows of the highest scores for each query, k at most the number of rows."""

    def best(query: Values) -> ScoredNeighbours:
        sums, answer = _byte_sums(query), ScoredNeighbours.empty(1, 0)
        for part in spans(len(database), max(k, _BLOCK_BYTES // 8)):
            scores = _scores(sums, database[part])
            # Rows come by index, so that later ones lose every tie.
            enter = scores > answer.scores[0, -1] if part.start else np.full(len(scores), True)
            found = ScoredNeighbours(scores[None, enter], np.flatnonzero(enter)[None] + part.start)
            answer = ScoredNeighbours.merge([answer, found], k)
        return answer

    answers = thread_map(best, values, threads)
    scores, indices = (np.concatenate(column) for column in zip(*answers, strict=True))
    return ScoredNeighbours(scores, indices)
