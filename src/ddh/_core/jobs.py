"""Records of long jobs, for the web page and other terminals.

A job is one small JSON file in the user's state folder (DDH_STATE, else XDG_STATE_HOME/ddh),
written atomically and at most once per second. Progress bars report to the running job, so that a
command only says `@recorded("fit", "out")`. A folder that cannot be written never harms a job.
"""

import json
import math
import os
import platform
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

from ddh._core.atomic import write_atomic

WRITTEN_EVERY = 1.0  # seconds
MAX_POINTS = 500  # per curve
MAX_RECORDS = 50  # kept; older ones are deleted when a job starts
MAX_RECORD_BYTES = 1 << 20  # anything larger in the folder is not ours
REMOTE_TIMEOUT = 600.0  # seconds without news after which a job of another host counts as lost

Record = dict[str, Any]
Command = Callable[..., Any]


@dataclass
class Curve:
    """Points of a curve, at most 500: when there are more, every second one is dropped."""

    kept: list[tuple[float, float]] = field(default_factory=list)
    last: tuple[float, float] | None = None
    every: int = 1
    count: int = 0

    def add(self, x: float, y: float) -> None:
        self.last = (x, y)
        if self.count % self.every == 0:
            self.kept.append(self.last)
        self.count += 1
        if len(self.kept) >= MAX_POINTS:
            self.kept, self.every = self.kept[::2], 2 * self.every

    def record(self, name: str) -> Record:
        """The curve for JSON, always with its newest point."""
        points = list(dict.fromkeys([*self.kept, *([self.last] if self.last else [])]))
        return {"name": name, "x": [x for x, _ in points], "y": [y for _, y in points]}


@dataclass
class Stage:
    """One stretch of a job with its own count, such as one progress bar."""

    job: "Job"
    label: str
    total: int | None
    unit: str
    done: int = 0
    _first: tuple[float, int] | None = None  # time and count of the first update

    def advance(self, count: int = 1) -> None:
        """Add `count` to what is done."""
        self.done += count
        if self._first is None:  # what an earlier run had done says nothing about the speed
            self._first = time.monotonic(), self.done
        self.job.stage = self
        self.job.write()

    def point(self, name: str, value: float) -> None:
        """Add a finite value to the curve `name`, over what is done."""
        if math.isfinite(value):
            self.job.curves.setdefault(name, Curve()).add(self.done, value)

    def seconds_left(self) -> float | None:
        """Estimate from the speed so far; None where there is none yet."""
        if self._first is None or self.total is None or self.done <= self._first[1]:
            return None
        started, before = self._first
        return (self.total - self.done) * (time.monotonic() - started) / (self.done - before)


class Job:
    """A job of this process and its file."""

    def __init__(self, kind: str, title: str) -> None:
        self.kind, self.title, self.state, self.message = kind, title, "running", ""
        self.stage: Stage | None = None
        self.curves: dict[str, Curve] = {}
        self._started, self._pid, self._written = _now(), os.getpid(), -WRITTEN_EVERY
        self.id = f"{time.time_ns():019d}-{secrets.token_hex(4)}"  # names sort by age

    def write(self, *, now: bool = False) -> None:
        """Write the record, unless that was just done; a child process writes nothing."""
        moment = time.monotonic()
        if (not now and moment - self._written < WRITTEN_EVERY) or os.getpid() != self._pid:
            return
        self._written = moment
        with suppress(OSError, ValueError):
            folder = jobs_folder()
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / f"{self.id}.json", json.dumps(self._record()).encode())

    def _record(self) -> Record:
        stage = self.stage or Stage(self, "", None, "")
        return {
            "id": self.id,
            "kind": self.kind,
            "title": self.title,
            "state": self.state,
            "started": self._started,
            "updated": _now(),
            "done": stage.done,
            "total": stage.total,
            "unit": stage.unit,
            "seconds_left": stage.seconds_left() if self.state == "running" else None,
            "message": self.message or stage.label,
            "curves": [curve.record(name) for name, curve in self.curves.items()],
            "process": {
                "host": platform.node(),
                "pid": self._pid,
                "born": _birth(self._pid),
                "ignores_sigint": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
            },
        }


_current: Job | None = None


@contextmanager
def job(kind: str, title: str) -> Iterator[Job]:
    """Record what runs inside as a job: "fit", "index", "encode" or "pretrain"."""
    global _current
    outer, _current = _current, Job(kind, title)
    mine = _current
    for path in _files()[:-MAX_RECORDS]:
        with suppress(OSError):
            path.unlink()
    try:
        with _terminated_like_interrupted():
            mine.write(now=True)
            yield mine
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort"
        mine.state, mine.message = ("stopped", "") if stopped else ("failed", str(error)[:500])
        raise
    else:
        mine.state = "done"
    finally:
        mine.write(now=True)
        _current = outer


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Have SIGTERM raise KeyboardInterrupt, where nothing else handles it."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except SystemExit as end:
        if end.code == signal.SIGTERM:  # Ray has put its own handler in the place of ours
            raise KeyboardInterrupt from end
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def recorded(kind: str, title: str) -> Callable[[Command], Command]:
    """Make each run of a command a job, named by the end of its argument `title`: no password."""

    def wrap(command: Command) -> Command:
        @wraps(command)
        def run(*args: Any, **options: Any) -> Any:
            if os.environ.get("RANK", "0") != "0":  # of several processes the first one reports
                return command(*args, **options)
            name = str(options[title]).rstrip("/").rpartition("/")[2].rpartition("@")[2]
            with job(kind, name):
                return command(*args, **options)

        return run

    return wrap


def stage(label: str, total: int | None, unit: str) -> Stage | None:
    """A new stage of the running job; None where there is none."""
    return None if _current is None else Stage(_current, label, total, unit)


# -- reading ---------------------------------------------------------------------------------------


def jobs_folder() -> Path:
    """The folder of the records."""
    if given := os.environ.get("DDH_STATE"):
        return Path(given) / "jobs"
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "ddh" / "jobs"


def read_jobs() -> list[Record]:
    """All known jobs, the newest first; unreadable records are skipped."""
    records = [record for path in _files() if (record := _read(path)) is not None]
    return sorted(records, key=lambda record: record["id"], reverse=True)[:MAX_RECORDS]


def stop_job(job_id: str) -> bool:
    """Interrupt a running job of this machine; False where none is running.

    As Ctrl-C does, but also in the background of a script, where that is ignored.
    """
    path = _file(job_id)
    record = None if path is None else _read(path)
    if path is None or record is None or record["state"] != "running":
        return False
    try:
        process = json.loads(path.read_text(encoding="utf-8"))["process"]
        if process["host"] != platform.node() or process["pid"] == os.getpid():
            return False
        ignored = process.get("ignores_sigint", False)
        os.kill(process["pid"], signal.SIGTERM if ignored else signal.SIGINT)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def dismiss_job(job_id: str) -> bool:
    """Delete the record of a job that is not running; False where there is none."""
    path = _file(job_id)
    record = None if path is None else _read(path)
    if path is None or record is None or record["state"] == "running":
        return False
    with suppress(OSError):
        path.unlink()
        return True
    return False


def _file(job_id: str) -> Path | None:
    """The record of a job; ids are compared, never used as names of files."""
    return next((path for path in _files() if path.stem == job_id), None)


def _files() -> list[Path]:
    try:
        return sorted(jobs_folder().glob("*.json"))
    except (OSError, RuntimeError):
        return []


def _read(path: Path) -> Record | None:
    try:
        if path.stat().st_size > MAX_RECORD_BYTES:
            return None
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        process = record.pop("process")
        if record["state"] == "running" and not _is_alive(process, record["updated"]):
            record["state"], record["seconds_left"] = "lost", None
        return record if isinstance(record["id"], str) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_alive(process: Record, updated: str) -> bool:
    """Whether the process of a job still runs: the same one, not another with its number."""
    if process["host"] != platform.node():
        age = datetime.now(UTC) - datetime.fromisoformat(updated)
        return age.total_seconds() < REMOTE_TIMEOUT
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it runs as another user
    return bool(process["born"] == _birth(process["pid"]))


def _birth(pid: int) -> int | None:
    """Start time of a process in the kernel's own count; None where it is unknown."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(status.rpartition(")")[2].split()[19])  # field 22; the name may hold anything


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
