"""The options of commands that can run on a Ray cluster, and sources that may be URLs."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from ddh._core.errors import InputError

Command = Callable[..., Any]


class Source(click.Path):
    """A path that must be there, or a URL (`s3://bucket/photos`), which stays text."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(exists=True, file_okay=file_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        source = str(value).removeprefix("file://")
        return source if "://" in source else super().convert(source, param, ctx)


def ray_options(command: Command) -> Command:
    """`--ray` and what belongs to it; a command gets `cluster`, None where it runs without Ray."""

    @wraps(command)
    def run(
        *, ray: str | None, actors: int | None, gpus_per_actor: float | None, batch_size: int,
        device: str, **others: Any,
    ) -> Any:  # fmt: skip
        cluster = None
        if ray is not None:
            from ddh.cluster import Cluster

            cluster = Cluster(ray, actors, gpus_per_actor, device, batch_size)
        return command(cluster=cluster, device=device, **others)

    for option in (
        click.option(
            "--batch-size", type=click.IntRange(1), default=1024, show_default=True,
            help="With --ray: images handed to a worker at a time.",
        ),
        click.option(
            "--gpus-per-actor", type=click.FloatRange(0),
            help="With --ray: GPUs per worker (0.5: two share one); 1 where there are any.",
        ),
        click.option(
            "--actors", type=click.IntRange(1),
            help="With --ray: number of workers; by default one per GPU, or else per CPU.",
        ),
        click.option(
            "--ray", metavar="ADDRESS",
            help="Run on a Ray cluster: auto, local, HOST:PORT or ray://HOST:PORT.",
        ),
    ):  # fmt: skip
        run = option(run)
    return run


def local_path(source: Path | str) -> Path:
    """The source of a command that runs without Ray, which must be a path."""
    if isinstance(source, str):
        raise InputError(
            f"{source} is read by the workers of a cluster: add --ray local (this machine alone) "
            "or --ray ADDRESS"
        )
    return source
