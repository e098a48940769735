"""Actions on duplicates: what is refused, what is done, and that every state can be undone."""

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ddh._core.errors import DDHError, InputError
from ddh.duplicates import trash
from ddh.duplicates.actions import Removal, act, undo
from ddh.duplicates.journal import read_journal
from ddh.index.collection import content_digest

ACTIONS = ("move", "trash", "hardlink")
MTIME = 1_600_000_000_000_000_000

linux_only = pytest.mark.skipif(
    sys.platform in ("win32", "darwin"), reason="the trash can be read on Linux only"
)


@pytest.fixture(autouse=True)
def own_trash(tmp_path, monkeypatch):
    """A trash of the test's own: send2trash reads where it is when it is imported."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setenv("DDH_STATE", str(tmp_path / "state"))
    if trash.IS_READABLE:
        import send2trash.plat_other as platform

        monkeypatch.setattr(platform, "XDG_DATA_HOME", os.fsencode(home))
        monkeypatch.setattr(platform, "HOMETRASH_B", os.fsencode(home / "Trash"))
        monkeypatch.setattr(platform, "get_dev", lambda path: 0)
        monkeypatch.setattr("send2trash.send2trash", platform.send2trash)


@pytest.fixture
def photos(tmp_path) -> Path:
    folder = tmp_path / "photos"
    write(folder / "kept.jpg", b"the kept picture")
    for name in ("copy.jpg", "more/copy.jpg", "more/it's a \u00fc.jpg"):
        write(folder / name, b"the kept picture")
    write(folder / "small.jpg", b"a smaller one")
    return folder


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(MTIME, MTIME))
    return path


def removal(folder: Path, name: str, kind: str = "identical") -> Removal:
    path, keep = folder / name, folder / "kept.jpg"
    return Removal(path, keep, kind, content_digest(path), content_digest(keep))


def copies(folder: Path, action: str = "move") -> list[Removal]:
    names = ["copy.jpg", "more/copy.jpg", "more/it's a \u00fc.jpg"]
    found = [removal(folder, name) for name in names]
    return found if action == "hardlink" else [*found, removal(folder, "small.jpg", "resized")]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def options(tmp_path: Path, action: str) -> dict[str, Path]:
    target = {"folder": tmp_path / "away" / "dups"} if action == "move" else {}
    return target | {"journal": tmp_path / "journals" / "acts.jsonl"}


# -- what is done ----------------------------------------------------------------------------------


def test_moved_files_keep_their_places_and_come_back(tmp_path, photos):
    before = tree(photos)
    outcome = act(copies(photos), "move", **options(tmp_path, "move"))
    assert len(outcome.done) == 4
    assert not outcome.refused
    assert list(tree(photos)) == ["kept.jpg"]
    away = tree(tmp_path / "away" / "dups")
    assert away == {name: content for name, content in before.items() if name != "kept.jpg"}
    back = undo(outcome.journal)
    assert len(back.done) == 4
    assert not back.refused
    assert tree(photos) == before
    assert (photos / "copy.jpg").stat().st_mtime_ns == MTIME
    assert not (tmp_path / "away").exists()  # it was made for them


def test_a_taken_name_gets_a_number(tmp_path, photos):
    write(tmp_path / "dups" / "copy.jpg", b"of another day")
    act([removal(photos, "copy.jpg")], "move", folder=tmp_path / "dups")
    away = tree(tmp_path / "dups")
    assert away == {"copy.jpg": b"of another day", "copy (2).jpg": b"the kept picture"}


def test_the_folder_that_was_there_stays_when_it_is_emptied(tmp_path, photos):
    (tmp_path / "dups").mkdir()
    undo(act(copies(photos), "move", folder=tmp_path / "dups").journal)
    assert (tmp_path / "dups").is_dir()
    assert tree(tmp_path / "dups") == {}


@linux_only
def test_the_trash_and_back(tmp_path, photos):
    before = tree(photos)
    write(tmp_path / "home" / "Trash" / "files" / "copy.jpg", b"thrown away before")
    outcome = act(copies(photos), "trash")
    assert len(outcome.done) == 4
    assert list(tree(photos)) == ["kept.jpg"]
    assert outcome.journal.is_relative_to(tmp_path / "state")
    assert not undo(outcome.journal).refused
    assert tree(photos) == before
    assert tree(tmp_path / "home" / "Trash") == {"files/copy.jpg": b"thrown away before"}


def test_a_system_without_trash_loses_nothing(photos, monkeypatch):
    def none(path):
        raise OSError(errno.ENOENT, "no trash here")

    monkeypatch.setattr(trash, "send", none)
    before = tree(photos)
    outcome = act(copies(photos), "trash")
    assert not outcome.done
    assert len(outcome.refused) == 4
    assert "no trash here" in outcome.refused[0].reason
    assert "--move-to" in outcome.refused[0].reason
    assert tree(photos) == before


def test_a_trash_that_cannot_be_read_is_said(photos, monkeypatch):
    monkeypatch.setattr(trash, "send", lambda path: path.unlink())
    monkeypatch.setattr(trash, "IS_READABLE", False)
    outcome = undo(act([removal(photos, "copy.jpg")], "trash").journal)
    assert "restore it from there" in outcome.refused[0].reason


def test_an_emptied_trash_is_said(photos, monkeypatch):
    monkeypatch.setattr(trash, "send", lambda path: path.unlink())
    monkeypatch.setattr(trash, "IS_READABLE", os.name != "nt")
    outcome = undo(act([removal(photos, "copy.jpg")], "trash").journal)
    assert "trash" in outcome.refused[0].reason


def test_hard_links_and_back(tmp_path, photos):
    (photos / "copy.jpg").chmod(0o600)
    before = tree(photos)
    outcome = act(copies(photos, "hardlink"), "hardlink")
    assert len(outcome.done) == 3
    assert tree(photos) == before
    assert all(file.samefile(photos / "kept.jpg") for file in outcome.done)
    assert not undo(outcome.journal).refused
    assert tree(photos) == before
    assert not any(file.samefile(photos / "kept.jpg") for file in outcome.done)
    state = (photos / "copy.jpg").stat()
    assert (state.st_mode & 0o777, state.st_mtime_ns) == (0o600, MTIME)


def test_a_linked_file_is_restored_without_the_kept_one(photos):
    outcome = act([removal(photos, "copy.jpg")], "hardlink")
    (photos / "copy.jpg").unlink()
    assert not undo(outcome.journal).refused
    assert (photos / "copy.jpg").read_bytes() == b"the kept picture"


def test_only_identical_files_are_linked(photos):
    outcome = act([removal(photos, "small.jpg", "resized")], "hardlink")
    assert "resized, not identical" in outcome.refused[0].reason
    assert (photos / "small.jpg").read_bytes() == b"a smaller one"
    assert undo(outcome.journal).done == []


# -- what is refused -------------------------------------------------------------------------------


def refused(files: list[Removal], tmp_path: Path) -> str:
    outcome = act(files, "move", folder=tmp_path / "dups")
    assert not outcome.done
    return outcome.refused[0].reason


@pytest.mark.parametrize("action", ACTIONS)
def test_files_that_changed_or_vanished_are_refused_and_the_others_go(tmp_path, photos, action):
    files = copies(photos, "hardlink")
    write(photos / "copy.jpg", b"the kept pictur!")  # same size, same time
    (photos / "more" / "copy.jpg").unlink()
    outcome = act(files, action, **options(tmp_path, action))
    assert [file.path.name for file in outcome.refused] == ["copy.jpg", "copy.jpg"]
    assert "has changed" in outcome.refused[0].reason
    assert "not there any more" in outcome.refused[1].reason
    assert len(outcome.done) == 1
    assert (photos / "copy.jpg").read_bytes() == b"the kept pictur!"


def test_nothing_goes_without_the_kept_picture(tmp_path, photos):
    files = copies(photos)
    write(photos / "kept.jpg", b"the kept pictur!")
    assert "has changed" in refused(files, tmp_path)
    (photos / "kept.jpg").unlink()
    assert "not there any more" in refused(files, tmp_path)
    (photos / "kept.jpg").mkdir()
    assert "not there any more" in refused(files, tmp_path)


def test_the_kept_picture_may_vanish_between_two_files(tmp_path, photos, monkeypatch):
    def send(path):
        path.unlink()
        (photos / "kept.jpg").unlink(missing_ok=True)

    monkeypatch.setattr(trash, "send", send)
    outcome = act(copies(photos), "trash")
    assert len(outcome.done) == 1
    assert len(outcome.refused) == 3


def test_a_kept_picture_is_never_removed_by_another_group(tmp_path, photos):
    swapped = removal(photos, "copy.jpg")
    other = Removal(swapped.keep, swapped.path, "identical", swapped.keep_digest, swapped.digest)
    outcome = act([swapped, other], "move", folder=tmp_path / "dups")
    assert not outcome.done
    assert "picture to keep" in outcome.refused[0].reason


def test_links_to_the_kept_picture_are_no_copies(tmp_path, photos):
    link = photos / "link.jpg"
    try:
        link.symlink_to("kept.jpg")
    except OSError:
        pytest.skip("symbolic links are not allowed here")
    assert "link" in refused([removal(photos, "link.jpg")], tmp_path)
    through = Removal(photos / "kept.jpg", link, "identical", *2 * [content_digest(link)])
    assert refused([through], tmp_path)
    assert (photos / "kept.jpg").is_file()


def test_a_journal_that_is_there_is_not_overwritten(tmp_path, photos):
    journal = write(tmp_path / "mine.txt", b"mine")
    with pytest.raises(InputError, match="is there already"):
        act(copies(photos), "trash", journal=journal)
    assert journal.read_bytes() == b"mine"


def test_nothing_is_done_without_a_journal(tmp_path, photos):
    before = tree(photos)
    (tmp_path / "file").touch()
    with pytest.raises(DDHError, match="cannot be written"):
        act(copies(photos), "move", folder=tmp_path / "d", journal=tmp_path / "file" / "j.jsonl")
    assert tree(photos) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do it all")
def test_a_folder_that_cannot_be_changed_keeps_its_files(tmp_path, photos):
    files = [removal(photos, "more/copy.jpg")]
    (photos / "more").chmod(0o500)
    try:
        assert refused(files, tmp_path)
        assert tree(tmp_path / "dups") == {}
    finally:
        (photos / "more").chmod(0o700)


@pytest.mark.parametrize("content", [b"", b"hello", b'{"a": 1}', b"[1]\n"])
def test_what_is_not_a_journal_is_refused(tmp_path, content):
    with pytest.raises(InputError, match="not a journal"):
        undo(write(tmp_path / "file", content))
    with pytest.raises(InputError, match="cannot be read"):
        undo(tmp_path / "none")


# -- undoing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [pytest.param("trash", marks=linux_only), "move"])
def test_undo_never_overwrites(tmp_path, photos, action):
    outcome = act(copies(photos), action, **options(tmp_path, action))
    write(photos / "copy.jpg", b"new")
    back = undo(outcome.journal)
    assert [file.path for file in back.refused] == [photos / "copy.jpg"]
    assert "something else is there" in back.refused[0].reason
    assert len(back.done) == 3
    assert (photos / "copy.jpg").read_bytes() == b"new"
    (photos / "copy.jpg").unlink()
    assert not undo(outcome.journal).refused
    assert (photos / "copy.jpg").read_bytes() == b"the kept picture"


def test_what_appears_at_the_last_moment_is_not_overwritten(tmp_path, photos, monkeypatch):
    outcome = act([removal(photos, "copy.jpg")], "move", folder=tmp_path / "dups")
    monkeypatch.setattr(
        "ddh.duplicates.actions.make_folders", lambda folder: write(photos / "copy.jpg", b"new")
    )
    assert "is there already" in undo(outcome.journal).refused[0].reason
    assert (photos / "copy.jpg").read_bytes() == b"new"
    assert (tmp_path / "dups" / "copy.jpg").read_bytes() == b"the kept picture"


def test_undo_refuses_what_was_edited_in_the_folder(tmp_path, photos):
    outcome = act([removal(photos, "copy.jpg")], "move", folder=tmp_path / "dups")
    write(tmp_path / "dups" / "copy.jpg", b"edited")
    assert "has changed" in undo(outcome.journal).refused[0].reason
    (tmp_path / "dups" / "copy.jpg").unlink()
    assert "any more" in undo(outcome.journal).refused[0].reason


def test_undo_refuses_a_linked_file_that_was_edited(photos):
    outcome = act([removal(photos, "copy.jpg")], "hardlink")
    (photos / "kept.jpg").write_bytes(b"edited through the other name")
    assert "has changed" in undo(outcome.journal).refused[0].reason


@pytest.mark.parametrize("action", [pytest.param("trash", marks=linux_only), "move", "hardlink"])
def test_undo_twice_is_undo(tmp_path, photos, action):
    before = tree(photos)
    outcome = act(copies(photos, action), action, **options(tmp_path, action))
    assert undo(outcome.journal).done == undo(outcome.journal).done
    assert tree(photos) == before


def test_a_line_that_was_cut_off_is_left_out(tmp_path, photos):
    before = tree(photos)
    journal = act(copies(photos), "move", **options(tmp_path, "move")).journal
    with journal.open("ab") as stream:
        stream.write(b'{"action": "move", "pa')
    assert len(undo(journal).done) == 4
    assert len([entry for entry in read_journal(journal) if "undo" in entry]) == 4
    assert tree(photos) == before


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names there are text")
def test_names_that_are_not_text(tmp_path, photos):
    odd = Path(os.fsdecode(os.fsencode(photos) + b"/caf\xe9.jpg"))
    write(odd, b"the kept picture")
    outcome = act([removal(photos, odd.name)], "move", folder=tmp_path / "dups")
    assert len(outcome.done) == 1
    json.dumps(outcome.as_json()).encode()
    assert not undo(outcome.journal).refused
    assert odd.read_bytes() == b"the kept picture"


# -- kill -9 between any two steps -----------------------------------------------------------------

CALLS = ("link", "unlink", "replace", "rename", "mkdir", "rmdir", "fsync", "chmod", "utime")


def killed(at: int, work: Callable[[], object], linkable: Callable[..., bool]) -> bool:
    """Run work in a child that is killed before its call number `at` that touches the disk."""
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL), "the child raised an error"
        return status == signal.SIGKILL
    left = at

    def step() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def stepwise(call):
        def wrapped(*args, **kwargs):
            step()
            if call is link and not linkable(args):
                raise OSError(errno.EPERM, "no links here")
            return call(*args, **kwargs)

        return wrapped

    def copy_in_halves(read, written, length=0):
        content = read.read()
        written.write(content[: len(content) // 2])
        written.flush()
        step()
        written.write(content[len(content) // 2 :])

    link = os.link
    try:
        for name in CALLS:
            setattr(os, name, stepwise(getattr(os, name)))
        shutil.copyfileobj = copy_in_halves
        work()
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    os._exit(0)


def contents(*folders: Path) -> set[bytes]:
    return {content for folder in folders for content in tree(folder).values()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize(
    ("action", "disk"),
    [("move", "same"), ("move", "another"), ("move", "without links"),
     pytest.param("trash", "same", marks=linux_only),
     pytest.param("trash", "another", marks=linux_only), ("hardlink", "same")],
)  # fmt: skip
def test_killed_between_any_two_steps(tmp_path, action, disk, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # slow, and a kill needs none

    def linkable(paths: tuple[Path, ...]) -> bool:
        sides = {"photos" in Path(path).parts for path in paths}
        return disk == "same" or (disk == "another" and len(sides) == 1)

    def scene(number: str) -> tuple[Path, dict]:
        place = tmp_path / number
        place.mkdir()
        home = place / "photos"
        linked = action == "hardlink"
        write(home / "kept.jpg", b"the kept picture")
        write(home / "copy.jpg", b"the kept picture" if linked else b"a smaller one")
        write(home / "more" / "copy.jpg", b"the kept picture" if linked else b"a grey one")
        kind = "identical" if linked else "adjusted"
        names = ("copy.jpg", "more/copy.jpg")
        return place, {"files": [removal(home, name, kind) for name in names]}

    def whole(place: Path, before: dict[str, bytes]) -> None:
        """Nothing is lost, undoing restores everything, and leaves nothing behind."""
        journal = place / "journals" / "acts.jsonl"
        assert contents(place, tmp_path / "home") >= set(before.values())
        if journal.is_file() and journal.read_bytes():
            assert not undo(journal).refused
        assert tree(place / "photos") == before
        left = [p for p in place.iterdir() if p.name not in ("photos", "journals")]
        assert left == []
        files = [p for p in (tmp_path / "home").rglob("*") if p.is_file()]
        if disk == "same":  # a copy from the trash of another disk may stay there
            assert [p for p in files if p.suffix != ".trashinfo"] == []

    at, was_killed = 0, True
    while was_killed:  # acting
        place, given = scene(f"act{at}")
        before = tree(place / "photos")
        work = lambda p=place, g=given: act(**g, action=action, **options(p, action))  # noqa: E731
        was_killed = killed(at, work, linkable)
        whole(place, before)
        at += 1
    assert at > 8
    back, was_killed = 0, True
    while was_killed:  # undoing
        place, given = scene(f"undo{back}")
        before = tree(place / "photos")
        work = lambda p=place, g=given: act(**g, action=action, **options(p, action))  # noqa: E731
        assert not killed(-1, work, linkable)
        journal = place / "journals" / "acts.jsonl"
        was_killed = killed(back, lambda j=journal: undo(j), linkable)
        whole(place, before)
        back += 1
    assert back > 6
