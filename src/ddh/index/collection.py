"""Folders of pictures and the index of their codes: what has changed, and where the files lie.

Keys are the label of a root and a file's name relative to it, with forward slashes, so that a
folder can be moved.
"""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from numpy.typing import ArrayLike

from ddh._core.errors import InputError
from ddh.images.decoding import printable, unprintable
from ddh.images.exif import photo_facts
from ddh.images.sources import picture_files, require_pictures
from ddh.index.base import Index
from ddh.index.page_settings import rename_tagged
from ddh.index.roots import SETTING, UNLABELLED, Missing, Root, Roots
from ddh.index.rows import FileStamp, Hit, Row, Written, check_text

DIGEST_BYTES = 16
BATCH_ROWS = 1000
COMPARED_HITS = 100  # of a picture: rows that may be the same file


@dataclass(frozen=True)
class PictureFile:
    """A picture file, the key of its row, and its stamp (without a digest)."""

    key: str
    path: Path
    stamp: FileStamp


Copy = tuple[PictureFile, str]  # a file, and the key of a row with its content


@dataclass
class Changes:
    """What differs between folders and their index.

    `moved` and `copies` are new files with the content of another row, whose own file is gone or
    still there, or of another new file. `touched` files have a new time but the content that their
    rows have; `gone` are keys whose file is not there any more; `unusable` are names that cannot be
    keys, each with the reason; `ignored` are other files, counted by their endings; `empty` are
    folders without pictures.
    """

    new: list[PictureFile] = field(default_factory=list)
    changed: list[PictureFile] = field(default_factory=list)
    moved: list[Copy] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    touched: list[PictureFile] = field(default_factory=list)
    unchanged: int = 0
    gone: list[str] = field(default_factory=list)
    unusable: list[dict[str, str]] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    empty: list[Path] = field(default_factory=list)


class Collection:
    """An index together with the folders of pictures and the model it was made from.

    `roots` are the folders; `model` is the model's folder, None where it is not known or gone.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        local = Path(index.location)
        self._base = local.resolve().parent if index.engine == "local" else None
        self._settings = index.settings()
        self.roots = Roots.from_settings(self._settings, self._base)
        self.model = self._find_path("model") or self._packaged_model()

    # -- where things lie --------------------------------------------------------------------

    def set_path(self, name: str, path: Path) -> None:
        """Note where the `root` or the `model` lies, both absolute and as seen from the index."""
        paths = self.path_settings(name, path)
        if not paths.items() <= self._settings.items():
            self.index.set_setting(**paths)
            self._settings |= paths
        setattr(self, name, path.resolve())

    def path_settings(self, name: str, path: Path) -> dict[str, str]:
        """The settings that note where something lies."""
        paths = {name: printable(path.resolve())}
        if self._base is not None:
            paths[f"{name}_from_index"] = printable(os.path.relpath(path.resolve(), self._base))
        return paths

    def _find_path(self, name: str) -> Path | None:
        candidates = [self._settings[name]] if name in self._settings else []
        if self._base is not None and f"{name}_from_index" in self._settings:
            candidates.append(f"{self._base}/{self._settings[f'{name}_from_index']}")
        paths = map(Path, map(unprintable, candidates))
        return next((path.resolve() for path in paths if path.exists()), None)

    def _packaged_model(self) -> Path | None:
        """The default model where it lies now, if the one that was noted was this one."""
        if "model" not in self._settings:
            return None
        from ddh.hashers import default_model, storage

        *_, model_id = storage.read(default_model())
        return default_model().resolve() if model_id == self.index.model_id else None

    @property
    def root(self) -> Path | None:
        """The first root that is there."""
        return next((root.path for root in self.roots if root.path.is_dir()), None)

    def file(self, name: str) -> Path | None:
        """The file of a row by its path or key, None where its root is not there."""
        found = self.roots.of(name)
        if found is None or not found[0].path.is_dir():
            return None
        return Path(found[0].file(found[1]))

    def missing(self, row: Row | Hit) -> Missing | None:
        """Why a row's file is not there: "gone", or "offline" as its root is; None if it is."""
        return None if row.path is None else self.roots.missing(row.path)

    def key(self, file: Path) -> str | None:
        """The key that a file has or would have, None where it lies outside of every root."""
        found = self.roots.above(Path(os.path.realpath(file)))  # a link may lead to itself
        return None if found is None else found[0].key(found[1])

    def absent_roots(self) -> dict[Path, int]:
        """Roots that are not there and still have rows, with the number of these."""
        absent = {root.path: len(self._rows_of(root)) for root in self.roots if not root.is_there}
        return {path: rows for path, rows in absent.items() if rows}

    def _rows_of(self, root: Root) -> list[str]:
        """The keys of a root's rows."""
        rows = self.index.items(folder=root.label or None)
        return [row.key for row in rows if (found := self.roots.of(row.key)) and found[0] == root]

    # -- roots -------------------------------------------------------------------------------

    def bind_folder(self, folder: Path, *, moved: bool = False, labelled: bool = False) -> str:
        """Take `folder` as a root or as a part of one; the folder of its keys, "" for all.

        A folder outside of every root becomes another one. Where a root is gone and `folder` holds
        any of its files, it is that root in its new place; with `moved` it must be, also where the
        old place is still there. A root inside of `folder` becomes a part of it. The first root has
        no label unless `labelled`. A folder without pictures becomes no root.
        """
        folder = folder.resolve()
        found = None if moved else self.roots.above(folder)
        root = found[0] if found else self._former_root(folder, moved)
        if root is None and moved and len(self.index):
            raise InputError(
                f"this index holds the pictures of {', '.join(str(r.path) for r in self.roots)}, "
                f"and none of them is in {folder}: give the whole folder in its new place, or "
                "leave out --moved to add it as another one"
            )
        if root is None:
            require_pictures(folder)
            plain = not labelled and not len(self.index) and not len(self.roots)
            taken = {row.key.partition("/")[0] for row in self.index.items()}
            root = Root("" if plain else self.roots.new_label(folder, taken), folder)
        self._set_roots(self.roots.with_root(root))
        for inner in self.roots.below(root.path):
            self._merge(inner, root)
        return root.key(found[1]) if found else root.label

    def forget(self, root: Root) -> int:
        """Drop a root and its rows, whose number is returned."""
        removed = self.index.delete(self._rows_of(root))
        self._set_roots(self.roots.without(root))
        return removed

    def _former_root(self, folder: Path, moved: bool) -> Root | None:
        """The root that lies in a folder now: one that is gone, or any if it is said to `moved`."""
        for root in self.roots:
            if (moved or not root.path.exists()) and self._holds_files_of(folder, root):
                return Root(root.label, folder)
        return None

    def _holds_files_of(self, folder: Path, root: Root) -> bool:
        names = (found[1] for key in self._rows_of(root) if (found := self.roots.of(key)))
        return any(Path(Root("", folder).file(name)).is_file() for name in names)

    def _merge(self, inner: Root, outer: Root) -> None:
        """Make a root a folder of another one: its rows get other keys."""
        prefix = outer.key(printable(inner.path.relative_to(outer.path)))

        def renamed(name: str) -> str:
            return f"{prefix}/{name.removeprefix(f'{inner.label}/') if inner.label else name}"

        keys = self._rows_of(inner)
        for start in range(0, len(keys), BATCH_ROWS):
            rows = self.index.get_many(keys[start : start + BATCH_ROWS])
            rename_tagged(self.index, {row.key: renamed(row.key) for row in rows})
            paths = [None if row.path is None else renamed(row.path) for row in rows]
            stamps = [row.stamp for row in rows]
            self._rewrite(rows, [renamed(row.key) for row in rows], paths, stamps)
            self.index.delete([row.key for row in rows])
        self._set_roots(self.roots.without(inner))

    def _set_roots(self, roots: Roots) -> None:
        """Store the roots; settings cannot be deleted, so that what is left over becomes empty."""
        self.roots = roots
        settings = roots.as_settings(self._base)
        for name, empty in {SETTING: "{}", **dict.fromkeys(UNLABELLED, "")}.items():
            if self._settings.get(name, empty) != empty:
                settings.setdefault(name, empty)
        if not settings.items() <= self._settings.items():
            self.index.set_setting(**settings)
            self._settings |= settings

    # -- what has changed --------------------------------------------------------------------

    def changes(self, folders: Sequence[tuple[Path, str]]) -> Changes:
        """Compare folders, each with the folder of its keys, with the rows of their files.

        A file counts as unchanged when size and time are those of its row. A root that is empty
        now, as one that is not mounted, changes nothing.
        """
        found = Changes()
        for folder, part in folders:
            self._compare(folder, part, found)
        self._recognise(found)
        moved = {key for _, key in found.moved}
        found.gone = [key for key in found.gone if key not in moved]
        return found

    def _compare(self, folder: Path, part: str, found: Changes) -> None:
        folder = folder.resolve()
        known = {row.key: row.stamp for row in self.index.items(folder=part or None)}
        bound = self.roots.of(f"{part}/." if part else ".")
        if bound is not None and not bound[0].is_there:
            if not known:
                found.empty.append(folder)
            return
        for file in self._pictures(folder, part, found):
            if file.key not in known:
                found.new.append(file)
                continue
            before = known.pop(file.key)
            if before is None or before.size != file.stamp.size:
                found.changed.append(file)
            elif before.mtime_ns == file.stamp.mtime_ns:
                found.unchanged += 1
            elif before.digest is not None and before.digest == content_digest(file.path):
                found.touched.append(file)
            else:
                found.changed.append(file)
        unusable = {entry["name"] for entry in found.unusable}
        absent = (key for key in known if key not in unusable)
        found.gone += [key for key in absent if self._is_below(key, part)]

    def _is_below(self, key: str, part: str) -> bool:
        """Whether a key belongs to the root of a part: the root without a label sees all keys."""
        of_key, of_part = self.roots.of(key), self.roots.of(f"{part}/." if part else ".")
        return of_key is None or of_part is None or of_key[0] == of_part[0]

    def _recognise(self, found: Changes) -> None:
        """Find the new files whose content another row or another new file has."""
        sizes = Counter(file.stamp.size for file in found.new)
        rows: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for row in self.index.items() if sizes and len(self.index) else ():
            if row.stamp is not None and row.stamp.digest and row.stamp.size in sizes:
                rows[row.stamp.size][row.stamp.digest].append(row.key)
        new, first, taken = [], dict[str, str](), set[str]()
        for file in found.new:
            size = file.stamp.size
            if sizes[size] == 1 and size not in rows:
                new.append(file)
                continue
            try:
                digest = content_digest(file.path)
            except OSError:  # its reader will report it
                new.append(file)
                continue
            same = rows[size][digest]
            gone = next((k for k in same if k not in taken and self.roots.missing(k) == "gone"), "")
            there = next((key for key in same if key not in taken), first.get(digest))
            if gone:
                taken.add(gone)
                found.moved.append((file, gone))
                first[digest] = file.key
            elif there is not None:
                found.copies.append((file, there))
            else:
                first[digest] = file.key
                new.append(file)
        found.new = new

    def _pictures(self, folder: Path, part: str, found: Changes) -> Iterator[PictureFile]:
        paths = picture_files(folder, found.ignored)
        named = sorted((printable(path.relative_to(folder)), path) for path in paths)
        if not named:
            found.empty.append(folder)
        for name, path in named:
            key = f"{part}/{name}" if part else name
            try:
                check_text(key, "a file's name")
                if not self._is_below(key, part):
                    raise InputError("its folder has the name of another root of this index")
                if "\\x" in name and self.roots.file(key) != path:
                    raise InputError("as text, its name is that of another file")
                state = path.stat()
            except (InputError, OSError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                found.unusable.append({"name": key, "reason": reason})
                continue
            yield PictureFile(key, path, FileStamp(state.st_mtime_ns, state.st_size))

    def write_copies(self, copies: Sequence[Copy], *, moved: bool = False) -> list[Copy]:
        """Write rows for files with the content of other rows, which `moved` removes.

        Returns the files whose other row is not there, or not yet.
        """
        left = []
        for start in range(0, len(copies), BATCH_ROWS):
            part = copies[start : start + BATCH_ROWS]
            rows = {row.key: row for row in self.index.get_many([key for _, key in part])}
            there = [(file, rows[key]) for file, key in part if key in rows]
            left += [copy for copy in part if copy[1] not in rows]
            keys, stamps = [file.key for file, _ in there], [_stamp(*each) for each in there]
            if moved:  # first: after an interruption, moving again leaves the tags as they are
                rename_tagged(self.index, {row.key: file.key for file, row in there})
            self._rewrite([row for _, row in there], keys, keys, stamps)
            if moved:
                self.index.delete([row.key for _, row in there])
        return left

    def restamp(self, files: Iterable[PictureFile]) -> None:
        """Give the rows of touched files their new times."""
        touched = {file.key: file for file in files}
        rows = self.index.get_many(list(touched))
        stamps = [_stamp(touched[row.key], row) for row in rows]
        self._rewrite(rows, [row.key for row in rows], [row.path for row in rows], stamps)

    def _rewrite(
        self,
        rows: Sequence[Row],
        keys: Sequence[str],
        paths: Sequence[str | None],
        stamps: Sequence[FileStamp | None],
    ) -> None:
        """Write rows under these keys, with all else that they hold."""
        if rows:
            stored = [row.key for row in rows]
            self.index.upsert(
                keys,
                [row.code for row in rows],
                paths=paths,
                stamps=stamps,
                metadata=[row.metadata for row in rows],
                features=self.index.features(stored) if self.index.header.features else None,
            )

    def is_current(self, row: Row, file: Path) -> bool:
        """Whether a row's code is that of the file as it is now."""
        state = file.stat()
        return row.stamp is not None and row.stamp[:2] == (state.st_mtime_ns, state.st_size)


def _stamp(file: PictureFile, row: Row) -> FileStamp:
    """The stamp of a file that has the content of a row."""
    return file.stamp._replace(digest=row.stamp.digest if row.stamp else None)


def write_codes(
    index: Index,
    keys: Sequence[str],
    codes: ArrayLike,
    stamps: Sequence[FileStamp | None],
    features: ArrayLike | None = None,
    files: Sequence[Path] | None = None,
) -> Written:
    """Write the codes of files, whose keys are their paths; rows keep the metadata they have.

    With `files`, metadata also tells when, where and with what camera each was taken.
    """
    before = {row.key: row.metadata for row in index.get_many(keys)}
    metadata = [before.get(key, {}) for key in keys]
    if files is not None:
        facts = [photo_facts(file).metadata() for file in files]
        metadata = [kept | new for kept, new in zip(metadata, facts, strict=True)]
    return index.upsert(
        keys, codes, paths=keys, stamps=stamps, metadata=metadata, features=features
    )


def content_digest(path: Path) -> str:
    """A digest of a file's bytes."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES))
    return digest.hexdigest()


def bytes_digest(content: bytes) -> str:
    """The digest of a file with this content."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def same_content_first(index: Index, hits: list[Hit], digest: str) -> list[Hit]:
    """Hits of a picture file, with those of the first rows first whose files have its content."""
    rows = index.get_many([hit.key for hit in hits[:COMPARED_HITS]])
    same = {row.key for row in rows if row.stamp is not None and row.stamp.digest == digest}
    return sorted(hits, key=lambda hit: hit.key not in same)
