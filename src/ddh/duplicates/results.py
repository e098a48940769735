"""What a search for duplicates finds: verified groups, look-alikes, and files that were skipped."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ddh.images.decoding import printable

Kind = Literal[
    "identical", "same-pixels", "resized", "recompressed", "adjusted", "turned", "mirrored",
    "cropped", "overlaid",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Picture:
    """A picture file as it was when it was compared.

    Parameters
    ----------
    path
        The file.
    width, height
        Pixels, upright.
    bytes, mtime_ns
        Size and time of the file.
    digest
        Digest of its bytes, as `ddh.index.collection.content_digest` gives it.
    format
        Name of the format, as Pillow calls it.
    has_colour
        Whether it is more than shades of grey.
    has_camera
        Whether its EXIF names the camera, or the time when the picture was taken.
    is_animated
        Whether the file has several frames or pages.
    """

    path: Path
    width: int
    height: int
    bytes: int
    mtime_ns: int
    digest: str
    format: str
    has_colour: bool = True
    has_camera: bool = False
    is_animated: bool = False

    @property
    def pixels(self) -> int:
        """Width times height."""
        return self.width * self.height

    def facts(self) -> dict[str, Any]:
        """Size and digest, for JSON."""
        return {name: getattr(self, name) for name in ("width", "height", "bytes", "digest")}


@dataclass(frozen=True)
class Member:
    """A verified duplicate of the kept picture: how it differs, and how sure the proof is (0-1)."""

    picture: Picture
    kind: Kind
    score: float


@dataclass(frozen=True)
class Group:
    """The picture to keep, and its duplicates, each verified against it."""

    keep: Picture
    members: tuple[Member, ...]

    def __len__(self) -> int:
        return 1 + len(self.members)


@dataclass(frozen=True)
class Similar:
    """Two pictures that are alike, but not shown to be the same: never proposed for removal."""

    first: Picture
    second: Picture
    score: float


@dataclass(frozen=True)
class Skipped:
    """A file that could not be read, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Duplicates:
    """Result of `find_duplicates`; iterating gives the groups.

    Parameters
    ----------
    groups
        Verified duplicates, in the order of the kept pictures' paths.
    similar
        Pairs of look-alikes, most alike first.
    skipped
        Files that could not be read.
    compared
        Number of pictures that were compared.
    """

    groups: list[Group]
    similar: list[Similar]
    skipped: list[Skipped]
    compared: int

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    @property
    def removable(self) -> list[Member]:
        """All members of all groups: what could go."""
        return [member for group in self.groups for member in group.members]

    def as_json(self) -> dict[str, Any]:
        """The document of `ddh dedup --json`; its names are stable."""
        return {
            "groups": [
                {
                    "keep": printable(group.keep.path),
                    **group.keep.facts(),
                    "members": [
                        {
                            "path": printable(member.picture.path),
                            "kind": member.kind,
                            "score": member.score,
                            **member.picture.facts(),
                        }
                        for member in group.members
                    ],
                }
                for group in self.groups
            ],
            "similar": [
                {
                    "paths": [printable(pair.first.path), printable(pair.second.path)],
                    "score": pair.score,
                }
                for pair in self.similar
            ],
            "skipped": [
                {"path": printable(file.path), "reason": file.reason} for file in self.skipped
            ],
        }
