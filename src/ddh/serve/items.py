"""Rows as JSON, and the files of their pictures below the folder of the collection."""

import os
import stat
from pathlib import Path
from typing import Any

from ddh.index import Hit, Row

Item = dict[str, Any]


class Pictures:
    """Finds the files of rows below one folder, never outside of it."""

    def __init__(self, root: Path | None) -> None:
        self.root = None if root is None else root.resolve()

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name below the folder; links are not checked."""
        if self.root is None or not _is_plain(name):
            return False
        try:
            return stat.S_ISREG(os.stat(f"{self.root}/{name}").st_mode)  # noqa: PTH116 a Path costs more than the call
        except (OSError, ValueError):
            return False

    def file(self, name: str) -> Path | None:
        """The file of this name, links resolved; None where it is not a file below the folder."""
        if self.root is None or not _is_plain(name):
            return None
        try:
            found = (self.root / name).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            return None
        return found if found.is_relative_to(self.root) and found.is_file() else None

    def item(self, row: Row | Hit) -> Item:
        """A row as in JSON."""
        name = picture_name(row)
        return {
            "key": row.key,
            "code": row.code.tobytes().hex(),
            "path": row.path,
            "folder": folder_of(name),
            "metadata": row.metadata,
            "picture": self.exists(name),
        }


def picture_name(row: Row | Hit) -> str:
    """The name of a row's file, relative to the collection's folder."""
    return row.key if row.path is None else row.path


def folder_of(name: str) -> str:
    """The folder of a file by its name, "" at the top."""
    return name.rpartition("/")[0]


def _is_plain(name: str) -> bool:
    """Whether a relative name has no empty, "." or ".." part."""
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))
