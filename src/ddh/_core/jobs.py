"""Records of long jobs, so that a page or another terminal can tell how far they are.

A job is one small JSON file in the user's state folder (DDH_STATE, else XDG_STATE_HOME/ddh),
written whole and at most once a second. Progress bars report to the job that runs, so a command
says no more than `@recorded("fit", "out")`. A folder that cannot be written never harms a job.
"""

import json
import math
import os
import platform
import secrets
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
MOST_POINTS = 500  # of a curve
MOST_RECORDS = 50  # kept; older ones are dropped when a job starts
LARGEST_RECORD = 1 << 20  # bytes; anything larger in the folder is not ours
FOREIGN_SECONDS = 600.0  # without news, after which a job of another machine counts as lost

Record = dict[str, Any]
Command = Callable[..., Any]


@dataclass
class Stage:
    """One stretch of a job with a count of its own, such as one progress bar."""

    job: "Job"
    label: str
    total: int | None
    unit: str
    done: int = 0
    _first: tuple[float, int] | None = None  # time and count of the first news

    def advance(self, count: int = 1) -> None:
        """`count` more are done."""
        self.done += count
        if self._first is None:  # what an earlier run had done says nothing of the speed
            self._first = time.monotonic(), self.done
        self.job.stage = self
        self.job.write()

    def point(self, name: str, value: float) -> None:
        """A point of the curve `name`, over what is done; what is no number has no place there."""
        if math.isfinite(value):
            self.job.curves.setdefault(name, Curve()).add(self.done, value)

    def seconds_left(self) -> float | None:
        """At the speed so far; None where nobody can know."""
        if self._first is None or self.total is None:
            return None
        started, before = self._first
        if self.done <= before:
            return None
        return (self.total - self.done) * (time.monotonic() - started) / (self.done - before)


@dataclass
class Curve:
    """Points of a curve, at most 500: when there are more, every second one goes."""

    kept: list[tuple[float, float]] = field(default_factory=list)
    last: tuple[float, float] | None = None
    _every: int = 1
    _seen: int = 0

    def add(self, x: float, y: float) -> None:
        """One more point; those between the kept ones are forgotten."""
        self.last = (x, y)
        if self._seen % self._every == 0:
            self.kept.append(self.last)
        self._seen += 1
        if len(self.kept) >= MOST_POINTS:
            self.kept, self._every = self.kept[::2], 2 * self._every

    def record(self, name: str) -> Record:
        """The curve as JSON tells it; the newest point is always there."""
        points = list(self.kept)
        if self.last is not None and points[-1] != self.last:
            points.append(self.last)
        return {"name": name, "x": [x for x, _ in points], "y": [y for _, y in points]}


class Job:
    """A job of this process, and the file that tells of it."""

    def __init__(self, kind: str, title: str) -> None:
        self.kind, self.title, self.state, self.message = kind, title, "running", ""
        self.stage: Stage | None = None
        self.curves: dict[str, Curve] = {}
        self._started = _now()
        self._pid = os.getpid()
        self.id = f"{time.time_ns():019d}-{secrets.token_hex(4)}"  # names sort by age
        self._written = -WRITTEN_EVERY

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
        stage = self.stage
        return {
            "id": self.id,
            "kind": self.kind,
            "title": self.title,
            "state": self.state,
            "started": self._started,
            "updated": _now(),
            "done": stage.done if stage else 0,
            "total": stage.total if stage else None,
            "unit": stage.unit if stage else "",
            "seconds_left": stage.seconds_left() if stage and self.state == "running" else None,
            "message": self.message or (stage.label if stage else ""),
            "curves": [curve.record(name) for name, curve in self.curves.items()],
            "process": {
                "host": platform.node(), "pid": self._pid, "born": _birth(self._pid)
            },
        }  # fmt: skip


_current: Job | None = None


@contextmanager
def job(kind: str, title: str) -> Iterator[Job]:
    """Record what runs inside as a job: "fit", "index", "encode" or "pretrain"."""
    global _current
    outer, _current = _current, Job(kind, title)
    mine = _current
    _drop_old()
    mine.write(now=True)
    try:
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


def recorded(kind: str, title: str) -> Callable[[Command], Command]:
    """A command whose runs are jobs, named after the last part of its argument `title`.

    Of several processes that fit together (torchrun), the first one tells.
    """

    def wrap(command: Command) -> Command:
        @wraps(command)
        def run(*args: Any, **options: Any) -> Any:
            if os.environ.get("RANK", "0") != "0":
                return command(*args, **options)
            with job(kind, _last_part(str(options[title]))):
                return command(*args, **options)

        return run

    return wrap


def _last_part(name: str) -> str:
    """Nothing of where it lies, and no password of a database."""
    return name.rstrip("/").rpartition("/")[2].rpartition("@")[2]


def stage(label: str, total: int | None, unit: str) -> Stage | None:
    """A new stage of the job that runs; None where none does."""
    return None if _current is None else Stage(_current, label, total, unit)


# -- reading ---------------------------------------------------------------------------------------


def jobs_folder() -> Path:
    """Where the records lie."""
    given = os.environ.get("DDH_STATE")
    if given:
        return Path(given) / "jobs"
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "ddh" / "jobs"


def read_jobs() -> list[Record]:
    """All jobs that are known, the newest first; what cannot be read is passed over."""
    records = [record for path in _files() if (record := _read(path)) is not None]
    records.sort(key=lambda record: record["id"], reverse=True)
    return records[:MOST_RECORDS]


def _read(path: Path) -> Record | None:
    try:
        if path.stat().st_size > LARGEST_RECORD:
            return None
        record = json.loads(path.read_text(encoding="utf-8"))
        process = record.pop("process")
        if record["state"] == "running" and not _lives(process, record["updated"]):
            record["state"], record["seconds_left"] = "lost", None
        return record if isinstance(record["id"], str) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _lives(process: Record, updated: str) -> bool:
    """Whether the process of a job still runs: the same one, not another with its number."""
    if process["host"] != platform.node():
        age = datetime.now(UTC) - datetime.fromisoformat(updated)
        return age.total_seconds() < FOREIGN_SECONDS
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is there, and another user's
    return process["born"] == _birth(process["pid"])


def _birth(pid: int) -> int | None:
    """When a process started, in the kernel's own count; None where that cannot be known."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(status.rpartition(")")[2].split()[19])  # field 22; the name may hold anything


def _files() -> list[Path]:
    try:
        return sorted(jobs_folder().glob("*.json"))
    except (OSError, RuntimeError):
        return []


def _drop_old() -> None:
    for path in _files()[:-MOST_RECORDS]:
        with suppress(OSError):
            path.unlink()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
