"""The measurements of `ddh bench recall`: the rankings by one code, compared with float cosines."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.spans import spans
from ddh._core.threads import thread_map
from ddh.bench.options import BenchOptions
from ddh.bench.results import Store
from ddh.bench.retrieval import Task, hasher
from ddh.bench.tables import Row
from ddh.bench.timing import timed
from ddh.bench.vector_quantizers import RECIPES, quantizer, rank, train
from ddh.codes import search, search_asymmetric
from ddh.evaluation import Protocol, RankedLists, Retrieval, Score, nearest_by_cosine
from ddh.evaluation.ranking import seeded_order
from ddh.index.features import COMPONENTS, FeatureTransform
from ddh.index.ranking import FEATURE_CANDIDATES, Ranking

VERSION = 2
NEIGHBOURS, FIRST = 10, 100
TOGETHER = 128  # queries whose candidates are reordered at a time
SEED = 0  # of the order of the database, which decides ties in lists
DIRECT, ASYMMETRIC = "direct", "asymmetric"
REORDERED = 200, FEATURE_CANDIDATES  # rows of DDH's lists that stored features order
MEASURES = ("mAP", f"recall@{NEIGHBOURS}", "R")


@dataclass(frozen=True)
class Problem:
    """A task with its database in a seeded order, and the true neighbours of its queries."""

    task: Task
    device: str | None  # to rank on; None for the CPU

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Of the database: decides between equal scores in ranked lists."""
        return seeded_order(len(self.task.split.database), SEED)

    @cached_property
    def database(self) -> NDArray[np.float32]:
        """Features of the database in that order."""
        return self.task.part("database")[self.order]

    @cached_property
    def labels(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Of queries and database."""
        return self.task.labels("query"), self.task.labels("database")[self.order]

    @cached_property
    def neighbours(self) -> NDArray[np.intp]:
        """The ten nearest of each query by float cosine."""
        query = self.task.part("query")
        return nearest_by_cosine(query, self.database, NEIGHBOURS, device=self.device)

    @cached_property
    def transform(self) -> FeatureTransform:
        """How an index stores features of the database."""
        return FeatureTransform.fit(self.database, min(COMPONENTS, self.database.shape[1]))

    @cached_property
    def stored(self) -> NDArray[np.int8]:
        """The stored features of the database."""
        return self.transform.encode(self.database)

    @property
    def k(self) -> int:
        """The cut of mAP."""
        return self.task.split.k or len(self.order)

    @property
    def depth(self) -> int:
        """Length of the ranked lists."""
        return min(max(self.k, FIRST), len(self.order))


def measure(
    store: Store, problem: Problem, row: Row, size: int, seed: int, options: BenchOptions
) -> dict[str, Any]:
    """The stored measurement, or a new one."""
    settings = options.settings.get(row.method, {})
    key = problem.task.key | {"recall": VERSION, "method": row.method, "settings": settings}
    key |= {"bytes": size, "seed": seed, "recipe": RECIPES.get(row.method)}
    compute = _measure_quantizer if row.method in RECIPES else _measure_hasher
    work = partial(compute, problem, row.method, size, seed, settings, options.device)
    return store.measure(f"recall-{row.method}-{8 * size}-{seed}", key, work)


def _measure_hasher(
    problem: Problem, method: str, size: int, seed: int, settings: dict[str, Any], device: str
) -> dict[str, Any]:
    model = hasher(method, 8 * size, seed, settings, device)
    _, fitting = timed(model.fit, problem.task.part("train"))
    query = problem.task.part("query")
    queries, database = model.encode(query), model.encode(problem.database)
    protocol = replace(problem.task.protocol, seeds=(seed,))
    retrieval = Retrieval(
        queries, database, *problem.labels, bits=8 * size, device=problem.device, protocol=protocol
    )
    lists = search_asymmetric(model.outputs(query), database, problem.depth).indices
    said = {"distance": "asymmetric (real query, binary item)", "bits": 8 * size}
    ranked = _ranked(problem, lists, protocol, **said)
    scores = _scores(problem, DIRECT, retrieval) | _scores(problem, ASYMMETRIC, ranked)
    measured = {"fit_seconds": fitting["wall"], "stored_bytes": size, "scores": scores}
    if method == "DDH":
        measured["feature_bytes"] = len(problem.transform.scales)
        for rows in REORDERED:
            lists = _reordered(problem, queries, model.outputs(query), database, rows)
            said["distance"] = f"asymmetric, then cosine of stored features of the first {rows}"
            scores |= _scores(problem, str(rows), _ranked(problem, lists, protocol, **said))
    return measured


def _reordered(
    problem: Problem, queries: Any, outputs: Any, database: Any, candidates: int
) -> NDArray[np.int64]:
    """Ranked lists as an index with stored features gives them."""
    transform, stored, query = problem.transform, problem.stored, problem.task.part("query")

    def lists(part: slice) -> NDArray[np.int64]:
        ranking = Ranking(outputs[part], candidates, transform.unit(query[part]), transform)
        depth = min(ranking.depth(problem.depth), len(database))
        found = search(queries[part], database, depth, threads=1).indices
        take = partial(np.take_along_axis, found, axis=1)
        order, _ = ranking.order(database[found], lambda first: stored[take(first)])
        return np.asarray(take(order[:, : problem.depth]))

    return np.concatenate(list(thread_map(lists, spans(len(query), TOGETHER))))


def _measure_quantizer(
    problem: Problem, method: str, size: int, seed: int, settings: dict[str, Any], device: str
) -> dict[str, Any]:
    query = problem.task.part("query")
    index = quantizer(method, query.shape[1], size, seed)
    _, fitting = timed(train, index, method, problem.task.part("train"))
    index.add(problem.database)
    protocol = replace(problem.task.protocol, seeds=(seed,))
    scores: dict[str, Any] = {}
    for ranking, encoded in ((DIRECT, True), (ASYMMETRIC, False)):
        lists = rank(index, query, problem.depth, encoded=encoded)
        whose = "encoded query" if encoded else "real query"
        ranked = _ranked(problem, lists, protocol, distance=f"L2 of {method} ({whose})")
        scores |= _scores(problem, ranking, ranked)
    stored = index.sa_code_size()
    return {"fit_seconds": fitting["wall"], "stored_bytes": stored, "scores": scores}


def _ranked(problem: Problem, lists: Any, protocol: Protocol, **said: Any) -> RankedLists:
    said["ties"] = f"seeded order {SEED}"
    return RankedLists(lists, *problem.labels, protocol=protocol.replace(**said))


def _scores(problem: Problem, ranking: str, ranked: Retrieval | RankedLists) -> dict[str, Any]:
    true, items = problem.neighbours, len(problem.order)
    scores: tuple[Score, ...] = (
        ranked.mean_average_precision(problem.k),
        ranked.neighbour_recall(true, NEIGHBOURS),
        ranked.neighbour_recall(true, min(FIRST, items)),
    )
    named = zip(MEASURES, scores, strict=True)
    return {f"{ranking} {measure}": score.as_dict() for measure, score in named}
