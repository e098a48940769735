"""Pairs of pictures that may be the same, and how one would lie on the other.

Two searches propose pairs: perceptual codes within a few bits, under eight turns, and local
features with equal words. A word is 20 of the 64 bits of a feature; complements count as equal,
since a mirrored feature has the complementary code. Features that match vote for one similarity
transform. Nothing here is quadratic in the number of pictures.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from ddh.codes import MultiIndex, search_radius
from ddh.codes.multi_index import tables_for_radius
from ddh.duplicates.fingerprints import (
    CODE_BYTES,
    FEATURES,
    SIDE,
    TURNS,
    Bits,
    Fingerprint,
    Floats,
    turn_matrix,
    turned_codes,
)

RADIUS = 7  # bits of 63 between perceptual codes
MOST_NEIGHBOURS = 24  # pairs that one picture proposes by each search
WORD_BITS, WORDS = 20, 3
COMMON = 48  # features with the same word, from which on the word says nothing
FEATURE_RADIUS, PAIR_RADIUS = 14, 18  # bits of 64 between matching features; of two pictures alone
LEAST_MATCHES, MOST_MATCHES = 3, 80
_PIXELS, _TURN, _SCALE = 5.0, np.deg2rad(15), np.log(1.3)  # what agrees with a transform

Matrix = NDArray[np.float64]  # 3 x 3, affine, of points with a longer side of `SIDE` pixels
Rows = NDArray[np.int64]


@dataclass(eq=False)
class Candidate:
    """A pair of pictures, how many features match, and how the second would lie on the first."""

    first: int
    second: int
    support: int
    fit: Callable[[], Matrix | None]

    @cached_property
    def matrix(self) -> Matrix | None:
        """The map from the second picture to the first; None where the matches agree on none."""
        return self.fit()


def code_pairs(codes: Bits, radius: int = RADIUS) -> Iterator[tuple[Rows, Rows, int]]:
    """Pairs (i, j, turn) for which code i lies within `radius` of the turned code j, i < j."""
    rows = np.arange(len(codes))
    index = MultiIndex(codes, 64, tables_for_radius(len(codes), 64, radius))
    for turn in range(TURNS):
        turned = turned_codes(codes, turn)
        for start in range(0, len(codes), 1 << 16):
            part = rows[start : start + (1 << 16)]
            found = index.search_radius(turned[part], radius)
            counts = np.diff(found.limits)
            place = np.arange(len(found.indices)) - np.repeat(found.limits[:-1], counts)
            second = np.repeat(part, counts)
            keep = (found.indices < second) & (place < MOST_NEIGHBOURS)
            yield found.indices[keep], second[keep], turn


class PerceptualIndex:
    """Perceptual codes that grow row by row; asking for near ones is a scan of eight turns.

    Parameters
    ----------
    codes
        The first rows, (n, 8) bytes, as `perceptual_code` gives them.
    """

    def __init__(self, codes: Bits | None = None) -> None:
        self._rows: Bits = np.empty((0, CODE_BYTES), np.uint8)
        self._count = 0
        if codes is not None:
            self.add(codes)

    def __len__(self) -> int:
        return self._count

    def add(self, codes: Bits) -> None:
        """Append rows."""
        count = self._count + len(codes)
        if count > len(self._rows):
            rows = np.empty((max(count, 3 * len(self._rows) // 2), CODE_BYTES), np.uint8)
            rows[: self._count] = self._rows[: self._count]
            self._rows = rows
        self._rows[self._count : count] = codes
        self._count = count

    def near(self, code: Bits, radius: int = RADIUS) -> tuple[Rows, Rows]:
        """Rows within `radius` of a code under some turn, nearest first, and those turns."""
        turned = np.concatenate([turned_codes(code[None], turn) for turn in range(TURNS)])
        found = search_radius(turned, self._rows[: self._count], radius)
        turns = np.repeat(np.arange(TURNS), np.diff(found.limits))
        order = np.argsort(found.distances, kind="stable")
        return found.indices[order], turns[order]


def by_codes(prints: list[Fingerprint]) -> list[Candidate]:
    """Pairs whose perceptual codes are near, whole or without their borders."""
    if not prints:
        return []
    owner = np.repeat(np.arange(len(prints)), [len(one.codes) for one in prints])
    content = np.concatenate([np.arange(len(one.codes)) for one in prints]) > 0
    codes = np.concatenate([one.codes for one in prints])
    found = []
    for first, second, turn in code_pairs(codes) if len(prints) > 2 else _all_turns(codes):
        for i, j in zip(first.tolist(), second.tolist(), strict=True):
            a, b = int(owner[i]), int(owner[j])
            if a != b:
                frames = (prints[a], bool(content[i])), (prints[b], bool(content[j]))
                found.append(Candidate(a, b, FEATURES, partial(_turned, *frames, turn)))
    return found


def _all_turns(codes: Bits) -> Iterator[tuple[Rows, Rows, int]]:
    """Every pair under its nearest turns: for two pictures that someone takes for duplicates."""
    first, second = np.triu_indices(len(codes), 1)
    turned = [turned_codes(codes, turn) for turn in range(TURNS)]
    distances = [np.bitwise_count(codes[first] ^ each[second]).sum(axis=1) for each in turned]
    for turn, distance in enumerate(distances):
        near = distance <= np.maximum(np.min(distances, axis=0), RADIUS)
        yield first[near], second[near], turn


def _turned(a: tuple[Fingerprint, bool], b: tuple[Fingerprint, bool], turn: int) -> Matrix:
    matrix: Matrix = _frame(*a) @ turn_matrix(turn) @ np.linalg.inv(_frame(*b))
    return matrix


def _frame(one: Fingerprint, content: bool) -> Matrix:
    """The unit square laid on a picture, or on its content without a border."""
    width, height = frame_size(one)
    left, top, right, bottom = one.box if content else (0.0, 0.0, 1.0, 1.0)
    return np.array(
        [[(right - left) * width, 0, left * width], [0, (bottom - top) * height, top * height],
         [0, 0, 1.0]]
    )  # fmt: skip


def frame_size(one: Fingerprint) -> tuple[float, float]:
    """Width and height where the longer side has `SIDE` pixels."""
    longer = max(one.picture.width, one.picture.height)
    return one.picture.width * SIDE / longer, one.picture.height * SIDE / longer


# -- local features --------------------------------------------------------------------------------


def by_features(prints: list[Fingerprint]) -> list[Candidate]:
    """Pairs with matching features; transforms are fitted when they are asked for."""
    if not prints:
        return []
    owner = np.repeat(np.arange(len(prints)), [len(one.features) for one in prints])
    points = np.concatenate([one.points for one in prints])
    features = np.concatenate([one.features for one in prints])
    first, second, mirrored = (_matches if len(prints) > 2 else _all_matches)(features, owner)
    pair = (owner[first] * len(prints) + owner[second]) * 2 + mirrored
    order = np.argsort(pair, kind="stable")
    first, second, pair = first[order], second[order], pair[order]
    starts = np.flatnonzero(np.diff(pair, prepend=-1))
    stops = np.append(starts[1:], len(pair))
    enough = stops - starts >= LEAST_MATCHES
    found = []
    for start, stop in zip(starts[enough].tolist(), stops[enough].tolist(), strict=True):
        a, b = divmod(int(pair[start]) // 2, len(prints))
        part = slice(start, min(stop, start + MOST_MATCHES))
        fit = partial(
            fit_similarity, points[first[part]], points[second[part]], bool(pair[start] % 2)
        )
        found.append(Candidate(a, b, stop - start, fit))
    return _strongest(found)


def _matches(features: Bits, owner: Rows) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """Features of different pictures that share a word and lie near, each pair once."""
    values = np.ascontiguousarray(features).view(">u8").ravel().astype(np.uint64)
    mask = np.uint64((1 << WORD_BITS) - 1)
    keys: list[NDArray[np.int64]] = []
    n = len(values)
    for table in range(WORDS):
        word = (values >> np.uint64(table * WORD_BITS)) & mask
        folded = np.minimum(word, word ^ mask).astype(np.uint32)
        order = np.argsort(folded, kind="stable")
        folded = folded[order]
        common = np.bincount(folded, minlength=1)[folded] > COMMON
        order, folded = order[~common], folded[~common]
        for step in range(1, COMMON):
            here = np.flatnonzero(folded[step:] == folded[:-step])
            if not len(here):
                break
            i, j = order[here], order[here + step]
            bits = np.bitwise_count(values[i] ^ values[j])
            near = (bits <= FEATURE_RADIUS) | (bits >= 64 - FEATURE_RADIUS)
            near &= owner[i] != owner[j]
            i, j = i[near], j[near]
            keys.append(np.minimum(i, j) * n + np.maximum(i, j))
    pairs = np.unique(np.concatenate([np.empty(0, np.int64), *keys]))
    first, second = pairs // max(n, 1), pairs % max(n, 1)
    return first, second, np.bitwise_count(values[first] ^ values[second]) > 32


def _all_matches(features: Bits, owner: Rows) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """As `_matches`, of two pictures, without words and within a wider radius."""
    one, other = np.flatnonzero(owner == 0), np.flatnonzero(owner == 1)
    bits = np.bitwise_count(features[one, None] ^ features[None, other]).sum(axis=2)
    near = (bits <= PAIR_RADIUS) | (bits >= 64 - PAIR_RADIUS)
    first, second = np.nonzero(near)
    order = np.argsort(np.minimum(bits, 64 - bits)[near], kind="stable")
    first, second = first[order], second[order]
    return one[first], other[second], bits[first, second] > 32


def fit_similarity(a: Floats, b: Floats, mirrored: bool) -> Matrix | None:
    """The similarity transform from points `b` to `a` that most matches agree on.

    A match alone fixes a transform, by place, size and angle: each is tried.
    """
    ax, ay, asize, aangle = a.T.astype(np.float64)
    bx, by, bsize, bangle = b.T.astype(np.float64)
    if mirrored:
        bx, bangle = -bx, np.pi - bangle
    scale, turn = asize / bsize, aangle - bangle
    along, across = scale * np.cos(turn), scale * np.sin(turn)
    shift_x = ax - (along * bx - across * by)
    shift_y = ay - (across * bx + along * by)
    x = np.outer(along, bx) - np.outer(across, by) + shift_x[:, None]
    y = np.outer(across, bx) + np.outer(along, by) + shift_y[:, None]
    off = np.hypot(x - ax, y - ay) < _PIXELS
    angle = np.abs((turn[:, None] - turn[None] + np.pi) % (2 * np.pi) - np.pi) < _TURN
    agree = off & angle & (np.abs(np.log(scale[:, None] / scale[None])) < _SCALE)
    best = agree[int(np.argmax(agree.sum(axis=1)))]
    if _distinct(a[best], b[best]) < LEAST_MATCHES:
        return None
    p, q = bx[best] + 1j * by[best], ax[best] + 1j * ay[best]
    centre_p, centre_q = p.mean(), q.mean()
    spread = (np.abs(p - centre_p) ** 2).sum()
    if spread < 1:
        return None
    factor = ((q - centre_q) * np.conj(p - centre_p)).sum() / spread
    shift = centre_q - factor * centre_p
    matrix = np.array(
        [[factor.real, -factor.imag, shift.real], [factor.imag, factor.real, shift.imag], [0, 0, 1]]
    )
    return matrix @ np.diag([-1.0, 1, 1]) if mirrored else matrix


def _distinct(a: Floats, b: Floats) -> int:
    """Matches at different places: one place may carry several features."""
    return min(len(set(map(tuple, np.rint(points[:, :2] / 2).tolist()))) for points in (a, b))


def _strongest(found: list[Candidate]) -> list[Candidate]:
    """Of each picture the pairs with the most support."""
    count: dict[int, int] = {}
    kept = []
    for one in sorted(found, key=lambda one: -one.support):
        taken = count.get(one.first, 0), count.get(one.second, 0)
        if min(taken) < MOST_NEIGHBOURS:
            kept.append(one)
            count[one.first], count[one.second] = taken[0] + 1, taken[1] + 1
    return kept
