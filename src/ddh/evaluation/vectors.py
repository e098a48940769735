"""Rankings by real-valued vectors: what codes are compared with, and asymmetric search.

The cosine of features is the ranking that codes approximate. Asymmetric distance ranks +-1
database codes by their product with the real-valued outputs of the query.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.arrays import l2_normalize
from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh._core.spans import spans
from ddh.codes import pack, search_asymmetric
from ddh.evaluation.average_precision import check_denominator
from ddh.evaluation.inputs import Relevance
from ddh.evaluation.protocol import UNSPECIFIED, Protocol, Score, digest
from ddh.evaluation.ranking import SIMILARITIES, average_precisions, seeded_order

Distance = Literal["cosine", "asymmetric"]
SAID = {"cosine": "cosine of real vectors", "asymmetric": "asymmetric (real query, binary item)"}

Nearest = Callable[[NDArray[Any]], NDArray[np.intp]]


def mean_average_precision_of_vectors(
    query_vectors: ArrayLike,
    database_vectors: ArrayLike,
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    k: int = 1000,
    *,
    distance: Distance = "cosine",
    denominator: str = "relevant in top k",
    seed: int = 0,
    device: str | None = None,
    protocol: Protocol | None = None,
) -> Score:
    """mAP@k of a ranking by similarity of vectors, equal similarities in a seeded order.

    A query without any relevant item counts 0. Memory: a block of similarities (64 MB) besides
    the input; on `device` with torch, the database is copied there (cosine only: asymmetric scores
    are those of `ddh.codes.search_asymmetric`).
    """
    name = check_denominator(denominator)
    if k < 1:
        raise InputError(f"k is 1 or more, not {k}")
    queries, database = _check(query_vectors, database_vectors, distance)
    relevance = Relevance.of(query_labels, database_labels, len(queries), len(database))
    order = seeded_order(len(database), seed)
    relevance = relevance.permuted(order)
    depth = min(k, len(database))
    if distance == "asymmetric":
        nearest = _search_bits(database[order], depth)
    else:
        nearest = _search(database[order], depth, device)
    values, empty = average_precisions(relevance, lambda rows: nearest(queries[rows]), k, name)
    base = protocol or Protocol()
    split = base.split
    if split == UNSPECIFIED:
        split = f"labels {digest(np.asarray(query_labels), np.asarray(database_labels))}"
    said = base.replace(
        measure="mAP",
        split=split,
        queries=len(queries),
        database=len(database),
        bits=0,
        k=k,
        denominator=name,
        ties=f"seeded order {seed}",
        without_relevant="zero",
        distance=SAID[distance],
    )
    return Score(values.mean(), said, values, empty=empty)


def nearest_by_cosine(
    query_vectors: ArrayLike, database_vectors: ArrayLike, k: int, *, device: str | None = None
) -> NDArray[np.intp]:
    """The k database rows with the largest cosine for each query, ties by the smaller index."""
    queries, database = _check(query_vectors, database_vectors, "cosine")
    nearest = _search(database, min(k, len(database)), device)
    parts = spans(len(queries), max(1, SIMILARITIES // len(database)))
    found = [nearest(queries[rows]) for rows in track(parts, "Ranking", unit="block")]
    return np.concatenate(found)


def _check(
    query_vectors: ArrayLike, database_vectors: ArrayLike, distance: Distance
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    if distance not in SAID:
        raise InputError(f"the distance is one of {', '.join(SAID)}, not {distance!r}")
    queries = np.asarray(query_vectors, np.float32)
    database = np.asarray(database_vectors, np.float32)
    if queries.ndim != 2 or database.ndim != 2 or queries.shape[1] != database.shape[1]:
        raise InputError(
            f"queries {queries.shape} and database {database.shape} must be rows of one length"
        )
    if not (np.isfinite(queries).all() and np.isfinite(database).all()):
        raise InputError("vectors hold NaN or infinity; remove or repair those rows")
    if distance == "asymmetric":
        if not (np.abs(database) == 1).all():
            raise InputError("asymmetric search compares real-valued queries with +-1 codes")
        return queries, database
    return l2_normalize(queries), l2_normalize(database)


def _search_bits(database: NDArray[np.float32], k: int) -> Nearest:
    packed = pack(database)
    return lambda queries: search_asymmetric(queries, packed, k).indices


def _search(database: NDArray[np.float32], k: int, device: str | None) -> Nearest:
    """The k most similar rows of each query, best first, equal ones in the order of the rows."""
    if device is not None:
        return _search_on(database, k, device)

    def nearest(queries: NDArray[Any]) -> NDArray[np.intp]:
        similarity = queries @ database.T
        last = -np.partition(-similarity, k - 1, axis=1)[:, k - 1, None]
        above, level = similarity > last, similarity == last
        missing = k - above.sum(axis=1, keepdims=True)
        kept = above | (level & (np.cumsum(level, axis=1) <= missing))
        best = np.nonzero(kept)[1].reshape(len(queries), k)
        values = np.take_along_axis(similarity, best, axis=1)
        return np.take_along_axis(best, np.argsort(-values, axis=1, kind="stable"), axis=1)

    return nearest


def _search_on(database: NDArray[np.float32], k: int, device: str) -> Nearest:
    import torch

    items = torch.from_numpy(database).to(device)

    def nearest(queries: NDArray[Any]) -> NDArray[np.intp]:
        similarity = torch.from_numpy(queries).to(device) @ items.T
        last = similarity.topk(k, dim=1).values[:, -1:]
        above, level = similarity > last, similarity == last
        missing = k - above.sum(dim=1, keepdim=True)
        kept = above | (level & (level.cumsum(dim=1) <= missing))
        best = kept.nonzero()[:, 1].reshape(len(queries), k)
        order = similarity.gather(1, best).argsort(dim=1, descending=True, stable=True)
        return best.gather(1, order).cpu().numpy()

    return nearest
