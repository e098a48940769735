"""The folders that the pictures of an index lie in: a disk, a backup of a phone, a network drive.

Each root has a label, the first part of the keys of its rows ("phone/2024/a.jpg"). The first folder
given to `ddh index add` has none, so its keys are names relative to it.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ddh.images.decoding import printable, unprintable

SETTING = "roots"
UNLABELLED = ("root", "root_from_index")  # settings of the root without a label, as in version 0.1

Missing = Literal["gone", "offline"]


@dataclass(frozen=True)
class Root:
    """A folder of pictures: the label of its keys, and where it lies or lay when last seen."""

    label: str
    path: Path

    @property
    def is_there(self) -> bool:
        """Whether the folder is there and not empty, as the mount point of an absent disk is."""
        try:
            with os.scandir(self.path) as entries:
                return next(entries, None) is not None
        except OSError:
            return False

    def key(self, name: str) -> str:
        """The key of a file by its name relative to the folder; "" is the folder itself."""
        return "/".join(filter(None, (self.label, name)))

    def file(self, name: str) -> str:
        """The path of a file by its name relative to the folder, as it is in keys."""
        return unprintable(os.path.join(self.path, name))  # noqa: PTH118 a Path costs more


class Roots:
    """The roots of an index, and the files of its keys."""

    def __init__(self, roots: Iterable[Root] = ()) -> None:
        self._by_label = {root.label: root for root in roots}

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], base: Path | None) -> "Roots":
        """The roots noted in an index; paths as seen from its folder `base` count too."""
        noted: dict[str, dict[str, str]] = json.loads(settings.get(SETTING, "{}"))
        if settings.get(UNLABELLED[0]):
            path, from_index = (settings.get(name, "") for name in UNLABELLED)
            noted = {"": {"path": path, "from_index": from_index}, **noted}
        return cls(Root(label, _find(paths, base)) for label, paths in noted.items())

    def as_settings(self, base: Path | None) -> dict[str, str]:
        """The inverse of `from_settings`."""
        noted = {root.label: _note(root.path, base) for root in self}
        plain = noted.pop("", {})
        settings = dict(zip(UNLABELLED, plain.values(), strict=False))
        return settings | ({SETTING: json.dumps(noted)} if noted else {})

    def __iter__(self) -> Iterator[Root]:
        return iter(self._by_label.values())

    def __len__(self) -> int:
        return len(self._by_label)

    def with_root(self, root: Root) -> "Roots":
        """These roots and one more, which takes the place of the one with its label."""
        return Roots([*(r for r in self if r.label != root.label), root])

    def without(self, root: Root) -> "Roots":
        """These roots but one."""
        return Roots(r for r in self if r.label != root.label)

    def of(self, name: str) -> tuple[Root, str] | None:
        """The root of a row by its key or path, and the name of its file relative to that."""
        label, _, rest = name.partition("/")
        if rest and label in self._by_label:
            return self._by_label[label], rest
        return (self._by_label[""], name) if "" in self._by_label else None

    def file(self, name: str) -> Path | None:
        """The file of a key or path, whether or not it is there; None where it has no root."""
        found = self.of(name)
        return None if found is None else Path(found[0].file(found[1]))

    def missing(self, name: str) -> Missing | None:
        """Why the file of a row is not there: "gone", or "offline" as its root is; None if it is.

        A row without any root is not a file.
        """
        found = self.of(name)
        if found is None or Path(found[0].file(found[1])).is_file():
            return None
        return "gone" if found[0].is_there else "offline"

    def above(self, path: Path) -> tuple[Root, str] | None:
        """The innermost root that holds a path, and its name relative to that."""
        holding = [root for root in self if path.is_relative_to(root.path)]
        if not holding:
            return None
        root = max(holding, key=lambda each: len(each.path.parts))
        name = printable(path.relative_to(root.path))
        return root, "" if name == "." else name

    def below(self, path: Path) -> list[Root]:
        """The roots that lie inside of a folder."""
        return [root for root in self if root.path != path and root.path.is_relative_to(path)]

    def new_label(self, path: Path, taken: Iterable[str]) -> str:
        """A label for another folder: its name, with a number where that is taken."""
        name = printable(path.name).replace("\\", "_") or "pictures"
        used, number, label = {*self._by_label, *taken}, 1, name
        while label in used:
            number += 1
            label = f"{name}-{number}"
        return label


def _find(paths: Mapping[str, str], base: Path | None) -> Path:
    """Where a root lies: where it lay, or else as seen from the index, if there is a folder."""
    known = Path(unprintable(paths["path"]))
    if not known.exists() and base is not None and paths.get("from_index"):
        moved = Path(unprintable(f"{base}/{paths['from_index']}")).resolve()
        if moved.exists():
            return moved
    return known.resolve() if known.exists() else known


def _note(path: Path, base: Path | None) -> dict[str, str]:
    noted = {"path": printable(path)}
    if base is not None and path.is_absolute():
        noted["from_index"] = printable(os.path.relpath(path, base))
    return noted
