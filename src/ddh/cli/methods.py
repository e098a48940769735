"""`ddh methods`: every hashing method by name, with its paper and what it needs."""

from typing import Any

import click

from ddh._core.output import emit, json_option

LABELS = {"none": "no", "optional": "if given", "required": "yes"}


@click.command()
@json_option
def methods(as_json: bool) -> None:
    """List the hashing methods: name, kind, whether labels are needed, paper and year.

    \b
    ddh methods
    ddh methods --json
    """
    from ddh.hashers.registry import describe

    rows = describe()
    emit({"methods": rows}, _table(rows), as_json)


def _table(rows: list[dict[str, Any]]) -> str:
    widths = {key: max(len(row[key]) for row in rows) + 2 for key in ("name", "kind")}
    lines = [f"{'name':<{widths['name']}}{'kind':<{widths['kind']}}{'labels':<10}paper"]
    for row in rows:
        lines.append(
            f"{row['name']:<{widths['name']}}{row['kind']:<{widths['kind']}}"
            f"{LABELS[row['labels']]:<10}{row['paper']} {row['year']}"
        )
    return "\n".join(lines)
