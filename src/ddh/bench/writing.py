"""What a bench writes: Markdown for people, CSV for spreadsheets, JSON for programs."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

import ddh
from ddh._core.atomic import write_atomic
from ddh._core.output import emit

RESULTS = "results.json"


@dataclass(frozen=True)
class Table:
    """A titled table; cells are ready text, `best` are (row, column) of those to set in bold."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""
    best: list[tuple[int, int]] = field(default_factory=list)

    def markdown(self) -> str:
        """GitHub-flavoured Markdown."""
        lines = [f"### {self.title}", ""]
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|" + "|".join(["---", *["---:"] * (len(self.columns) - 1)]) + "|")
        for i, row in enumerate(self.rows):
            cells = [f"**{cell}**" if (i, j) in self.best else cell for j, cell in enumerate(row)]
            lines.append("| " + " | ".join(cells) + " |")
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines) + "\n"


@dataclass
class Outcome:
    """All that a bench has to say: tables, figures (files in its folder), what it was made with.

    `records` are flat rows with every number, for results.csv; `details` is anything else that
    the report draws from.
    """

    bench: str
    title: str
    command: str
    protocol: list[str]
    tables: list[Table]
    records: list[dict[str, Any]]
    figures: list[dict[str, str]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """results.json, results.csv and table.md in the bench's folder, made if need be."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / RESULTS, json.dumps(self.as_dict(), indent=1).encode())
        write_atomic(folder / "results.csv", _csv(self.records).encode())
        write_atomic(folder / "table.md", self.markdown().encode())

    def show(self, folder: Path, as_json: bool) -> None:
        """Print the page, or all of it as JSON, and where it was written."""
        emit(self.as_dict(), self.markdown(), as_json)
        click.echo(f"written to {folder}", err=True)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with the version of the library."""
        return {"library": ddh.__version__, **asdict(self)}

    def markdown(self) -> str:
        """The page of this bench."""
        parts = [f"## {self.title}", "", f"`{self.command}`", ""]
        parts += [table.markdown() for table in self.tables]
        parts += [f"![{figure['title']}]({figure['name']}.png)" for figure in self.figures]
        parts += ["", "Measured on:", "", *[f"- {line}" for line in self.protocol], ""]
        return "\n".join(parts)

    @classmethod
    def read(cls, folder: Path) -> "Outcome":
        """What `write` wrote."""
        content = json.loads((folder / RESULTS).read_text())
        content.pop("library")
        for table in content["tables"]:
            table["best"] = [tuple(place) for place in table["best"]]
        content["tables"] = [Table(**table) for table in content["tables"]]
        return cls(**content)


def _csv(records: Sequence[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for record in records for name in record))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue()
