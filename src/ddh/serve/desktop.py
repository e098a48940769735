"""What the page does on this machine: show files to its user, read folders, start `ddh add`."""

import os
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
from starlette.exceptions import HTTPException

from ddh._core.errors import InputError
from ddh.images.formats import picture_extensions

MAX_FOLDERS = 2000  # listed
STOP_SECONDS = 10.0  # for jobs to end with the service
SHOWN = {"open": False, "reveal": True}  # action -> whether the file manager shows it


def show_file(file: Path, action: str) -> None:
    """Open a picture in its usual program, or show it in the file manager."""
    if file.suffix.lower() not in picture_extensions():
        raise InputError(f"{file.name} has no ending of a picture: it is not opened")
    locate = SHOWN[action]
    # The program may run for as long as its window is open.
    launch = partial(click.launch, str(file), locate=locate)
    threading.Thread(target=launch, daemon=True).start()


def list_folders(path: str) -> dict[str, Any]:
    """The folders in a folder, which is the user's own where the path is empty."""
    folder = Path(path).expanduser() if path else Path.home()
    try:
        folder = folder.resolve(strict=True)
        inside = [entry.name for entry in os.scandir(folder) if _is_shown(entry)]
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{path[:200]} is not a folder that can be read") from error
    parent = None if folder.parent == folder else str(folder.parent)
    names = sorted(inside, key=str.casefold)[:MAX_FOLDERS]
    return {"path": str(folder), "parent": parent, "folders": names}


def _is_shown(entry: "os.DirEntry[str]") -> bool:
    with suppress(OSError):
        return not entry.name.startswith(".") and entry.name.isprintable() and entry.is_dir()
    return False


class Adding:
    """Commands that add folders to the index, each in a process of its own."""

    def __init__(self, location: str) -> None:
        self._location = str(Path(location).absolute()) if "://" not in location else location
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, path: str) -> None:
        """Start `ddh add` on a folder; its job reports progress and errors."""
        folder = Path(path).expanduser()
        if not path or not folder.is_dir():
            raise InputError(f"{path[:200]!r} is not a folder on this machine")
        self._running = [process for process in self._running if process.poll() is None]
        if self._running:
            raise HTTPException(409, "a folder is being added already: wait for it, or stop it")
        command = [sys.executable, "-m", "ddh", "add", str(folder.resolve())]
        self._running.append(
            subprocess.Popen(
                [*command, "--index", self._location, "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the service, which stops it by itself
            )
        )

    def close(self) -> None:
        """Stop what runs; what it has added stays."""
        for process in self._running:
            with suppress(OSError):
                process.terminate()  # as Ctrl-C, which it may have been started to ignore
        for process in self._running:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
