"""Where the pictures of a job lie: a folder that all workers see, or any URL that fsspec reads.

A listing goes folder by folder, in an order that does not change, and holds the names of one
folder at a time, so that encoding begins while the rest is still being listed.
"""

import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from ddh._core.errors import DDHError, InputError, MissingDependency
from ddh.cluster.pictures import Picture, RemotePictures
from ddh.images import ImageFiles, ImageSource
from ddh.images.decoding import picture_extensions, printable
from ddh.images.sources import picture_files
from ddh.index.collection import content_digest

TIMES = ("mtime", "LastModified", "last_modified", "updated", "created", "date_time")


class Place(ABC):
    """A folder of pictures; it travels to the workers by pickle."""

    location: str

    @abstractmethod
    def pictures(self) -> Iterator[Picture]:
        """All pictures below the folder; hidden files and folders are left out."""

    @abstractmethod
    def check(self) -> None:
        """Raise `InputError` where the folder cannot be seen from this machine."""

    @abstractmethod
    def source(self, pictures: list[Picture]) -> AbstractContextManager[Any]:
        """These pictures as an `ImageSource`, each to be read once, until the end of the block."""

    @abstractmethod
    def digest(self, source: ImageSource, i: int) -> str:
        """A digest of the bytes of picture `i`, which has been read."""


def is_url(location: str) -> bool:
    """Whether a location is for fsspec and not a path of this machine."""
    return "://" in location


def open_place(location: str, prefix: str = "") -> Place:
    """A folder or a URL; `prefix` goes before each key, for a part of a larger collection."""
    before = f"{prefix}/" if prefix else ""
    folder = location.removeprefix("file://")
    return RemotePlace(folder, before) if is_url(folder) else LocalPlace(folder, before)


class LocalPlace(Place):
    """A folder on a disk that all nodes see under the same name."""

    def __init__(self, folder: str, prefix: str) -> None:
        self.location, self.prefix = str(Path(folder).resolve()), prefix

    def pictures(self) -> Iterator[Picture]:
        root = Path(self.location)
        for file in picture_files(root):
            try:
                state = file.stat()
                size, mtime_ns = state.st_size, state.st_mtime_ns
            except OSError:  # a dangling link: who reads it will say so
                size, mtime_ns = 0, 0
            key = self.prefix + printable(file.relative_to(root))
            yield Picture(key, str(file), size, mtime_ns)

    def check(self) -> None:
        if not Path(self.location).is_dir():
            raise InputError(
                f"the folder {self.location} is not there on the node {platform.node()}: put "
                "the pictures where all nodes see them, on a shared disk or in an object store"
            )

    def source(self, pictures: list[Picture]) -> AbstractContextManager[ImageFiles]:
        return nullcontext(ImageFiles([picture.path for picture in pictures]))

    def digest(self, source: ImageSource, i: int) -> str:
        assert isinstance(source, ImageFiles)
        return content_digest(source.paths[i])


class RemotePlace(Place):
    """A folder of any file system that fsspec knows: s3://bucket/photos, zip://::/data/a.zip."""

    def __init__(self, url: str, prefix: str) -> None:
        self.location, self.prefix = url, prefix
        self.fs, self.root = open_url(url)

    def pictures(self) -> Iterator[Picture]:
        pending = [self.root]
        while pending:
            folder = pending.pop()
            inside = []
            for entry in self._entries(folder):
                name = PurePosixPath(entry["name"]).name
                if name.startswith(".") or entry["name"].strip("/") == folder.strip("/"):
                    continue
                if entry["type"] == "directory":
                    inside.append(entry["name"])
                elif PurePosixPath(name).suffix.lower() in picture_extensions():
                    yield self._picture(entry)
            pending += reversed(inside)

    def _entries(self, folder: str) -> list[dict[str, Any]]:
        try:
            return sorted(self.fs.ls(folder, detail=True), key=lambda entry: entry["name"])
        except Exception as error:  # each file system has errors of its own
            raise DDHError(f"{folder or self.location} cannot be listed: {error}") from error

    def _picture(self, entry: dict[str, Any]) -> Picture:
        path = entry["name"]
        inside = path.strip("/").removeprefix(self.root.strip("/")).strip("/")
        return Picture(self.prefix + printable(inside), path, entry["size"] or 0, _time_ns(entry))

    def check(self) -> None:
        try:
            there = self.fs.exists(self.root)
        except Exception as error:
            raise InputError(f"{self.location} cannot be reached: {error}") from error
        if not there:
            raise InputError(f"{self.location} is not there as seen by {platform.node()}")

    def source(self, pictures: list[Picture]) -> AbstractContextManager[RemotePictures]:
        return closing(RemotePictures(self.fs, pictures))

    def digest(self, source: ImageSource, i: int) -> str:
        assert isinstance(source, RemotePictures)
        return source.digests[i]


def open_url(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL and the path in it; it keeps no listings."""
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependency(f'{url} needs fsspec: pip install "ddh[ray]"') from error
    try:
        return fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise MissingDependency(f"{url} needs one more library: {error}") from error
    except (ValueError, OSError) as error:
        raise InputError(f"{url} cannot be opened: {error}") from error


def _time_ns(entry: dict[str, Any]) -> int:
    """The time of a change in nanoseconds, 0 where the file system tells none."""
    found: Any = next((entry[name] for name in TIMES if entry.get(name) is not None), None)
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    elif isinstance(found, tuple):  # of an archive
        found = datetime(*found[:6]).replace(tzinfo=UTC)
    if isinstance(found, datetime):
        found = found.timestamp()
    return round(found * 1e9) if isinstance(found, int | float) else 0
