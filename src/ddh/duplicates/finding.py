"""Find duplicates among picture files: measure each file once, propose pairs, verify, group."""

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ddh._core.errors import InputError
from ddh._core.progress import bar, track
from ddh._core.threads import cpu_count
from ddh.duplicates.cache import read_fingerprints
from ddh.duplicates.candidates import Candidate, Matrix, by_codes, by_features
from ddh.duplicates.fingerprints import Fingerprint, single_threaded
from ddh.duplicates.keeping import DEFAULT_KEEP, SAME_SIZE, Order, has_more, keep_order
from ddh.duplicates.results import Duplicates, Group, Kind, Member, Similar, Skipped
from ddh.duplicates.verification import UNLIKE, Loaded, Verdict, compare, load
from ddh.images import ImageFolder, decode
from ddh.images.decoding import printable

PathLike = str | os.PathLike[str]
ATTEMPTS = 3  # transforms tried for a pair
CACHED_PICTURES = 512
TYPICAL = 0.015  # agreement that may differ between members of which the first is kept
MOVES = 3  # times that a group gets another kept picture
MISSED = 0.6  # agreement that may be a duplicate of another member


@dataclass(frozen=True)
class _Link:
    """Another picture, and how to lay it on the kept one: by way of a picture that lies there."""

    other: int
    candidate: Candidate
    way: Matrix

    def matrix(self) -> Matrix | None:
        """The map onto the kept picture."""
        onto = self.candidate.matrix
        if onto is None:
            return None
        return self.way @ (onto if self.candidate.second == self.other else np.linalg.inv(onto))


def find_duplicates(
    images: PathLike | Iterable[PathLike],
    *,
    keep: str = DEFAULT_KEEP,
    cache: PathLike | None = None,
) -> Duplicates:
    """Groups of pictures that are the same photograph, verified on their pixels.

    Parameters
    ----------
    images
        A folder, a file, or any number of folders and files.
    keep
        Which picture of a group is kept: `pixels` (one without text or a watermark, most pixels
        without borders, colour, the camera's EXIF, sharpness, most bytes per pixel, then format,
        date and path), `bytes`, `smallest`, `oldest`, `newest`, `path` or `shortest-path`.
    cache
        A file that keeps what was measured, so that a second search reads only files that are new
        or have changed; made if it is not there.

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
    prints: list[Fingerprint] = []
    skipped: list[Skipped] = []
    with single_threaded():
        reading = read_fingerprints(files, None if cache is None else Path(cache))
        for found in track(reading, "Reading", total=len(files), unit="image"):
            if isinstance(found, Fingerprint):
                prints.append(found)
            else:
                skipped.append(found)
        prints.sort(
            key=_without_borders if keep == DEFAULT_KEEP else lambda one: order(one.picture)
        )
        distinct, copies = _merge_identical(prints)
        with bar("Matching", total=2, unit="step") as progress:
            candidates = by_codes(distinct)
            progress.update(1)
            candidates += by_features(distinct)
            progress.update(1)
        groups, similar = _Stars(distinct, candidates, keep == DEFAULT_KEEP).group()
    return Duplicates(
        _with_copies(groups, distinct, copies, order),
        _similar_pairs(similar, groups, distinct),
        skipped,
        len(prints),
    )


def _without_borders(one: Fingerprint) -> tuple[Any, ...]:
    """The default order, in which the pixels of a border do not count."""
    left, top, right, bottom = one.box
    share = (right - left) * (bottom - top)
    pixels = float(one.picture.pixels)
    if share < 1:  # in steps of 5 %, and less: borders are only roughly known
        pixels = 1.05 ** (math.floor(math.log(max(pixels * share, 1)) / math.log(1.05)) - 1)
    return (-pixels, *keep_order(DEFAULT_KEEP)(one.picture))


def list_files(images: PathLike | Iterable[PathLike]) -> Iterator[Path]:
    """Picture files of folders and files, each real file once."""
    roots = [images] if isinstance(images, str | os.PathLike) else list(images)
    if not roots:
        raise InputError("no folders and no files were given")
    seen: set[str] = set()
    for root in map(Path, roots):
        if not root.exists():
            raise InputError(f"{printable(root)} does not exist: give folders or images")
        for path in ImageFolder(root).paths if root.is_dir() else [root]:
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                yield path


def _merge_identical(
    prints: list[Fingerprint],
) -> tuple[list[Fingerprint], dict[str, list[Fingerprint]]]:
    """The first picture of each content, and all pictures of each."""
    copies: dict[str, list[Fingerprint]] = defaultdict(list)
    for one in prints:
        copies[one.picture.digest].append(one)
    return [same[0] for same in copies.values()], copies


class _Stars:
    """Groups around kept pictures: each member is verified against the kept one itself.

    Pictures come in the order of the keep rule. Neighbours of a verified member are tried too, laid
    on the kept picture by way of that member.
    """

    def __init__(
        self, prints: list[Fingerprint], candidates: list[Candidate], may_prefer: bool = True
    ) -> None:
        self._prints = prints
        self._may_prefer = may_prefer  # a picture without text or a watermark
        self._candidates: dict[int, list[Candidate]] = defaultdict(list)
        for one in sorted(candidates, key=lambda one: -one.support):
            self._candidates[one.first].append(one)
            self._candidates[one.second].append(one)
        self._load = lru_cache(CACHED_PICTURES)(self._load_one)

    def _load_one(self, i: int) -> Loaded:
        return load(self._prints[i])

    def group(self) -> tuple[dict[int, dict[int, Verdict]], dict[tuple[int, int], float]]:
        """Verdicts of the members of each kept picture, and scores of pairs that are similar."""
        groups: dict[int, dict[int, Verdict]] = {}
        similar: dict[tuple[int, int], float] = {}
        done: set[int] = set()
        with ThreadPoolExecutor(cpu_count(), thread_name_prefix="ddh") as pool:
            for kept in track(sorted(self._candidates), "Verifying", unit="image"):
                if kept in done:
                    continue
                done.add(kept)
                members, alike = self._star(kept, done, pool)
                for _ in range(MOVES):
                    around = self._better(kept, members, alike)
                    if around is None:
                        break
                    done ^= {kept, around}
                    again = self._star(around, done, pool)
                    if kept not in again[0]:
                        done ^= {kept, around}
                        break
                    kept, (members, alike) = around, again
                for other, verdict in list(members.items()):
                    if self._may_prefer and self._has_more(other, kept, verdict.sharpness):
                        alike[other] = members.pop(other).score
                if members:
                    groups[kept] = members
                    done |= members.keys()
                similar |= {(kept, other): score for other, score in alike.items()}
        return groups, similar

    def _better(
        self, kept: int, members: dict[int, Verdict], alike: dict[int, float]
    ) -> int | None:
        """The member to keep instead, if there is one.

        One without the text or watermark of the kept picture, or one of its size that has more to
        it, or that pictures are duplicates of which only resemble the kept one. The largest of
        those, then the most typical.
        """
        if not self._may_prefer:
            return None
        pixels = self._prints[kept].picture.pixels
        least = SAME_SIZE * _without_borders(self._prints[kept])[0]
        small = {i: _without_borders(self._prints[i])[0] > least for i in members}  # negated pixels
        cleaner = [
            other
            for other, verdict in members.items()
            if verdict.is_cleaner and self._prints[other].picture.pixels >= pixels / 2
        ]
        equal = {
            other: verdict
            for other, verdict in members.items()
            if not self._has_more(kept, other, 1 / verdict.sharpness)
        }
        richer = [
            other
            for other, verdict in equal.items()
            if verdict.kind != "overlaid" and self._has_more(other, kept, verdict.sharpness)
        ]
        missed = {other for other, score in alike.items() if score >= MISSED}
        won = dict.fromkeys(cleaner or richer, 1) or {
            other: len(self._verified(other, missed))
            for other in equal
            if missed and not small[other]
        }
        most = max(won.values(), default=0)
        best = [other for other, count in won.items() if count == most > 0]
        top = max((members[other].score for other in best), default=0.0) - TYPICAL
        return min(best, key=lambda i: (small[i], members[i].score < top, i), default=None)

    def _has_more(self, one: int, other: int, sharpness: float) -> bool:
        return has_more(self._prints[one].picture, self._prints[other].picture, sharpness)

    def _verified(self, kept: int, others: set[int]) -> set[int]:
        """Those of some pictures that are duplicates of another one at first sight."""
        links = {link.other: link for link in reversed(self._links(kept, np.eye(3)))}
        return {
            other
            for other in others & links.keys()
            if self._verify(kept, links[other])[0].duplicate
        }

    def _star(
        self, kept: int, done: set[int], pool: ThreadPoolExecutor
    ) -> tuple[dict[int, Verdict], dict[int, float]]:
        members: dict[int, Verdict] = {}
        alike: dict[int, float] = {}
        tried: dict[int, int] = defaultdict(int)
        waiting = self._links(kept, np.eye(3))
        while waiting:
            wave: dict[int, _Link] = {}
            later = []
            for link in waiting:
                if link.other in done or link.other in members or tried[link.other] >= ATTEMPTS:
                    continue
                if link.other in wave:
                    later.append(link)
                else:
                    wave[link.other] = link
                    tried[link.other] += 1
            verified = pool.map(lambda link: self._verify(kept, link), wave.values())
            for other, (verdict, matrix) in zip(wave, verified, strict=True):
                if verdict.duplicate and matrix is not None:
                    members[other] = verdict
                    later += self._links(other, matrix)
                elif verdict.similar:
                    alike[other] = max(alike.get(other, 0.0), verdict.score)
            waiting = later
        return members, {other: score for other, score in alike.items() if other not in members}

    def _links(self, picture: int, way: Matrix) -> list[_Link]:
        return [
            _Link(one.second if one.first == picture else one.first, one, way)
            for one in self._candidates[picture]
        ]

    def _verify(self, kept: int, link: _Link) -> tuple[Verdict, Matrix | None]:
        matrix = link.matrix()
        try:
            if matrix is None:
                return UNLIKE, None
            pixels = self._load(kept), self._load(link.other)
        except InputError:  # changed or gone since it was read
            return UNLIKE, None
        first, second = self._prints[kept], self._prints[link.other]
        verdict = compare(first, second, matrix, pixels)
        if first.picture.is_animated or second.picture.is_animated:  # only first frames are seen
            verdict = replace(verdict, duplicate=False)
        return verdict, matrix


def _with_copies(
    groups: dict[int, dict[int, Verdict]],
    distinct: list[Fingerprint],
    copies: dict[str, list[Fingerprint]],
    order: Order,
) -> list[Group]:
    """Groups with all copies of their pictures, and those of copies only."""
    kept = {i for i, one in enumerate(distinct) if len(copies[one.picture.digest]) > 1}
    kept -= {member for members in groups.values() for member in members}
    found = []
    for i in sorted(kept | groups.keys()):
        keep, *same = copies[distinct[i].picture.digest]
        members = [Member(one.picture, "identical", 1.0) for one in same]
        for other, verdict in groups.get(i, {}).items():
            kind, score = _exact_kind(keep, distinct[other], verdict), verdict.score
            others = copies[distinct[other].picture.digest]
            members += [Member(one.picture, kind, score) for one in others]
        members.sort(key=lambda member: order(member.picture))
        found.append(Group(keep.picture, tuple(members)))
    return sorted(found, key=lambda group: printable(group.keep.path))


def _exact_kind(a: Fingerprint, b: Fingerprint, verdict: Verdict) -> Kind:
    """`same-pixels` where a file was only stored in another way."""
    mixed = len({one.picture.format == "JPEG" for one in (a, b)}) > 1  # reduced, and not
    if verdict.kind != "recompressed" or verdict.score < 0.99:
        return verdict.kind
    if not mixed and not np.array_equal(a.points, b.points):
        return verdict.kind
    try:
        first, second = (np.asarray(decode(one.picture.path)) for one in (a, b))
    except InputError:
        return verdict.kind
    return "same-pixels" if np.array_equal(first, second) else verdict.kind


def _similar_pairs(
    similar: dict[tuple[int, int], float],
    groups: dict[int, dict[int, Verdict]],
    distinct: list[Fingerprint],
) -> list[Similar]:
    """Look-alikes among the pictures that stay, most alike first."""
    removed = {member for members in groups.values() for member in members}
    pairs = [
        Similar(distinct[a].picture, distinct[b].picture, score)
        for (a, b), score in similar.items()
        if a not in removed and b not in removed
    ]
    return sorted(pairs, key=lambda pair: -pair.score)
