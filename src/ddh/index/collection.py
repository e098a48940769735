"""A folder of pictures and the index of its codes: what has changed, and where the files lie.

Keys are file names relative to the folder, with forward slashes, so that the folder can be moved.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from numpy.typing import ArrayLike

from ddh._core.errors import InputError
from ddh.images import ImageFolder
from ddh.index.base import Index
from ddh.index.rows import FileStamp, Hit, Row, Written, check_text

DIGEST_BYTES = 16
COMPARED_HITS = 100  # of a picture: rows that may be the same file


@dataclass(frozen=True)
class PictureFile:
    """A picture file, the key of its row, and its stamp (without a digest)."""

    key: str
    path: Path
    stamp: FileStamp


@dataclass
class Changes:
    """What differs between a folder and its index.

    `touched` files have a new time but the content that their rows have; `gone` are keys whose
    file is not there any more; `unusable` are names that cannot be keys, each with the reason.
    """

    new: list[PictureFile] = field(default_factory=list)
    changed: list[PictureFile] = field(default_factory=list)
    touched: list[PictureFile] = field(default_factory=list)
    unchanged: int = 0
    gone: list[str] = field(default_factory=list)
    unusable: list[dict[str, str]] = field(default_factory=list)


class Collection:
    """An index together with the folder of pictures and the model it was made from.

    `root` is the folder and `model` the model's folder, None where they are not known or gone.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        local = Path(index.location)
        self._base = local.resolve().parent if index.engine == "local" else None
        self._settings = index.settings()
        self.root, self.model = self._find_path("root"), self._find_path("model")

    # -- where things lie --------------------------------------------------------------------

    def set_path(self, name: str, path: Path) -> None:
        """Note where the `root` or the `model` lies, both absolute and as seen from the index."""
        paths = {name: str(path.resolve())}
        if self._base is not None:
            paths[f"{name}_from_index"] = os.path.relpath(path.resolve(), self._base)
        if not paths.items() <= self._settings.items():
            self.index.set_setting(**paths)
            self._settings |= paths
        setattr(self, name, path.resolve())

    def _find_path(self, name: str) -> Path | None:
        candidates = [Path(self._settings[name])] if name in self._settings else []
        if self._base is not None and f"{name}_from_index" in self._settings:
            candidates.append(self._base / self._settings[f"{name}_from_index"])
        return next((path.resolve() for path in candidates if path.exists()), None)

    def file(self, key: str) -> Path | None:
        """The file of a key, None where the folder is not there."""
        return None if self.root is None else self.root / key

    def key(self, file: Path) -> str | None:
        """The key that a file has or would have, None where it lies outside of the folder."""
        root, path = self.root, file.resolve()
        if root is None or not path.is_relative_to(root):
            return None
        return path.relative_to(root).as_posix()

    def bind_folder(self, folder: Path, *, moved: bool = False) -> str:
        """Take `folder` as the indexed one or as a part of it; the part's name, "" for all.

        Where the folder of an earlier run is gone, `folder` is taken for its new place if it holds
        any of the indexed files; with `moved`, also where the old one is still there.
        """
        folder, root = folder.resolve(), self.root
        if root is not None and folder.is_relative_to(root) and not moved:
            return "" if folder == root else folder.relative_to(root).as_posix()
        if root is not None and not moved:
            raise InputError(
                f"this index holds the pictures of {root}, and {folder} is not in it: use another "
                "index for it, or --moved if it is the same collection in a new place"
            )
        files = (folder / row.key for row in self.index.items())
        if "root" in self._settings and len(self.index) and not any(map(Path.is_file, files)):
            former = self._settings["root"]
            raise InputError(
                f"this index holds the pictures of {former}, and none of them is in {folder}: "
                "give the whole folder in its new place, or use another index"
            )
        self.set_path("root", folder)
        return ""

    # -- what has changed --------------------------------------------------------------------

    def changes(self, folder: Path, part: str) -> Changes:
        """Compare a folder, which is the `part` of the collection, with the rows of its files.

        A file counts as unchanged when size and time are those of its row.
        """
        found = Changes()
        known = {row.key: row.stamp for row in self.index.items(folder=part or None)}
        for file in self._pictures(folder, part, found, bool(known)):
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
        found.gone = [key for key in known if key not in unusable]
        return found

    def _pictures(
        self, folder: Path, part: str, found: Changes, may_be_empty: bool
    ) -> Iterator[PictureFile]:
        try:
            source = ImageFolder(folder)
        except InputError:
            if folder.is_dir() and may_be_empty:
                return
            raise
        for name, path in zip(source.names, source.paths, strict=True):
            key = f"{part}/{name}" if part else name
            try:
                check_text(key, "a file's name")
                state = path.stat()
            except (InputError, OSError) as error:
                found.unusable.append({"name": key, "reason": str(error)})
                continue
            yield PictureFile(key, path, FileStamp(state.st_mtime_ns, state.st_size))

    def restamp(self, files: Iterable[PictureFile]) -> None:
        """Give the rows of touched files their new times."""
        stamps = {file.key: file.stamp for file in files}
        rows = self.index.get_many(list(stamps))
        if rows:
            keys = [row.key for row in rows]
            self.index.upsert(
                keys,
                [row.code for row in rows],
                paths=[row.path for row in rows],
                stamps=[
                    stamps[row.key]._replace(digest=row.stamp.digest if row.stamp else None)
                    for row in rows
                ],
                metadata=[row.metadata for row in rows],
                features=self.index.features(keys) if self.index.header.features else None,
            )

    def is_current(self, row: Row, file: Path) -> bool:
        """Whether a row's code is that of the file as it is now."""
        state = file.stat()
        return row.stamp is not None and row.stamp[:2] == (state.st_mtime_ns, state.st_size)


def write_codes(
    index: Index,
    keys: Sequence[str],
    codes: ArrayLike,
    stamps: Sequence[FileStamp | None],
    features: ArrayLike | None = None,
) -> Written:
    """Write the codes of files, whose keys are their paths; rows keep the metadata they have."""
    before = {row.key: row.metadata for row in index.get_many(keys)}
    metadata = [before.get(key) for key in keys]
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
