"""A retrieval table of the paper made again: rows x code lengths x seeds, beside its figures."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ddh._core.errors import InputError
from ddh._core.progress import bar
from ddh.bench.examples import example_pictures
from ddh.bench.options import command_line
from ddh.bench.paper import PaperTable
from ddh.bench.plots import COLOURS, drawing, style
from ddh.bench.retrieval_measure import Row, Task, measure_row, measure_vectors
from ddh.bench.store import Store
from ddh.bench.writing import Outcome, Table
from ddh.evaluation import Protocol


@dataclass(frozen=True)
class Cell:
    """All seeds of one method at one code length."""

    row: Row
    bits: int
    seeds: tuple[int, ...]
    results: list[dict[str, Any]]

    def values(self, score: str) -> list[float]:
        """One value a seed."""
        return [result["scores"][score]["value"] for result in self.results]

    def figure(self, score: str, digits: int = 3) -> str:
        """Mean, with the deviation where there are several seeds."""
        values = self.values(score)
        text = f"{np.mean(values):.{digits}f}"
        return text if len(values) == 1 else f"{text} ± {np.std(values, ddof=1):.{digits}f}"

    def mean(self, score: str) -> float:
        """Mean over seeds."""
        return float(np.mean(self.values(score)))

    def seconds(self, what: str) -> float:
        """Mean time over seeds."""
        return float(np.mean([result[what] for result in self.results]))


@dataclass(frozen=True)
class RetrievalBench:
    """What is to be measured: rows, code lengths, seeds, settings by method."""

    name: str
    title: str
    paper: PaperTable
    rows: list[Row]
    bits: tuple[int, ...]
    seeds: tuple[int, ...]
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    note: str = ""

    def only(self, names: str | None) -> "RetrievalBench":
        """Some of the rows, by their name in the table or the method's name here."""
        if names is None:
            return self
        wanted = {name.strip().lower() for name in names.split(",")}
        known = {name.lower() for row in self.rows for name in (row.label, row.method)}
        if unknown := wanted - known:
            choices = ", ".join(row.label for row in self.rows)
            raise InputError(f"{self.name} has no row {', '.join(sorted(unknown))}: {choices}")
        rows = [row for row in self.rows if {row.label.lower(), row.method.lower()} & wanted]
        return replace(self, rows=rows)

    def measure(self, task: Task, store: Store, device: str) -> list[Cell]:
        """All cells; those that the store knows cost nothing."""
        jobs = list(self._jobs())
        cells: dict[tuple[str, int], Cell] = {}
        with bar(self.name, total=len(jobs), unit="run") as progress:
            for row, bits, seed in jobs:
                progress.set_postfix_str(f"{row.label}, {bits} bits, seed {seed}")
                settings = self.settings.get(row.method, {})
                result = measure_row(store, task, row, bits, seed, settings, device)
                cell = cells.setdefault((row.label, bits), Cell(row, bits, (), []))
                cells[row.label, bits] = Cell(
                    row, bits, (*cell.seeds, seed), [*cell.results, result]
                )
                progress.update()
        return list(cells.values())

    def _jobs(self) -> Iterator[tuple[Row, int, int]]:
        for row in self.rows:
            for bits in self.bits:
                for seed in self.seeds if row.chance else self.seeds[:1]:
                    yield row, bits, seed

    def run(self, task: Task, store: Store, device: str) -> Outcome:
        """Measure, write the folder of the bench, and say what was found."""
        cells = self.measure(task, store, device)
        vectors = measure_vectors(store, task, device)
        folder = store.folder(self.name)
        outcome = Outcome(
            bench=self.name,
            title=self.title,
            command=command_line(),
            protocol=self._protocol(cells),
            tables=[self.paper_table(cells, task, vectors), measures_table(cells, task)],
            records=[_record(cell, self.paper) for cell in cells],
        )
        outcome.figures = [
            draw_lengths(folder, cells, self.paper, task),
            draw_balance(folder, cells),
            draw_entropy(folder, cells),
        ]
        outcome.details["examples"] = example_pictures(task, cells[-1].results[0]["examples"])
        outcome.details["examples_of"] = f"{cells[-1].row.label}, {cells[-1].bits} bits"
        outcome.write(folder)
        return outcome

    def _protocol(self, cells: list[Cell]) -> list[str]:
        first = cells[0].results[0]["scores"]
        said = [
            Protocol.from_dict(first[name]["protocol"]).but(seeds=(), bits=0)
            for name in ("legacy", "expected")
        ]
        lines = [f"{protocol.title}: {protocol}" for protocol in said]
        seeds = {cell.row.label: cell.seeds for cell in cells}
        lines.append(
            "seeds: " + "; ".join(f"{name} {', '.join(map(str, s))}" for name, s in seeds.items())
        )
        return lines

    def paper_table(self, cells: list[Cell], task: Task, vectors: dict[str, Any]) -> Table:
        """The paper's value, the legacy value and the tie-aware value for each code length."""
        columns = ["Method"]
        for bits in self.bits:
            columns += [f"{bits} bit, paper", f"{bits} bit, legacy", f"{bits} bit, expected"]
        found = {(cell.row.label, cell.bits): cell for cell in cells}
        rows, best = [], []
        for row in self.rows:
            line = [row.label + (" (labels)" if row.supervised else "")]
            for bits in self.bits:
                printed = self.paper.value(row.label, bits)
                cell = found[row.label, bits]
                line.append("" if printed is None else f"{printed:.3f}")
                line += [cell.figure("legacy"), cell.figure("expected")]
            rows.append(line)
        for place, bits in enumerate(self.bits):
            means = [found[row.label, bits].mean("legacy") for row in self.rows]
            best.append((int(np.argmax(means)), 3 * place + 2))
        cosine = vectors["scores"]["legacy"]["value"]
        note = (
            "paper: as printed. legacy: ties in a seeded order, AP divided by the relevant items "
            "in the top k, as published tables do. expected: the mean over all orders of ties. "
            "± is the sample deviation over seeds. Rows with (labels) learn from class labels. "
            f"The cosine ranking of the real-valued features themselves has {cosine:.3f} (legacy). "
        )
        printed_on = f"beside the paper's Table {self.paper.number} ({self.paper.data})"
        title = f"{_measure_name(task)} on {task.found.data}, {printed_on}"
        return Table(title, columns, rows, (note + self.note).strip(), best)


def _measure_name(task: Task) -> str:
    return "mAP over the whole ranking" if task.split.k is None else f"mAP@{task.split.k}"


def measures_table(cells: list[Cell], task: Task) -> Table:
    """Everything else that was measured, one line a method and code length."""
    graded = ["ndcg"] if "ndcg" in cells[0].results[0]["scores"] else []
    names = ["expected, min(R, k)", "whole", "precision", "recall", "radius 2", *graded]
    first = cells[0].results[0]["scores"]
    titles = {
        "expected, min(R, k)": f"{_measure_name(task)} / min(R, k)",
        "whole": "mAP, whole ranking",
        "precision": f"precision@{first['precision']['protocol']['k']}",
        "recall": f"recall@{first['recall']['protocol']['k']}",
        "radius 2": "precision, radius 2",
        "ndcg": f"NDCG@{first['ndcg']['protocol']['k']}" if graded else "",
    }
    columns = ["Method", "bits", *[titles[name] for name in names]]
    columns += ["different codes", "fit s", "encode s"]
    rows = []
    for cell in cells:
        unique = np.mean([result["diagnostics"]["unique_ratio"] for result in cell.results])
        line = [cell.row.label, str(cell.bits), *[cell.figure(name) for name in names]]
        line += [f"{unique:.1%}", f"{cell.seconds('fit_seconds'):.2f}"]
        rows.append([*line, f"{cell.seconds('encode_seconds'):.2f}"])
    note = "All values are expected values over the orders of ties; times are of this machine."
    return Table("Other measures", columns, rows, note)


def _record(cell: Cell, paper: PaperTable) -> dict[str, Any]:
    record: dict[str, Any] = {
        "row": cell.row.label,
        "method": cell.row.method,
        "labels": cell.row.supervised,
        "bits": cell.bits,
        "seeds": " ".join(map(str, cell.seeds)),
        "paper": paper.value(cell.row.label, cell.bits),
    }
    for name in cell.results[0]["scores"]:
        values = cell.values(name)
        record[name] = cell.mean(name)
        record[f"{name} deviation"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    record["fit seconds"] = cell.seconds("fit_seconds")
    record["encode seconds"] = cell.seconds("encode_seconds")
    record["settings"] = str(cell.results[0]["settings"])
    return record


def draw_lengths(folder: Any, cells: list[Cell], paper: PaperTable, task: Task) -> dict[str, str]:
    """mAP over the code length, ours as lines and the paper's DDH as crosses."""
    labels = list(dict.fromkeys(cell.row.label for cell in cells))
    lengths = sorted({cell.bits for cell in cells})
    printed = {bits: value for bits in lengths if (value := paper.value("DDH", bits)) is not None}
    with drawing(folder, "map") as axes:
        for place, label in enumerate(labels):
            chosen = [cell for cell in cells if cell.row.label == label]
            bits = [cell.bits for cell in chosen]
            values = [cell.mean("legacy") for cell in chosen]
            axes.plot(bits, values, marker="o", ms=4, label=label, **style(place, label == "DDH"))
        axes.plot(
            list(printed), list(printed.values()), "x", color=COLOURS[0], ms=7, label="DDH, paper"
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [str(bits) for bits in lengths])
        axes.minorticks_off()
        axes.set(xlabel="bits", ylabel=f"{_measure_name(task)} (legacy)")
        highest = max(*printed.values(), *(cell.mean("legacy") for cell in cells), 0.0)
        axes.set_ylim(0, 1.4 * highest)  # room for the legend
        axes.legend(loc="upper left", ncols=3)
    return {"name": "map", "title": "mAP over the code length"}


def draw_balance(folder: Any, cells: list[Cell]) -> dict[str, str]:
    """How lopsided the bits of the longest codes are."""
    chosen = _longest(cells)
    with drawing(folder, "balance") as axes:
        for place, cell in enumerate(chosen):
            balance = np.sort(np.abs(cell.results[0]["diagnostics"]["balance"]))
            look = style(place, cell.row.label == "DDH")
            axes.plot(np.arange(1, len(balance) + 1), balance, label=cell.row.label, **look)
        axes.set(xlabel="bit, from balanced to lopsided", ylabel="|mean of the bit|")
        axes.set_ylim(0, 1)
        axes.legend(ncols=2)
    return {"name": "balance", "title": f"Balance of the bits, {chosen[0].bits} bits"}


def draw_entropy(folder: Any, cells: list[Cell]) -> dict[str, str]:
    """How many different codes the database has, and how evenly they are used."""
    chosen = _longest(cells)
    names = [cell.row.label for cell in chosen]
    shown = [cell.results[0]["diagnostics"] for cell in chosen]
    with drawing(folder, "entropy") as axes:
        places = np.arange(len(names))
        colours = [style(i, name == "DDH")["color"] for i, name in enumerate(names)]
        axes.barh(places, [one["code_entropy"] for one in shown], color=colours, height=0.62)
        for place, one in enumerate(shown):
            axes.annotate(
                f"{one['unique_ratio']:.0%} different",
                (one["code_entropy"], place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.margins(x=0.3)
        axes.set(xlabel="entropy of the database's codes (bits)")
    return {"name": "entropy", "title": f"Different codes, {chosen[0].bits} bits"}


def _longest(cells: list[Cell]) -> list[Cell]:
    longest = max(cell.bits for cell in cells)
    return [cell for cell in cells if cell.bits == longest]
