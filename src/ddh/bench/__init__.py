"""Benchmarks and the paper's tables and figures: one file each, run as `ddh bench NAME`."""

import click

from ddh.cli import LazyGroup

BENCHES = {
    "labels": "ddh.bench.labels:labels",
    "objective": "ddh.bench.objective:objective",
    "encode": "ddh.bench.encode:encode",
}


@click.group(cls=LazyGroup, verbs=BENCHES)
def bench() -> None:
    """Speed benches, and the paper's tables and figures made again."""
