"""Where the images of a job are: a folder that all workers see, or any URL that fsspec reads.

A listing goes folder by folder in a fixed order and holds the names of one folder at a time.
"""

import platform
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image

from ddh._core.errors import DDHError, InputError, MissingDependency, optional
from ddh.cluster.batches import ImageFile
from ddh.images import ImageSource, UnreadableImage, decode
from ddh.images.decoding import DEFAULT_LIMITS, printable
from ddh.images.formats import picture_extensions
from ddh.images.sources import picture_files
from ddh.index import Index
from ddh.index.collection import bytes_digest
from ddh.index.location import without_password

PART_IMAGES, PART_BYTES = 64, 128 << 20

# Errors of an object store that a second attempt will not cure. Any other (a timeout, a lost
# connection) is raised, so that the batch is retried and no readable image is skipped.
PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError)
TIMES = ("mtime", "LastModified", "last_modified", "updated", "created", "date_time")


class DownloadedImages(ImageSource):
    """Images in memory; fsspec downloads them in parallel where the file system can."""

    names: Sequence[str] = ()

    def __init__(self, fs: Any, files: Sequence[ImageFile]) -> None:
        limit = DEFAULT_LIMITS.file_bytes
        paths = [file.path for file in files if file.size <= limit]
        found = dict(zip(paths, fs.cat_ranges(paths, None, None, on_error="return"), strict=True))
        too_large = OSError(0, f"the file is larger than the limit of {limit:,} bytes")
        self.names = tuple(file.key for file in files)
        self._contents: list[Any] = [found.get(file.path, too_large) for file in files]
        permanent = (bytes, OSError) if "file" in fs.protocol else (bytes, *PERMANENT)
        for content in found.values():
            if not isinstance(content, permanent):
                raise content

    def read(self, i: int) -> Image.Image:
        return self.read_reduced(i)

    def read_reduced(self, i: int, at_least: int | None = None) -> Image.Image:
        content = self._contents[i]
        if isinstance(content, OSError):
            reason = f"cannot be opened: {content.strerror or type(content).__name__}"
            raise UnreadableImage(self.names[i], reason) from content
        return decode(content, name=self.names[i], at_least=at_least)

    def take(self, indices: Iterable[int]) -> ImageSource:
        raise NotImplementedError

    def digest(self, i: int) -> str:
        """A digest of the bytes of image `i`."""
        return bytes_digest(self._contents[i])


class ImageLocation:
    """The images of a folder or a URL; it travels to the workers by pickle.

    Parameters
    ----------
    location
        A path that all nodes see, or a URL: ``s3://bucket/photos``, ``zip://::/data/a.zip``.
    prefix
        Put before each key, where the folder is a part of a larger collection.
    """

    def __init__(self, location: str, prefix: str = "") -> None:
        self.location, self.fs, self.root = open_url(location)
        self.prefix = f"{prefix}/" if prefix else ""

    def files(self) -> Iterator[ImageFile]:
        """All images below the folder, without hidden files and folders."""
        return self._remote_files() if is_url(self.location) else self._local_files()

    def open(self, files: list[ImageFile]) -> DownloadedImages:
        """Download these images."""
        return DownloadedImages(self.fs, files)

    def check(self) -> None:
        """Raise `InputError` where this machine cannot see the folder."""
        try:
            found = self.fs.exists(self.root)
        except Exception as error:  # each file system has errors of its own
            raise InputError(f"{self.location} cannot be reached: {error}") from error
        if not found:
            raise InputError(
                f"{self.location} is not there on the node {platform.node()}: put the pictures "
                "where all nodes see them, on a shared disk or in an object store"
            )

    def _local_files(self) -> Iterator[ImageFile]:
        for file in picture_files(Path(self.root)):
            try:
                state = file.stat()
                size, mtime_ns = state.st_size, state.st_mtime_ns
            except OSError:  # a dangling link, which its reader will report
                size, mtime_ns = 0, 0
            key = self.prefix + printable(file.relative_to(self.root))
            yield ImageFile(key, str(file), size, mtime_ns)

    def _remote_files(self) -> Iterator[ImageFile]:
        root = self.root.strip("/")
        try:
            for _, folders, files in self.fs.walk(self.root, detail=True, on_error="raise"):
                shown = [(n, folders[n]) for n in sorted(folders) if not n.startswith(".")]
                folders.clear()
                folders.update(shown)  # walk goes on with these, in this order
                for name, entry in sorted(files.items()):
                    suffix = PurePosixPath(name).suffix.lower()
                    if not name.startswith(".") and suffix in picture_extensions():
                        below = entry["name"].strip("/").removeprefix(root).strip("/")
                        key, size = self.prefix + printable(below), entry["size"] or 0
                        yield ImageFile(key, entry["name"], size, _time_ns(entry))
        except Exception as error:
            raise DDHError(f"{self.location} cannot be listed: {error}") from error


def parts(files: Sequence[ImageFile]) -> Iterator[list[ImageFile]]:
    """Files in parts that fit into memory: 64 images, or as many as have 128 MB."""
    part: list[ImageFile] = []
    for file in files:
        full = len(part) == PART_IMAGES or sum(f.size for f in part) + file.size > PART_BYTES
        if part and full:
            yield part
            part = []
        part.append(file)
    if part:
        yield part


def is_url(location: str) -> bool:
    """Whether a location is a URL for fsspec, not a path of this machine."""
    return "://" in location


def bind_url(index: Index, url: str, *, moved: bool = False) -> str:
    """Bind an index to the images of a URL, as `Collection.bind_folder` does to those of a folder.

    Returns
    -------
    str
        The part of the collection that the URL is, empty for the whole collection.
    """
    url = without_password(url).rstrip("/")
    root = index.settings().get("root")
    if root is None or moved:
        index.set_setting(root=url)
        return ""
    if url == root or url.startswith(f"{root}/"):
        return url[len(root) :].lstrip("/")
    raise InputError(
        f"this index holds the pictures of {root}, and {url} is not in it: use another index for "
        "it, or --moved if it is the same collection in a new place"
    )


def open_url(location: str) -> tuple[str, Any, str]:
    """A location, absolute if it is a path, its fsspec file system, and the path in that."""
    location = location.removeprefix("file://")
    fsspec = optional("fsspec", f'{location} needs fsspec: pip install "ddh[ray]"')
    if not is_url(location):
        location = str(Path(location).resolve())
        return location, fsspec.filesystem("file"), location
    try:
        return location, *fsspec.core.url_to_fs(location, use_listings_cache=False)
    except ImportError as error:
        raise MissingDependency(f"{location} needs one more library: {error}") from error
    except (ValueError, OSError) as error:
        raise InputError(f"{location} cannot be opened: {error}") from error


def _time_ns(entry: dict[str, Any]) -> int:
    """The modification time in nanoseconds, 0 where the file system has none."""
    found: Any = next((entry[name] for name in TIMES if entry.get(name) is not None), None)
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    elif isinstance(found, tuple):  # of an archive
        found = datetime(*found[:6]).replace(tzinfo=UTC)
    if isinstance(found, datetime):
        found = found.timestamp()
    return round(found * 1e9) if isinstance(found, int | float) else 0
