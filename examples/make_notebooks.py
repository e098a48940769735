"""Write the notebooks of the example scripts: `make notebooks`.

The scripts beside this file are in the percent format: `# %%` begins a cell of code, and
`# %% [markdown]` one of text in comments. A notebook is made of a script alone, without outputs and
without a clock, so the same script always gives the same bytes.
"""

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
MARK = "# %%"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def scripts(folder: Path = FOLDER) -> list[Path]:
    """The scripts in percent format, in order."""
    return sorted(path for path in folder.glob("*.py") if path.read_text().startswith(MARK))


def notebook(script: str, name: str) -> dict[str, Any]:
    """A notebook (format 4.5) of a script's text; `name` makes the ids of its cells."""
    cells = []
    for number, (is_text, lines) in enumerate(_cells(script.splitlines())):
        if is_text:
            lines = [_without_comment(line, name) for line in lines]
        cell: dict[str, Any] = {
            "cell_type": "markdown" if is_text else "code",
            "id": f"{name.replace('_', '-')[:50]}-{number}",
            "metadata": {},
            "source": "\n".join(lines).strip("\n").splitlines(keepends=True),
        }
        if not is_text:
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def _cells(lines: list[str]) -> list[tuple[bool, list[str]]]:
    """The cells of a script: whether each is text, and its lines."""
    cells: list[tuple[bool, list[str]]] = []
    for line in lines:
        if line.startswith(MARK):
            kind = line.removeprefix(MARK).strip()
            if kind not in ("", "[markdown]"):
                raise ValueError(f"a cell is code or [markdown], not {kind!r}")
            cells.append((kind == "[markdown]", []))
        elif cells:
            cells[-1][1].append(line)
        elif line.strip():
            raise ValueError(f"a script begins with {MARK!r}, not with {line!r}")
    return cells


def _without_comment(line: str, name: str) -> str:
    if line.strip() and not line.startswith("#"):
        raise ValueError(f"{name}: text in a [markdown] cell is a comment, not {line!r}")
    return line.removeprefix("#").removeprefix(" ")


def target(script: Path) -> Path:
    """Where the notebook of a script lies."""
    return script.parent / "notebooks" / f"{script.stem}.ipynb"


def text(script: Path) -> str:
    """The bytes of a script's notebook."""
    content = notebook(script.read_text(encoding="utf-8"), script.stem)
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    for script in scripts():
        target(script).parent.mkdir(exist_ok=True)
        target(script).write_text(text(script), encoding="utf-8")
        print(target(script).relative_to(FOLDER.parent))


if __name__ == "__main__":
    sys.exit(main())
