"""Rows as JSON, and the files of their pictures below the folder of the collection."""

import os
import stat
from pathlib import Path
from typing import Any

from ddh._core.output import escaped
from ddh.images.decoding import printable
from ddh.index import Hit, Row
from ddh.index.roots import Root, Roots

Item = dict[str, Any]


class Pictures:
    """Finds the files of rows below the roots of an index, never outside of them.

    A folder stands for a single root whose rows have no label.
    """

    def __init__(self, roots: Roots | Path | None) -> None:
        if not isinstance(roots, Roots):
            roots = Roots([] if roots is None else [Root("", roots.resolve())])
        self._roots = roots

    @property
    def first(self) -> Root | None:
        """The first root that is there: the one of uploads."""
        return next((root for root in self._roots if root.path.is_dir()), None)

    @property
    def root(self) -> Path | None:
        """The folder of the first root that is there."""
        return None if self.first is None else self.first.path

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name below its root; links are not checked."""
        found = self._roots.of(name)
        if found is None or not _is_plain(name):
            return False
        try:
            return stat.S_ISREG(os.stat(found[0].file(found[1])).st_mode)  # noqa: PTH116 a Path costs more than the call
        except (OSError, ValueError):
            return False

    def file(self, name: str) -> Path | None:
        """The file of this name, links resolved; None where it is not a file below a root."""
        bound = self._roots.of(name)
        if bound is None or not _is_plain(name):
            return None
        root, rest = bound
        try:
            found = Path(root.file(rest)).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            return None
        return found if self._roots.above(found) and found.is_file() else None

    def name(self, file: Path) -> str:
        """The name that a file has below its root; without its folders where it is outside."""
        found = self._roots.above(file)
        if found is None:
            return printable(file.name if file.is_absolute() else file)
        return found[0].key(found[1])

    def without_roots(self, text: str) -> str:
        """A text whose paths start below their roots, for people on other machines."""
        for root in self._roots:
            text = text.replace(escaped(f"{root.path}{os.sep}"), "")
        return text

    def holds(self, path: Path) -> bool:
        """Whether a path lies below one of the roots."""
        return self._roots.above(path.resolve()) is not None

    def item(self, row: Row | Hit) -> Item:
        """A row as in JSON."""
        name = picture_name(row)
        there = self.exists(name)
        is_file = row.path is not None and _is_plain(name)
        return {
            "key": row.key,
            "code": row.code.tobytes().hex(),
            "path": row.path,
            "folder": folder_of(name),
            "metadata": row.metadata,
            "picture": there,
            "missing": self._roots.missing(name) if is_file and not there else None,
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
