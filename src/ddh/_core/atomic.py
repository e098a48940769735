"""Files that are whole or not there: written beside their place, and then moved into it."""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ddh._core.errors import DDHError, InputError

with suppress(ImportError):  # not on Windows
    import fcntl

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFull(DDHError, OSError):
    """There is no room for a file; what was there before is untouched."""


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A hidden name beside `target` to write to, which takes its place unless there is an error."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        if error.errno in FULL and not isinstance(error, DiskFull):
            raise DiskFull(
                f"{target} cannot be written: {os.strerror(error.errno)}. Make room and run the "
                "command again"
            ) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(target: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a file; `durable` has it on the disk, not in the system's memory, before it counts."""
    with atomic_path(target) as temporary, temporary.open("wb") as stream:
        stream.write(content)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder that exists, until the block or this process ends."""
    if "fcntl" not in globals():
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"another run works in {folder}: wait until it has ended, or stop it"
            ) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)
