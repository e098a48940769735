"""All results of a folder as one HTML page: no network, no script, light and dark, any width."""

import re
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

import ddh
from ddh._core.errors import InputError
from ddh.bench.plots import FAINT, INK
from ddh.bench.results import Outcome, Table

ORDER = ("table2", "table3", "fig2", "fig3", "table4", "table5", "table6", "recall")

STYLE = """
:root { color-scheme: light dark; --ground: #fbfbfa; --card: #ffffff; --ink: #1b1f24;
  --soft: #57606a; --rule: #d8dce2; --accent: #b34a00; --right: #00875f; --wrong: #d04814; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --card: #1c2026; --ink: #e6e9ed;
  --soft: #9aa4af; --rule: #3a414a; --accent: #ff9d57; --right: #2fbf8f; --wrong: #ff7a4d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main, header { max-width: 76rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 0 0 .5rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .5rem; }
p { margin: .4rem 0; }
.soft, figcaption, .note { color: var(--soft); font-size: .875rem; }
nav { display: flex; flex-wrap: wrap; gap: .4rem; margin: 1rem 0 0; }
nav a { color: var(--ink); text-decoration: none; border: 1px solid var(--rule);
  border-radius: 1rem; padding: .15rem .75rem; font-size: .875rem; background: var(--card); }
nav a:hover, nav a:focus { border-color: var(--accent); color: var(--accent); }
section { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
  padding: 1.2rem; margin: 1.2rem 0; }
code { font: .85rem/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 0 -1.2rem; padding: 0 1.2rem; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; color: var(--soft); vertical-align: bottom; white-space: normal;
  min-width: 4.2rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0;
  background: var(--card); padding-left: 0; }
td.best { font-weight: 700; color: var(--accent); }
.figures { display: grid; gap: 1.2rem; margin-top: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); }
figure { margin: 0; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { margin-top: .2rem; }
.retrieval { display: flex; gap: .5rem; align-items: flex-start; margin: .5rem 0; }
.found { display: flex; flex-wrap: wrap; gap: .3rem; }
.tile { position: relative; width: 4.6rem; height: 4.6rem; border: 3px solid var(--rule);
  border-radius: .3rem; background: var(--ground); flex: none; }
.tile img { width: 100%; height: 100%; object-fit: contain; display: block;
  image-rendering: auto; }
.tile.right { border-color: var(--right); }
.tile.wrong { border-color: var(--wrong); }
.tile b { position: absolute; right: -3px; top: -3px; width: 1.05rem; height: 1.05rem;
  font: 700 .75rem/1.05rem system-ui, sans-serif; text-align: center; color: #fff;
  border-radius: 0 .3rem 0 .3rem; }
.right b { background: #00875f; } .wrong b { background: #d04814; }
.query { border-color: var(--ink); }
details { margin-top: 1rem; } summary { cursor: pointer; color: var(--soft); font-size: .875rem; }
details li { overflow-wrap: anywhere; font-size: .875rem; color: var(--soft); }
@media (max-width: 40rem) { section { padding: .9rem; } .tile { width: 3.6rem; height: 3.6rem; }
  .wide { margin: 0 -.9rem; padding: 0 .9rem; } header { padding-top: 1.2rem; } }
"""


def read_outcomes(folder: Path) -> list[tuple[Outcome, Path]]:
    """The results in a folder or in its subfolders, in the order of the paper."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give the one that `ddh bench` wrote into")
    found = []
    for place in [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]:
        with suppress(OSError, ValueError, KeyError, TypeError):  # none, or of another kind
            found.append((Outcome.read(place), place))
    if not found:
        raise InputError(
            f"no results in {folder}: run a bench first, for example "
            f"`ddh bench table2 --data DIR -o {folder}`"
        )
    rank = {name: place for place, name in enumerate(ORDER)}
    return sorted(found, key=lambda one: (rank.get(one[0].bench, len(ORDER)), one[0].bench))


def page(outcomes: list[tuple[Outcome, Path]], title: str) -> str:
    """The whole page."""
    links = "".join(
        f'<a href="#{one.bench}">{escape(one.title.split(":")[0])}</a>' for one, _ in outcomes
    )
    sections = "".join(_section(outcome, folder) for outcome, folder in outcomes)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<header><h1>{escape(title)}</h1>"
        f'<p class="soft">Deep Discrete Hashing with self-supervised pairwise labels: results of '
        f"ddh {escape(ddh.__version__)}, beside the figures printed in the paper.</p>"
        f"<nav>{links}</nav></header><main>{sections}</main></body></html>\n"
    )


def _section(outcome: Outcome, folder: Path) -> str:
    parts = [f"<h2>{escape(outcome.title)}</h2>", f"<p><code>{escape(outcome.command)}</code></p>"]
    parts += [_table(table) for table in outcome.tables[:1]]
    figures = "".join(_figure(figure, outcome.bench, folder) for figure in outcome.figures)
    parts.append(f'<div class="figures">{figures}</div>')
    parts.append(_examples(outcome.details))
    parts += [_table(table) for table in outcome.tables[1:]]
    lines = "".join(f"<li>{escape(line)}</li>" for line in outcome.protocol)
    parts.append(f"<details><summary>How it was measured</summary><ul>{lines}</ul></details>")
    return f'<section id="{outcome.bench}">{"".join(parts)}</section>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    body = ""
    for i, row in enumerate(table.rows):
        best = [' class="best"' if (i, j) in table.best else "" for j in range(len(row))]
        cells = zip(best, row, strict=True)
        body += f"<tr>{''.join(f'<td{style}>{escape(cell)}</td>' for style, cell in cells)}</tr>"
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h3>{escape(table.title)}</h3><div class="wide" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )


def _figure(figure: dict[str, str], bench: str, folder: Path) -> str:
    try:
        drawn = (folder / f"{figure['name']}.svg").read_text()
    except OSError as error:
        raise InputError(
            f"{folder / figure['name']}.svg is missing; run `ddh bench {bench}` again"
        ) from error
    title = figure["title"]
    drawing = inline_svg(drawn, f"{bench}-{figure['name']}", title)
    return f"<figure>{drawing}<figcaption>{escape(title)}</figcaption></figure>"


def inline_svg(text: str, prefix: str, title: str) -> str:
    """A drawing as part of the page: colours of the page, no ids in common with another one."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", body)
    body = re.sub(r"font: ([\d.]+px) [^;\"]+", r"font: \1 system-ui, sans-serif", body)
    body = body.replace(INK, "currentColor").replace(FAINT, "var(--rule)")
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def _examples(details: dict[str, Any]) -> str:
    if not details.get("examples"):
        return ""
    text = (
        f"<h3>Example retrievals: {escape(details['examples_of'])}</h3>"
        '<p class="note">Random queries with their ten nearest database images, nearest first. '
        "A tick marks an image that shares a label with the query.</p>"
    )
    for example in details["examples"]:
        query = f'<div class="tile query"><img src="{example["query"]}" alt="query"></div>'
        text += f'<div class="retrieval">{query}<div class="found">'
        for url, right in zip(example["found"], example["right"], strict=True):
            kind, mark = ("right", "✓") if right else ("wrong", "✗")
            text += f'<div class="tile {kind}"><img src="{url}" alt="{kind}"><b>{mark}</b></div>'
        text += "</div></div>"
    return text
