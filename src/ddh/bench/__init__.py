"""Benchmarks and the paper's tables and figures: one file each, run as `ddh bench NAME`."""

import click

from ddh._core.output import LazyGroup
from ddh.bench.tables import TABLES

BENCHES = {
    "labels": "ddh.bench.labels:labels",
    "objective": "ddh.bench.objective:objective",
    "encode": "ddh.bench.encode:encode",
    "search": "ddh.bench.search:search",
    "scale": "ddh.bench.scale:scale",
    "serve": "ddh.bench.serve:serve",
    "chaos": "ddh.bench.chaos:chaos",
    "methods": "ddh.bench.methods:methods",
    "table2": "ddh.bench.retrieval_table:table2",
    "table3": "ddh.bench.retrieval_table:table3",
    "table4": "ddh.bench.retrieval_table:table4",
    "table5": "ddh.bench.retrieval_table:table5",
    "table6": "ddh.bench.table6:table6",
    "quality": "ddh.bench.quality:quality",
    "recall": "ddh.bench.recall:recall",
    "duplicates": "ddh.bench.duplicates:duplicates",
    "presets": "ddh.bench.presets:presets",
    "depths": "ddh.bench.depths:depths",
    "fig2": "ddh.bench.fig2:fig2",
    "fig3": "ddh.bench.retrieval_table:fig3",
}


@click.group(
    cls=LazyGroup,
    verbs=BENCHES,
    short_helps={table.name: table.short_help for table in TABLES},
    context_settings={"show_default": True},
)
def bench() -> None:
    """Speed benches, and the paper's tables and figures made again."""
