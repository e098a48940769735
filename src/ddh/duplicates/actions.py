"""Act on duplicates: move them to a folder or the trash, or link them to the kept picture; undo it.

Each step is in a journal, on the disk, before it is taken. Whatever state a kill leaves, `undo`
recognises it from the files themselves, so that undoing can be interrupted and repeated too.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh.duplicates import trash
from ddh.duplicates.journal import (
    Entry,
    Journal,
    make_folders,
    new_journal,
    read_journal,
    sync_folder,
)
from ddh.duplicates.results import Duplicates, Skipped
from ddh.images.decoding import printable
from ddh.index.collection import content_digest

Action = Literal["move", "trash", "hardlink"]


@dataclass(frozen=True)
class Removal:
    """A verified duplicate that may go, as it was when it was verified against the kept picture.

    Parameters
    ----------
    path, digest
        The duplicate, and the digest of its bytes (`ddh.index.collection.content_digest`).
    keep, keep_digest
        The kept picture, and its digest.
    kind
        How the duplicate differs.
    """

    path: Path
    keep: Path
    kind: str
    digest: str
    keep_digest: str


@dataclass
class Outcome:
    """Result of `act` and `undo`.

    Parameters
    ----------
    journal
        What `undo` takes.
    done
        Files that were moved, linked or restored.
    refused
        Files that were left alone, each with the reason.
    """

    journal: Path
    done: list[Path] = field(default_factory=list)
    refused: list[Skipped] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For the command line and the service."""
        return {
            "journal": str(self.journal),
            "done": [printable(path) for path in self.done],
            "refused": [
                {"path": printable(file.path), "reason": file.reason} for file in self.refused
            ],
        }


class _Refused(Exception):
    """Why a file is left alone."""


def removals(found: Duplicates) -> list[Removal]:
    """Every member of every group, for `act`."""
    return [
        Removal(
            member.picture.path, group.keep.path, member.kind, member.picture.digest,
            group.keep.digest,
        )
        for group in found.groups
        for member in group.members
    ]  # fmt: skip


def act(
    files: Iterable[Removal],
    action: Action,
    *,
    folder: str | os.PathLike[str] | None = None,
    journal: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Take duplicates away, one after the other; `undo` brings them back.

    A file is refused, and the next one tried, where it or the kept picture has changed or vanished
    since they were compared, and where a step fails.

    Parameters
    ----------
    files
        Verified duplicates.
    action
        `move` to `folder`, move to the system's `trash`, or replace identical files by a
        `hardlink` to the kept picture.
    folder
        Target of `move`. Files keep their places below the folder that all of them share; a name
        that is taken gets a number.
    journal
        New file for what is done; by default in the user's state folder.

    Returns
    -------
    Outcome
        What was done and what was refused.
    """
    if action not in get_args(Action):
        raise InputError(f"the action is one of {', '.join(get_args(Action))}, not {action!r}")
    if (folder is None) == (action == "move"):
        raise InputError("a folder is what `move` needs, and nothing else takes")
    wanted = [_absolute(file) for file in files]
    kept = {_real(file.keep) for file in wanted}
    base = _shared_folder(wanted)
    check = _Checks(kept)
    with Journal(Path(journal) if journal else new_journal()) as log:
        outcome = Outcome(log.path)
        for file in track(wanted, "Acting", unit="file"):
            try:
                check(file, action)
                step = _step(file, action)
                if folder is not None:
                    step |= _target(_absolute_path(folder), file.path, base)
                log.write(**step)
                FORWARD[action](step)
            except (_Refused, OSError) as error:
                outcome.refused.append(Skipped(file.path, _reason(error)))
            else:
                outcome.done.append(file.path)
    return outcome


def undo(journal: str | os.PathLike[str]) -> Outcome:
    """Restore what a journal says was done, the last file first.

    Files that are in place already count as done, so that a repeated or interrupted `undo` ends the
    same. Nothing that has appeared at an old path since is overwritten: it is named, and stays.

    Parameters
    ----------
    journal
        File that `act` has written.

    Returns
    -------
    Outcome
        What was restored and what could not be.
    """
    path = Path(journal)
    steps = [entry for entry in read_journal(path) if "action" in entry]
    outcome, back = Outcome(path), _Back()
    with Journal(path, resume=True) as log:
        for step in track(list(reversed(steps)), "Restoring", unit="file"):
            file = Path(step["path"])
            try:
                log.write(undo=step["path"])
                getattr(back, step["action"])(step, file)
            except (_Refused, OSError) as error:
                outcome.refused.append(Skipped(file, _reason(error)))
            else:
                outcome.done.append(file)
    return outcome


# -- before a step ---------------------------------------------------------------------------------


class _Checks:
    """Refuses a file unless it and its kept picture are what they were when they were compared."""

    def __init__(self, kept: set[str]) -> None:
        self._kept = kept
        self._digests: dict[Path, tuple[tuple[int, ...], str]] = {}  # of kept pictures

    def __call__(self, file: Removal, action: Action) -> None:
        name, keep = file.path, file.keep
        if action == "hardlink" and file.kind != "identical":
            raise _Refused(
                f"it is {file.kind}, not identical: a link to {keep} would lose its own bytes"
            )
        if not keep.is_file():
            raise _Refused(f"the kept picture {keep} is not there any more")
        if not os.path.lexists(name):
            raise _Refused("it is not there any more")
        if name.is_symlink() or not name.is_file():
            raise _Refused("it is not a file of its own, but a link or a folder")
        if _real(name) in self._kept:
            raise _Refused("it is the picture to keep of a group")
        if name.samefile(keep) and (action == "hardlink" or name.stat().st_nlink == 1):
            raise _Refused(f"it is the same file as {keep}")
        if self._digest(keep) != file.keep_digest:
            raise _Refused(f"the kept picture {keep} has changed since they were compared")
        if content_digest(name) != file.digest:
            raise _Refused("it has changed since it was compared")

    def _digest(self, keep: Path) -> str:
        """Of a kept picture; read again only where size, time or file are others."""
        state = keep.stat()
        stamp = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if self._digests.get(keep, ((), ""))[0] != stamp:
            self._digests[keep] = stamp, content_digest(keep)
        return self._digests[keep][1]


def _step(file: Removal, action: Action) -> Entry:
    """What the journal holds of a step: enough to undo it from any state."""
    state = file.path.stat()
    return {
        "action": action,
        "path": str(file.path),
        "keep": str(file.keep),
        "digest": file.digest,
        "mode": state.st_mode & 0o7777,
        "mtime_ns": state.st_mtime_ns,
        "id": secrets.token_hex(8),  # names the step's temporary files
    }


def _target(folder: Path, file: Path, base: Path) -> Entry:
    """A name for a file below the folder that nothing has, and the folders that it needs."""
    target = folder / file.relative_to(base)
    number = 2
    while os.path.lexists(target):
        target = target.with_name(f"{file.stem} ({number}){file.suffix}")
        number += 1
    made = [parent for parent in target.parents if not parent.exists()]
    return {"to": str(target), "made": [str(parent) for parent in made]}


def _shared_folder(files: list[Removal]) -> Path:
    parents = [file.path.parent for file in files]
    try:
        return Path(os.path.commonpath(parents)) if parents else Path()
    except ValueError as error:  # drives of Windows
        raise InputError("files of several drives are moved one drive at a time") from error


# -- the steps -------------------------------------------------------------------------------------


def _move(step: Entry) -> None:
    _rename(Path(step["path"]), Path(step["to"]), step)


def _trash(step: Entry) -> None:
    path = Path(step["path"])
    try:
        trash.send(path)
    except OSError as error:
        advice = "the trash did not take it"
        raise _Refused(f"{advice} ({_reason(error)}): --move-to FOLDER moves it instead") from error
    if os.path.lexists(path):
        raise _Refused("the trash did not take it: --move-to FOLDER moves it instead")


def _hardlink(step: Entry) -> None:
    path, part = Path(step["path"]), _part(Path(step["path"]), step)
    try:
        part.hardlink_to(step["keep"])
    except OSError as error:
        raise _Refused(f"{step['keep']} cannot be linked here: {_reason(error)}") from error
    part.replace(path)
    sync_folder(path.parent)


FORWARD: dict[Action, Callable[[Entry], None]] = {
    "move": _move,
    "trash": _trash,
    "hardlink": _hardlink,
}


class _Back:
    """Undoes steps, each from whatever state it is in."""

    def __init__(self) -> None:
        self._trash = trash.Trash()

    def move(self, step: Entry, path: Path) -> None:
        target = Path(step["to"])
        _clear(path, step)
        _part(target, step).unlink(missing_ok=True)
        if _in_place(path, step):
            is_copy = target.is_file() and _real(target) != _real(path)
            if is_copy and (not target.stat().st_size or _has_digest(target, step)):
                target.unlink()  # what a step that was cut off had made
        elif not os.path.lexists(target):
            raise _Refused(f"it is not at {target} any more")
        elif not _has_digest(target, step):
            raise _Refused(f"{target} has changed since it was moved: move it back by hand")
        else:
            _rename(target, path, step)
        for made in step["made"]:
            with suppress(OSError):  # it holds something, or another step's undoing took it
                Path(made).rmdir()

    def trash(self, step: Entry, path: Path) -> None:
        _clear(path, step)
        if _in_place(path, step):
            if trash.IS_READABLE:
                for file, info in self._trash.find(path):
                    if file.samefile(path):  # a restoring that was cut off
                        file.unlink()
                        info.unlink(missing_ok=True)
            return
        if not trash.IS_READABLE:
            raise _Refused("ddh cannot read the trash of this system: restore it from there")
        found = [each for each in self._trash.find(path) if _has_digest(each.file, step)]
        if not found:
            raise _Refused("it is not in the trash any more")
        _rename(found[0].file, path, step)
        found[0].info.unlink(missing_ok=True)

    def hardlink(self, step: Entry, path: Path) -> None:
        keep, part = Path(step["keep"]), _part(path, step)
        _clear(path, step)
        is_there = os.path.lexists(path)
        is_linked = is_there and keep.is_file() and path.samefile(keep)
        if is_there and not is_linked and _in_place(path, step):
            return
        source = path if is_there else keep
        if not source.is_file() or not _has_digest(source, step):
            raise _Refused(f"{source} has changed or vanished since it was linked")
        _copy(source, part, step["digest"])
        part.chmod(step["mode"])
        os.utime(part, ns=(step["mtime_ns"], step["mtime_ns"]))
        if is_there:
            part.replace(path)
        else:
            _claim(part, path)
        sync_folder(path.parent)


# -- files -----------------------------------------------------------------------------------------


def _rename(source: Path, target: Path, step: Entry) -> None:
    """Give a file another place, on the disk, where nothing is: there is no moment without it."""
    make_folders(target.parent)
    try:
        target.hardlink_to(source)  # unlike a rename it never overwrites
    except FileExistsError:
        raise _Refused(f"{target} is there already") from None
    except OSError:  # another disk, or a file system without links
        part = _part(target, step)
        _copy(source, part, step["digest"])
        _claim(part, target)
    sync_folder(target.parent)
    try:
        source.unlink()
    except OSError:  # it may not be taken away: the other name goes again
        target.unlink()
        raise
    sync_folder(source.parent)


def _copy(source: Path, part: Path, digest: str) -> None:
    """A copy that is on the disk and has been read again."""
    part.unlink(missing_ok=True)  # of an earlier attempt: the name is this step's own
    with source.open("rb") as read, part.open("xb") as written:
        shutil.copyfileobj(read, written, 1 << 20)
        written.flush()
        os.fsync(written.fileno())
    shutil.copystat(source, part)
    if content_digest(part) != digest:
        part.unlink()
        raise _Refused("it has changed while it was copied")


def _claim(part: Path, target: Path) -> None:
    """Give a finished copy its name, unless something has it."""
    try:
        target.hardlink_to(part)
        part.unlink()
    except FileExistsError:
        part.unlink()
        raise _Refused(f"{target} is there already") from None
    except OSError:  # no links here: an empty file reserves the name
        try:
            target.open("xb").close()
        except FileExistsError:
            part.unlink()
            raise _Refused(f"{target} is there already") from None
        part.replace(target)


def _part(target: Path, step: Entry) -> Path:
    return target.with_name(f".ddh-{step['id']}.part")


def _clear(path: Path, step: Entry) -> None:
    """Remove what a step that was cut off has left at a path: its copy, its reserved name."""
    part = _part(path, step)
    if part.exists():
        if path.is_file() and not path.stat().st_size:
            path.unlink()
        part.unlink()


def _in_place(path: Path, step: Entry) -> bool:
    """Whether a file is where it was; something else in its place is refused."""
    if not os.path.lexists(path):
        return False
    if path.is_file() and not path.is_symlink() and _has_digest(path, step):
        return True
    raise _Refused("something else is there now: move it away, then undo again")


def _has_digest(path: Path, step: Entry) -> bool:
    return content_digest(path) == str(step["digest"])


def _absolute(file: Removal) -> Removal:
    return Removal(
        _absolute_path(file.path), _absolute_path(file.keep), file.kind, file.digest,
        file.keep_digest,
    )  # fmt: skip


def _absolute_path(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 links stay as they are, unlike with resolve


def _real(path: Path) -> str:
    return os.path.realpath(path)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
