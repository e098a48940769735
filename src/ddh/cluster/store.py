"""A flat folder of files, each whole or not there: on a disk, or in an object store by its URL."""

import os
from pathlib import Path, PurePosixPath

from ddh._core.atomic import write_atomic
from ddh.cluster.sources import is_url, open_url


class Store:
    """Files by name. A file is written beside its place and moved there; objects are so already."""

    def __init__(self, location: str) -> None:
        folder = location.removeprefix("file://")
        self.location = folder if is_url(folder) else str(Path(folder).resolve())
        if is_url(folder):
            self._fs, self._root = open_url(folder)
        else:
            self._fs, self._root = None, self.location

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def write(self, name: str, content: bytes) -> None:
        """Put a file there, in the place of an older one."""
        if self._fs is not None:
            self._fs.pipe_file(self._path(name), content)
            return
        target = Path(self._path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, content, durable=True)

    def read(self, name: str) -> bytes:
        """The content of a file."""
        path = self._path(name)
        return Path(path).read_bytes() if self._fs is None else self._fs.cat_file(path)

    def names(self) -> list[str]:
        """The names of all files, sorted; also those that a killed writer left half done."""
        if self._fs is None:
            folder = Path(self._root)
            return sorted(os.listdir(folder)) if folder.is_dir() else []  # noqa: PTH208
        if not self._fs.exists(self._root):
            return []
        return sorted(PurePosixPath(path).name for path in self._fs.ls(self._root, detail=False))

    def delete(self, name: str) -> None:
        """Remove a file."""
        if self._fs is None:
            Path(self._path(name)).unlink(missing_ok=True)
        else:
            self._fs.rm_file(self._path(name))
