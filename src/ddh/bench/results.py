"""The results folder: each measurement is made once, and each bench writes its tables there.

    results/measurements/ITQ-64-0-1f3a....json   one measurement and its key
    results/features/9c0e....npy                 features of a data set
    results/table2/...                           Markdown, CSV and JSON of a bench

A measurement is found by a digest of its whole key (library, data, split, features, method,
settings, bits, seed, cut). Benches therefore share measurements, an interrupted run resumes, and a
changed setting is measured anew. After changing the code of a method, use a new folder.
"""

import csv
import hashlib
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

import ddh
from ddh._core.atomic import write_atomic
from ddh._core.errors import InputError
from ddh._core.output import emit

RESULTS = "results.json"
Key = dict[str, Any]
Record = dict[str, Any]


def key_digest(key: Key) -> str:
    """16 hexadecimal digits for a key."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


class Store:
    """A results folder."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root} is a file; results are written into a folder")

    def folder(self, bench: str) -> Path:
        """The folder of a bench, created if necessary."""
        path = self.root / bench
        path.mkdir(parents=True, exist_ok=True)
        return path

    def measure(self, name: str, key: Key, compute: Callable[[], Record]) -> Record:
        """The result stored for `key`, or that of `compute()`, which is then stored."""
        path = self.folder("measurements") / f"{name}-{key_digest(key)}.json"
        try:
            content = json.loads(path.read_text())
            if content["key"] == json.loads(json.dumps(key)):
                return dict(content["result"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # missing or truncated: measure again
        result = compute()
        write_atomic(path, json.dumps({"key": key, "result": result}, indent=1).encode())
        return result


def figure(values: Sequence[float], digits: int = 3) -> str:
    """The mean, with the sample standard deviation where there are several values."""
    text = f"{np.mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {np.std(values, ddof=1):.{digits}f}"


@dataclass(frozen=True)
class Table:
    """A titled table of formatted cells; `best` lists the (row, column) of cells in bold."""

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


def table_of(
    title: str, records: Sequence[Record], columns: dict[str, str], note: str = ""
) -> Table:
    """A table with a row per record; `columns` maps each heading to a format string."""
    rows = [[cell.format_map(record) for cell in columns.values()] for record in records]
    return Table(title, list(columns), rows, note)


def command_line() -> str:
    """The command as it was typed, with absolute paths reduced to their last part."""
    words = []
    for word in sys.argv[1:]:
        name, equals, value = word.rpartition("=")
        if equals and Path(value).is_absolute():
            words.append(f"{name}={Path(value).name}")
        else:
            words.append(Path(word).name if Path(word).is_absolute() else word)
    return "ddh " + shlex.join(words)


@dataclass
class Outcome:
    """What a bench reports: tables, figures (files in its folder) and how they were measured.

    `records` are flat rows with every number, for results.csv; `details` holds anything else that
    the HTML report shows.
    """

    bench: str
    title: str
    protocol: list[str]
    tables: list[Table]
    records: list[Record]
    figures: list[dict[str, str]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    command: str = field(default_factory=command_line)

    def publish(self, store: Store, as_json: bool) -> None:
        """Write the files of the bench, and print the page or, with `as_json`, everything."""
        folder = store.folder(self.bench)
        self.write(folder)
        emit(self.as_dict(), self.markdown(), as_json)
        click.echo(f"written to {folder}", err=True)

    def write(self, folder: Path) -> None:
        """results.json, results.csv and table.md in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        columns = dict.fromkeys(name for record in self.records for name in record)
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(columns), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records)
        write_atomic(folder / RESULTS, json.dumps(self.as_dict(), indent=1).encode())
        write_atomic(folder / "results.csv", stream.getvalue().encode())
        write_atomic(folder / "table.md", self.markdown().encode())

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with the version of the library."""
        return {"library": ddh.__version__, **asdict(self)}

    def markdown(self) -> str:
        """The Markdown page of the bench."""
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
