"""Find duplicates among picture files: measure each file once, propose pairs, verify, group."""

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path

from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh._core.threads import thread_imap
from ddh.duplicates.keeping import keep_order
from ddh.duplicates.results import Duplicates, Group, Member, Picture, Skipped
from ddh.images import ImageFolder, UnreadableImage
from ddh.images.decoding import printable
from ddh.images.formats import ORIENTATION, open_picture
from ddh.index.collection import bytes_digest

PathLike = str | os.PathLike[str]


def find_duplicates(images: PathLike | Iterable[PathLike], *, keep: str = "pixels") -> Duplicates:
    """Groups of pictures that are the same photograph, verified on their pixels.

    Parameters
    ----------
    images
        A folder, a file, or any number of folders and files.
    keep
        Which picture of a group is kept: `pixels` (most pixels, then most bytes per pixel, then
        format, date and path), `bytes`, `smallest`, `oldest`, `newest`, `path` or `shortest-path`.

    Returns
    -------
    Duplicates
        Groups around the kept pictures, pairs that are only similar, and skipped files.

    Examples
    --------
    >>> from ddh.duplicates import find_duplicates
    >>> for group in find_duplicates("photos/"):  # doctest: +SKIP
    ...     print(group.keep.path, [member.kind for member in group.members])
    """
    order = keep_order(keep)
    files = list(list_files(images))
    pictures: list[Picture] = []
    skipped: list[Skipped] = []
    for found in track(thread_imap(_read, files), "Reading", total=len(files), unit="image"):
        (pictures if isinstance(found, Picture) else skipped).append(found)  # type: ignore[arg-type]
    same: dict[str, list[Picture]] = defaultdict(list)
    for picture in pictures:
        same[picture.digest].append(picture)
    groups = []
    for copies in (sorted(copies, key=order) for copies in same.values() if len(copies) > 1):
        members = tuple(Member(copy, "identical", 1.0) for copy in copies[1:])
        groups.append(Group(copies[0], members))
    groups.sort(key=lambda group: printable(group.keep.path))
    return Duplicates(groups, [], skipped, len(pictures))


def list_files(images: PathLike | Iterable[PathLike]) -> Iterator[Path]:
    """Picture files of folders and files, each real file once."""
    roots = [images] if isinstance(images, str | os.PathLike) else list(images)
    if not roots:
        raise InputError("no folders and no files were given")
    seen: set[Path] = set()
    for root in map(Path, roots):
        if not root.exists():
            raise InputError(f"{printable(root)} does not exist: give folders or images")
        for path in ImageFolder(root).paths if root.is_dir() else [root]:
            real = path.resolve()
            if real not in seen:
                seen.add(real)
                yield path


def _read(path: Path) -> Picture | Skipped:
    try:
        state = path.stat()
        content = path.read_bytes()
        with open_picture(BytesIO(content), math.inf) as image:
            (width, height), name = image.size, image.format or ""
            if image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8):
                width, height = height, width
    except UnreadableImage as error:
        return Skipped(path, error.reason)
    except Exception as error:  # a damaged file makes Pillow's parsers raise almost anything
        return Skipped(path, f"cannot be read: {error}")
    digest = bytes_digest(content)
    return Picture(path, width, height, len(content), state.st_mtime_ns, digest, name)
