"""`ddh bench recall`: what codes of 8, 16 and 32 bytes keep of the order of the float features.

Beside mAP by label: R, the share of the ten nearest neighbours by float cosine among the first 100
by the code. Ordering those 100 by the float features would put exactly these neighbours first, so
R is also the recall@10 after re-ranking 100.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh._core.spans import spans
from ddh._core.threads import thread_map
from ddh.bench.features import FeatureSet, compute_features, read_features
from ddh.bench.options import BenchOptions, numbers_option, shared_options
from ddh.bench.plots import plot_lines, series_of
from ddh.bench.results import Outcome, Record, Store, Table, figure
from ddh.bench.retrieval import Task, accelerator, given_task, hasher, measure_vectors, used_rows
from ddh.bench.tables import Row, select
from ddh.bench.timing import timed
from ddh.bench.vector_quantizers import RECIPES, quantizer, rank, train
from ddh.codes import search, search_asymmetric
from ddh.evaluation import (
    Protocol,
    RankedLists,
    Retrieval,
    Score,
    nearest_by_cosine,
    protocol_images,
    split_by_name,
)
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

ROWS = (
    Row("DDH", "DDH"),
    Row("ITQ", "ITQ"),
    Row("LSH", "LSH"),
    Row("PQ", "PQ", stochastic=False),
    Row("OPQ + PQ", "OPQ", stochastic=False),
    Row("RaBitQ", "RaBitQ", stochastic=False),
    Row("scalar quantisation", "SQ", stochastic=False),
)


_METHODS = {row.method for row in ROWS}


@dataclass(frozen=True)
class Collection:
    """A set of features: its name on the command line, a title, how it is split, its weights."""

    name: str
    title: str
    protocol: str | None = None
    weights: str | None = None  # where they are not those of the options


COLLECTIONS = (
    Collection("cifar10", "CIFAR-10", "cifar10-10k-50k"),
    Collection(
        "cifar10-resnet18",
        "CIFAR-10, shipped ResNet-18",
        "cifar10-10k-50k",
        "weights/cifar10-resnet18.safetensors",
    ),
    Collection("coco17", "COCO-17", "coco-17"),
    Collection("oxford17", "Oxford-17", "oxford-17"),
)


@dataclass(frozen=True)
class Cell:
    """All seeds of one method at one size of the codes, on one collection."""

    collection: Collection
    row: Row
    size: int
    results: list[dict[str, Any]]

    def values(self, ranking: str, measure: str) -> list[float]:
        """One value per seed; none where the ranking was not measured."""
        scores = [result["scores"].get(f"{ranking} {measure}") for result in self.results]
        return [score["value"] for score in scores if score is not None]

    def mean(self, ranking: str, measure: str) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.values(ranking, measure)))

    @property
    def stored(self) -> int:
        """Bytes per image."""
        return int(self.results[0]["stored_bytes"])

    @property
    def with_features(self) -> bool:
        """Whether it is measured with features beside the code."""
        return self.row.method not in _METHODS

    def reordered(self) -> list["Cell"]:
        """The same codes with stored features, which order the first of the list."""
        cells = []
        for rows in REORDERED if self.row.method == "DDH" else ():
            results = [
                {
                    "fit_seconds": result["fit_seconds"],
                    "stored_bytes": self.stored + result["feature_bytes"],
                    "scores": {
                        f"{ASYMMETRIC} {measure}": result["scores"][f"{rows} {measure}"]
                        for measure in MEASURES
                    },
                }
                for result in self.results
            ]
            label = f"{self.row.label} + features, {rows:,} ordered"
            cells.append(replace(self, row=Row(label, f"DDH+{rows}"), results=results))
        return cells


@click.command(short_help="Recall of true neighbours and mAP at 8, 16 and 32 bytes.")
@numbers_option("--bytes", "8,16,32", "Sizes of the codes.")
@click.option(
    "--sets",
    help="Only these collections, separated by commas: "
    f"{', '.join(one.name for one in COLLECTIONS)}.  [default: all, or those of --features]",
)
@shared_options(
    features=click.option(
        "--features",
        multiple=True,
        metavar="[SET=]FILE",
        help="Precomputed features of a set, or of your own images: an .npz file with features, "
        "labels and query (1 for query rows; a set brings its own split). May be repeated.",
    )
)
def recall(
    bytes: tuple[int, ...], sets: str | None, features: tuple[str, ...], **shared: Any
) -> None:
    """Rank by codes of the same size and compare with the ranking by float features.

    mAP by label, recall@10 and R (the share of the ten nearest neighbours by float cosine among
    the first 100) of DDH, ITQ and LSH and, where faiss is installed, of its quantisers: ranked
    directly (the query is known by its code alone) and asymmetrically (real-valued query).

    \b
    ddh bench recall --data DIR
    ddh bench recall --data DIR --sets coco17,oxford17 --methods DDH,ITQ
    ddh bench recall --features coco17=coco.npz --features mine.npz
    """
    from ddh.train.graphs import shared_graphs

    options, store = BenchOptions(features=None, **shared), Store(shared["output"])
    rows = select(ROWS, options.methods, "recall")
    left_out = "" if _has_faiss() else _leave_out_quantizers(rows)
    cells, floats = [], {}
    for collection, file in _collections(sets, features):
        problem = Problem(_task(collection, file, options, store), accelerator(options.device))
        graphs: dict[Any, Any] = {}
        for row, size in track(list(product(rows, bytes)), collection.title, unit="cell"):
            seeds = options.seeds if row.stochastic else options.seeds[:1]
            with shared_graphs(graphs):
                results = [_measure(store, problem, row, size, seed, options) for seed in seeds]
            cell = Cell(collection, row, size, results)
            cells += [cell, *cell.reordered()]
        floats[collection] = measure_vectors(store, problem.task, options.device)
    folder = store.folder("recall")
    chosen = list(floats)
    Outcome(
        bench="recall",
        title="Recall of true neighbours by codes of equal size",
        protocol=[line for one in chosen for line in _protocol(one, cells)],
        tables=[_table(one, cells, floats[one], left_out) for one in chosen],
        records=[_record(cell) for cell in cells],
        figures=[
            _draw(folder, one, cells, floats[one], measure)
            for one in chosen
            for measure in ("mAP", "R")
        ],
    ).publish(store, options.as_json)


def _has_faiss() -> bool:
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


def _leave_out_quantizers(rows: list[Row]) -> str:
    """Remove the rows that need faiss, say so, and give the note of the tables."""
    labels = [row.label for row in rows if row.method in RECIPES]
    if not labels:
        return ""
    note = f'{", ".join(labels)} left out: they need faiss, pip install "ddh[faiss]".'
    rows[:] = [row for row in rows if row.method not in RECIPES]
    if not rows:
        raise InputError(note)
    click.echo(note, err=True)
    return f" {note}"


# -- collections -------------------------------------------------------------------------------


def _collections(
    names: str | None, features: tuple[str, ...]
) -> list[tuple[Collection, Path | None]]:
    """The collections to measure, with their files of ready features."""
    known = {one.name: one for one in COLLECTIONS}
    given: dict[Collection, Path | None] = {}
    for text in features:
        name, equals, rest = text.partition("=")
        path = Path(rest if equals and name in known else text)
        if not path.is_file():
            raise InputError(
                f"--features {text}: there is no file {path}; sets are {', '.join(known)}"
            )
        given[known.get(name) or Collection(path.stem, path.stem)] = path
    if names is not None:
        for name in (name.strip() for name in names.split(",")):
            if name not in known:
                raise InputError(f"recall has no set {name}: {', '.join(known)}")
            given.setdefault(known[name], None)
    return list(given.items()) or [(one, None) for one in COLLECTIONS]


def _task(collection: Collection, file: Path | None, options: BenchOptions, store: Store) -> Task:
    if file is not None:
        found = read_features(file)
        return given_task(found, options, 1000, partial(_split, collection, found, file))
    name, own = str(collection.protocol), options
    if collection.weights is not None:
        if not Path(collection.weights).is_file():
            raise InputError(
                f"{collection.weights} is missing: run this in the folder of the source code, or "
                f"leave out the set {collection.name} with --sets"
            )
        own = replace(options, backbone="auto", weights=collection.weights, size=None)
    data = protocol_images(name, options.data_folder(collection.title))
    data, split = used_rows(data, split_by_name(name, data.labels), options.subset)
    found = compute_features(data, store, own)
    if len(found) != len(data):
        raise InputError(f"{collection.title}: the split needs all images; repair the unreadable")
    return Task(found, split)


def _split(collection: Collection, found: FeatureSet, file: Path) -> Any:
    if collection.protocol is None:
        names = ", ".join(one.name for one in COLLECTIONS)
        raise InputError(
            f"{file} marks no queries: add an array `query`, or say which set it is with "
            f"--features SET={file.name} ({names})"
        )
    return split_by_name(collection.protocol, found.labels)


# -- measuring ---------------------------------------------------------------------------------


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


def _measure(
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


# -- tables and figures ------------------------------------------------------------------------


def _own(collection: Collection, cells: list[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.collection == collection]


def _protocol(collection: Collection, cells: list[Cell]) -> list[str]:
    scores = _own(collection, cells)[0].results[0]["scores"]
    lines = []
    for measure in ("mAP", "R"):
        said = Protocol.from_dict(scores[f"{DIRECT} {measure}"]["protocol"])
        lines.append(f"{collection.title}, {said.title}: {said.replace(seeds=(), bits=0)}")
    return lines


def _table(collection: Collection, cells: list[Cell], floats: Record, left_out: str) -> Table:
    """A row per method and size, the sizes together; the best of each size is marked."""
    own = sorted(_own(collection, cells), key=lambda cell: cell.size)
    places = list(product((DIRECT, ASYMMETRIC), MEASURES))
    score = floats["scores"]["legacy"]
    rows = [["float features", "", f"{score['value']:.3f}", "1.000", "1.000", "", "", "", ""]]
    for cell in own:
        stored = str(cell.size) + (f" + {cell.stored - cell.size}" * (cell.stored > cell.size))
        line = [figure(cell.values(*place)) if cell.values(*place) else "" for place in places]
        seconds = np.mean([result["fit_seconds"] for result in cell.results])
        rows.append([cell.row.label, stored, *line, f"{seconds:.1f}"])
    best = []
    for size, (column, place) in product({c.size for c in own}, enumerate(places, 2)):
        means = {
            i: cell.mean(*place)
            for i, cell in enumerate(own, 1)
            if cell.size == size and not cell.with_features
        }
        best += [(i, column) for i, mean in means.items() if mean == max(means.values())]
    k = score["protocol"]["k"]
    columns = ["Method", "bytes", *(f"{measure}, {ranking}" for ranking, measure in places)]
    note = (
        f"mAP is mAP@{k}. R: share of the {NEIGHBOURS} nearest neighbours by float cosine among "
        f"the first {FIRST} by the code, which is recall@{NEIGHBOURS} after re-ranking {FIRST} "
        "with the float features. Direct: the query is known by its code alone; asymmetric: "
        "real-valued query. With features: stored beside the code (PCA, one byte per component), "
        f"they order the first {REORDERED[0]} of the list, or {REORDERED[1]:,} as an index does. "
        "± is the sample standard deviation over seeds."
    )
    used = {cell.row.label: RECIPES.get(cell.row.method) for cell in own}
    note += "".join(f" {label}: {recipe}." for label, recipe in used.items() if recipe)
    return Table(collection.title, [*columns, "fit s"], rows, note + left_out, sorted(best))


def _record(cell: Cell) -> Record:
    record: Record = {
        "set": cell.collection.name,
        "method": cell.row.label,
        "bytes": cell.size,
        "stored bytes": cell.stored,
        "seeds": len(cell.results),
    }
    for ranking, measure in product((DIRECT, ASYMMETRIC), MEASURES):
        values = cell.values(ranking, measure)
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        name = f"{measure} {ranking}"
        mean = float(np.mean(values)) if values else None
        record |= {name: mean, f"{name} deviation": deviation}
    return record


def _draw(
    folder: Path, collection: Collection, cells: list[Cell], floats: Record, measure: str
) -> dict[str, str]:
    """A measure over the bytes that are stored per image; asymmetric, and DDH by Hamming."""
    own = [cell for cell in _own(collection, cells) if not cell.with_features]
    points = [(cell.row.label, cell.stored, cell.mean(ASYMMETRIC, measure)) for cell in own]
    points += [
        ("DDH, Hamming", cell.stored, cell.mean(DIRECT, measure))
        for cell in own
        if cell.row.method == "DDH"
    ]
    sizes = sorted({cell.size for cell in own})
    if measure == "mAP":
        value = floats["scores"]["legacy"]["value"]
        points += [("float features", size, value) for size in sizes]
    points.sort(key=lambda point: point[0] == "DDH")  # last: its colour is its own
    title = f"{collection.title}: {measure} over the bytes per image, real-valued queries"
    axes: dict[str, Any] = {"xlabel": "bytes per image", "ylabel": measure, "xscale": "log"}
    axes |= {"marker": "o", "ticks": sizes}
    axes["legend"] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncols": 3}
    return plot_lines(
        folder, f"{measure.lower()}-{collection.name}", title, series_of(points), **axes
    )
