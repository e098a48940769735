"""Which folders have changed, as they change: for `ddh add --watch`."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import click

from ddh._core.errors import optional

CHANGES = ("created", "deleted", "modified", "moved")
QUIET_SECONDS = 2.0  # without a change: a copy of many files is one change
MISSING = "--watch needs watchdog: pip install 'ddh[photos]'"


def watch_folders(
    folders: list[Path], index: Path | None, quiet: float = QUIET_SECONDS
) -> Iterator[list[Path]]:
    """The folders in which something has changed, each time that it has settled.

    What changes in the `index` itself does not count, which may lie in one of them.
    """
    events = optional("watchdog.events", MISSING)
    observers = optional("watchdog.observers", MISSING)
    changed: Queue[Path] = Queue()

    class Handler(events.FileSystemEventHandler):  # type: ignore[misc, name-defined]
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def on_any_event(self, event: Any) -> None:
            file = Path(os.fsdecode(event.src_path))
            is_own = index is not None and file.is_relative_to(index)
            if event.event_type in CHANGES and not is_own:
                changed.put(self.folder)

    observer = observers.Observer()
    for folder in folders:
        if folder.is_dir():
            observer.schedule(Handler(folder), str(folder), recursive=True)
    observer.start()
    click.echo(f"Watching {', '.join(map(str, folders))}  (Ctrl-C stops)", err=True)
    try:
        while True:
            yield _settled(changed, quiet)
    finally:
        observer.stop()
        observer.join()


def _settled(changed: "Queue[Path]", quiet: float) -> list[Path]:
    """Wait for a change, and until there is none for a while."""
    found = {_next(changed, None)}
    while (more := _next(changed, quiet)) is not None:
        found.add(more)
    return sorted(path for path in found if path is not None)


def _next(changed: "Queue[Path]", seconds: float | None) -> Path | None:
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        try:  # short waits, so that Ctrl-C is heard everywhere
            return changed.get(timeout=0.2)
        except Empty:
            if until is not None and time.monotonic() >= until:
                return None
