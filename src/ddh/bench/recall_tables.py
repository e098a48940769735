"""The tables and figures of `ddh bench recall`."""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ddh.bench.plots import plot_lines, series_of
from ddh.bench.recall_data import Collection
from ddh.bench.recall_measures import (
    ASYMMETRIC,
    DIRECT,
    FIRST,
    MEASURES,
    NEIGHBOURS,
    REORDERED,
)
from ddh.bench.results import Record, Table, figure
from ddh.bench.tables import Row
from ddh.bench.vector_quantizers import RECIPES
from ddh.evaluation import Protocol


@dataclass(frozen=True)
class Cell:
    """All seeds of one method at one size of the codes, on one collection."""

    collection: Collection
    row: Row
    size: int
    results: list[dict[str, Any]]
    with_features: bool = False  # stored beside the code

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
            row = replace(self.row, label=f"{self.row.label} + features, {rows:,} ordered")
            cells.append(replace(self, row=row, results=results, with_features=True))
        return cells


def _own(collection: Collection, cells: list[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.collection == collection]


def protocol_lines(collection: Collection, cells: list[Cell]) -> list[str]:
    """How mAP and R of a collection were measured."""
    scores = _own(collection, cells)[0].results[0]["scores"]
    lines = []
    for measure in ("mAP", "R"):
        said = Protocol.from_dict(scores[f"{DIRECT} {measure}"]["protocol"])
        lines.append(f"{collection.title}, {said.title}: {said.replace(seeds=(), bits=0)}")
    return lines


def table_of(collection: Collection, cells: list[Cell], floats: Record, left_out: str) -> Table:
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


def record_of(cell: Cell) -> Record:
    """A flat row with every number."""
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


def draw(
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
