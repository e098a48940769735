"""Options and inputs that several commands share."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from ddh._core.errors import InputError

ANY_PATH = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
NEW_FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING = click.Path(exists=True, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def or_default(ctx: click.Context, parameter: click.Parameter, location: str | None) -> str:
    """The index that was named, or the user's own."""
    from ddh.index.location import default_location

    return location or default_location()


class NewFile(click.Path):
    """A file to be written, refused at once where that cannot be done, not after the work."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(str(super().convert(value, param, ctx)))
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            self.fail(f"nothing can be written to {folder}", param, ctx)
        return path


NEW_FILE = NewFile()
index_option = click.option(
    "-i", "--index", "location", metavar="INDEX", callback=or_default,
    help="A folder, postgresql://..., milvus://..., or a Milvus Lite file (.db).  "
    "[default: DDH_INDEX, or photos.index in the user's data folder]",
)  # fmt: skip
model_option = click.option(
    "-m", "--model", type=ANY_PATH, help="Model folder; not needed where the index remembers it."
)
device_option = click.option("--device", default="auto", help="auto, cpu, cuda, mps.")
sheet_option = click.option("--sheet", type=NEW_FILE, help="Write a contact sheet (PNG).")


class Source(click.Path):
    """A path that must exist, or a URL (`s3://bucket/photos`), which stays a string."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(exists=True, file_okay=file_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        location = str(value).removeprefix("file://")
        return location if "://" in location else super().convert(location, param, ctx)


def local_path(source: Path | str) -> Path:
    """The source of a command that runs without Ray, which must be a path."""
    if isinstance(source, str):
        raise InputError(
            f"{source} is read by the workers of a cluster: add --ray local (this machine alone) "
            "or --ray ADDRESS"
        )
    return source


def ray_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--ray` and its options; the command gets `cluster`, None where it runs without Ray."""

    @click.option(
        "--ray", metavar="ADDRESS",
        help="Run on a Ray cluster: auto, local, HOST:PORT or ray://HOST:PORT.",
    )  # fmt: skip
    @click.option(
        "--actors", type=click.IntRange(1),
        help="With --ray: number of workers; by default one per GPU, or else one per CPU.",
    )  # fmt: skip
    @click.option(
        "--gpus-per-actor", type=click.FloatRange(0),
        help="With --ray: GPUs per worker (0.5: two share one); 1 where there are any.",
    )  # fmt: skip
    @click.option(
        "--batch-size", type=click.IntRange(1), default=1024,
        help="With --ray: images handed to a worker at a time.",
    )  # fmt: skip
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

    return run


def checkpoint_dir(out: Path) -> Path:
    """Where a run keeps its unfinished work: beside its output."""
    return out.with_name(out.name + ".work")


def read_input(path: Path) -> Any:
    """A folder or an image stays a path; a .npy file is an array of images or features."""
    if path.suffix != ".npy":
        return path
    import numpy as np

    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise InputError(f"{path} cannot be read as an array: {error}") from error
