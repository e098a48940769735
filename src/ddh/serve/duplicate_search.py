"""A search for duplicates in a process of its own, so that the service answers as fast as before.

The process reads a JSON list of files, and writes lines of JSON: its progress, then what it found.
"""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from ddh._core.cache import cache_folder
from ddh._core.jobs import Job, job
from ddh._core.progress import set_quiet

TOLD_EVERY = 0.3  # seconds
STOP_SECONDS = 5.0

Found = dict[str, Any]  # as `ddh dedup --json` prints it


class SearchProcess:
    """One running search; `finished` is called in a thread, with None where it has failed."""

    def __init__(
        self, name: str, files: Sequence[str], finished: Callable[[Found | None], None]
    ) -> None:
        self.message = "Starting"
        self.done: float | None = None  # while it is not known
        self._finished = finished
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the service, which stops it by itself
        )
        self._reader = threading.Thread(target=self._read, args=(list(files),), daemon=True)
        self._reader.start()

    def _read(self, files: list[str]) -> None:
        found: Found | None = None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # it was stopped
            with self._process.stdin as stdin:
                stdin.write(json.dumps(files).encode())
            for line in self._process.stdout:
                told = json.loads(line)
                found = told.get("found", found)
                self.message = told.get("message", self.message)
                self.done = told.get("done", self.done)
        self._process.wait()
        self._finished(found)

    def stop(self) -> None:
        """End it; it has changed nothing."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join()


def main(name: str, stdin: IO[str], stdout: IO[str]) -> None:
    """What the process does."""
    from ddh.duplicates import find_duplicates

    set_quiet(True)
    files = json.load(stdin)
    with job("dedup", name) as current, _telling(current, stdout):
        found = find_duplicates(files, cache=cache_folder() / "fingerprints.sqlite")
    print(json.dumps({"found": found.as_json() | {"compared": found.compared}}), file=stdout)


@contextlib.contextmanager
def _telling(current: Job, stdout: IO[str]) -> Iterator[None]:
    """Write the progress of a job every now and then."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(TOLD_EVERY):
            stage = current.stage
            if stage is not None:
                done = stage.done / stage.total if stage.total else None
                print(json.dumps({"message": stage.label, "done": done}), file=stdout, flush=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # the service stops it
        main(sys.argv[1], sys.stdin, sys.stdout)
