"""Files that are whole or not there: written beside their place, and then moved into it."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A hidden name beside `target` to write to, which takes its place unless there is an error."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(target: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a file; `durable` has it on the disk, not in the system's memory, before it counts."""
    with atomic_path(target) as temporary, temporary.open("wb") as stream:
        stream.write(content)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
