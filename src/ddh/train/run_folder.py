"""The folder of a run: what it keeps for resuming, apart from everything else, gone at the end."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddh._core.atomic import exclusive, write_atomic
from ddh._core.errors import InputError, ModelError
from ddh.train.distributed import current

NAME, MARKER = "ddh-run", "run.json"


@dataclass(frozen=True)
class Run:
    """Folder, seed and whether to continue what an interrupted run has left there."""

    folder: Path | None
    seed: int
    resume: bool = False


@contextmanager
def run_folder(checkpoint_dir: Path | None, resume: bool, random_state: Any) -> Iterator[Run]:
    """A folder for the time of a run, and the seed that all of its processes use.

    Our files lie in `checkpoint_dir/ddh-run`, marked by a file that keeps a drawn seed: it alone
    is deleted when the run has ended, and kept when it was interrupted. Two runs cannot share it.
    """
    processes = current()
    folder = None if checkpoint_dir is None else checkpoint_dir / NAME
    with ExitStack() as held:
        seed = processes.run_on_main(lambda: _begin(folder, resume, random_state, held))
        try:
            yield Run(folder, seed, resume)
        except BaseException:
            if folder is not None and processes.is_main and len(list(folder.iterdir())) == 1:
                _delete(folder)  # it holds the marker alone: nothing to resume
            raise
        processes.barrier()
        if folder is not None and processes.is_main:
            _delete(folder)


def _begin(folder: Path | None, resume: bool, random_state: Any, held: ExitStack) -> int:
    """Make, mark and lock the folder; the seed of the run."""
    seed = random_state
    if seed is None:
        seed = np.random.SeedSequence().generate_state(1)[0]
    if folder is None:
        return int(seed)
    marker = folder / MARKER
    if folder.exists():
        if not marker.is_file():
            raise InputError(f"{folder} was not made by ddh: choose another folder")
        if not resume:
            raise InputError(
                f"{folder.parent} holds the work of an interrupted run: resume it, or delete "
                f"{folder}"
            )
        if random_state is None:
            seed = read_json(marker)["seed"]
    folder.mkdir(parents=True, exist_ok=True)
    held.enter_context(exclusive(folder))
    write_atomic(marker, json.dumps({"seed": int(seed)}).encode())
    return int(seed)


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.is_dir() and not any(folder.parent.iterdir()):
        folder.parent.rmdir()


def read_json(path: Path) -> dict[str, Any]:
    """A file of plain values that an interrupted run has left."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged; delete it to start again") from error
