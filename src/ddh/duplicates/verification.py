"""Proof that two pictures are the same: one is laid on the other and their pixels are compared.

The common part is drawn from both at the resolution of the coarser one. A tone curve from one to
the other takes out brightness, contrast and colour; the structure that is left is compared window
by window (as in SSIM). Windows without structure prove nothing and are not counted. A duplicate
agrees in nearly all windows, or disagrees in a compact part only (text, a watermark).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh.duplicates.candidates import Matrix, frame_size
from ddh.duplicates.fingerprints import SIDE, Fingerprint, opencv
from ddh.duplicates.results import Kind
from ddh.images import decode

LOADED = 256  # pixels of the longer side of the pictures that are compared
COMPARED = 96  # pixels of the longer side of the common part
WINDOW = 9
INSIDE = 0.9  # of one of the pictures must be common, borders apart
LEAST_SHARE = 0.25  # of the other
STRUCTURE = 40.0  # variance of grey levels from which on a window counts
LEAST_STRUCTURE = 0.04  # of the windows must count
SAME_WINDOW = 0.6
SAME, OVERLAID = 0.94, 0.76  # windows that agree, at least
CLEAN, CLEAN_OVERLAID = 0.945, 0.96  # mean agreement of the windows that agree
UNTOUCHED = 0.985  # windows that agree where nothing was laid on the picture
TONE, COLOUR = 28.0, 14.0  # levels that the means of a window may differ by
REPAINTED = 0.03  # windows with the same structure in another colour, at most
NOISE = 60.0  # variance that compression alone may add to a window
ALIKE = 0.35
CERTAIN = 0.97  # agreement that no finer alignment needs to improve

Grey = NDArray[np.float32]


@dataclass(frozen=True)
class Verdict:
    """Whether two pictures are the same, how one differs, and the agreement of their windows."""

    duplicate: bool
    kind: Kind
    score: float
    similar: bool = True


UNLIKE = Verdict(False, "cropped", 0.0, similar=False)


@dataclass(frozen=True, eq=False)
class Loaded:
    """Pixels of a picture for comparison, its longer side at most `LOADED` pixels."""

    pixels: NDArray[np.uint8]
    scale: float  # from the frame of the features to these pixels


def load(one: Fingerprint) -> Loaded:
    """The pixels that `compare` needs."""
    cv2 = opencv()
    pixels = np.asarray(decode(one.picture.path, at_least=LOADED * 3 // 4))
    longer = max(pixels.shape[:2])
    if longer > LOADED:
        size = tuple(max(1, round(side * LOADED / longer)) for side in pixels.shape[1::-1])
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return Loaded(np.ascontiguousarray(pixels), max(pixels.shape[:2]) / SIDE)


def compare(
    a: Fingerprint, b: Fingerprint, matrix: Matrix, pixels: tuple[Loaded, Loaded]
) -> Verdict:
    """Lay picture `b` on picture `a` by the matrix and compare what they have in common."""
    verdict = _compare(a, b, matrix, pixels)
    if verdict.duplicate and verdict.score >= CERTAIN:
        return verdict
    refined = _compare(a, b, refine(matrix, *pixels), pixels)
    return max(verdict, refined, key=lambda one: (one.duplicate, one.score))


def _compare(
    a: Fingerprint, b: Fingerprint, matrix: Matrix, pixels: tuple[Loaded, Loaded]
) -> Verdict:
    view = _common(a, b, matrix, *pixels)
    if view is None:
        return UNLIKE
    first, second, mask, shares, frames = view
    both_ways = _agreement(first, second, mask), _agreement(second, first, mask)
    agreement = max(both_ways, key=lambda found: found.same * found.clean)
    repainted = min(found.repainted for found in both_ways)  # grey does not tell colours
    score = round(float(agreement.same * agreement.clean), 3)
    contained = max(*shares, *frames) >= INSIDE and min(shares) >= LEAST_SHARE
    overlaid = agreement.same < SAME
    duplicate = bool(
        contained
        and agreement.structured >= LEAST_STRUCTURE
        and agreement.clean >= (CLEAN_OVERLAID if overlaid else CLEAN)
        and agreement.same >= OVERLAID
        and (not overlaid or agreement.compact)
        and repainted < REPAINTED
    )
    if agreement.structured < LEAST_STRUCTURE:
        duplicate = contained and agreement.same >= SAME and _nearly_equal(first, second, mask)
    kind = _kind(a, b, matrix, shares, frames, agreement, (first, second, mask))
    return Verdict(duplicate, kind, score, similar=score >= ALIKE)


# -- laying one picture on the other ---------------------------------------------------------------


def refine(matrix: Matrix, a: Loaded, b: Loaded) -> Matrix:
    """The matrix after a few steps of ECC alignment (Evangelidis and Psarakis, 2008)."""
    cv2 = opencv()
    side = 112 / SIDE
    first, second = (_grey_at(one, side) for one in (a, b))
    index = np.diag([side, side, 1.0])  # from the frame to the index of a pixel, at its centre
    index[:2, 2] = -0.5
    start = np.linalg.inv(index @ matrix @ np.linalg.inv(index))[:2].astype(np.float32)
    steps = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 25, 1e-4)
    seen = cv2.warpAffine(
        np.full(second.shape, 255, np.uint8), start, first.shape[::-1],
        flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP,
    )  # fmt: skip
    try:
        _, found = cv2.findTransformECC(
            first, second, start.copy(), cv2.MOTION_AFFINE, steps, seen, 3
        )
    except cv2.error:  # it did not converge: what the features said stands
        return matrix
    better = np.linalg.inv(index) @ np.linalg.inv(np.vstack([found, [0, 0, 1]])) @ index
    corners = np.array([[0, SIDE, SIDE / 2], [0, SIDE, SIDE / 2], [1, 1, 1.0]])
    moved = np.abs((better - matrix) @ corners).max()
    return better if moved < 0.08 * SIDE else matrix


def _grey_at(one: Loaded, side: float) -> Grey:
    cv2 = opencv()
    size = tuple(max(8, round(n * side / one.scale)) for n in one.pixels.shape[1::-1])
    small = cv2.resize(
        cv2.cvtColor(one.pixels, cv2.COLOR_RGB2GRAY), size, interpolation=cv2.INTER_AREA
    )
    grey: Grey = small.astype(np.float32)
    return grey


def _common(a: Fingerprint, b: Fingerprint, matrix: Matrix, pa: Loaded, pb: Loaded) -> Any:
    """The common part drawn from both (grey and two chroma planes), its mask, and the shares."""
    determinant = abs(float(np.linalg.det(matrix[:2, :2])))
    if not 0.05 < determinant < 20:
        return None
    cv2 = opencv()
    box_a, box_b = _content(a), _content(b)
    inside = _polygon(matrix, box_b)
    area, common = cv2.intersectConvexConvex(_polygon(np.eye(3), box_a), inside)
    if common is None or area < 0.05 * _area(box_a):
        return None
    shares = min(1.0, area / _area(box_a)), min(1.0, area / (_area(box_b) * determinant))
    whole_a, whole_b = ((0, 0, *frame_size(one)) for one in (a, b))
    area, _ = cv2.intersectConvexConvex(_polygon(np.eye(3), whole_a), _polygon(matrix, whole_b))
    frames = min(1.0, area / _area(whole_a)), min(1.0, area / (_area(whole_b) * determinant))
    left, top = common.reshape(-1, 2).min(axis=0)
    right, bottom = common.reshape(-1, 2).max(axis=0)
    longer = max(right - left, bottom - top)
    finest = min(pa.scale, pb.scale / np.sqrt(determinant))  # pixels that the coarser one has
    zoom = min(COMPARED / longer, max(finest, 16 / longer))
    size = (max(8, round((right - left) * zoom)), max(8, round((bottom - top) * zoom)))
    to_frame = np.array([[1 / zoom, 0, left], [0, 1 / zoom, top], [0, 0, 1]])
    first = _draw(pa, to_frame, size)
    second = _draw(pb, np.linalg.inv(matrix) @ to_frame, size)
    mask = np.zeros(size[::-1], np.uint8)
    polygon = (common.reshape(-1, 2) - (left, top)) * zoom - 0.5
    cv2.fillConvexPoly(mask, np.rint(polygon).astype(np.int32), 1)
    mask = cv2.erode(mask, np.ones((3, 3), np.uint8), borderValue=0)
    return first, second, mask.astype(bool), shares, frames


def _area(box: tuple[float, float, float, float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _content(one: Fingerprint) -> tuple[float, float, float, float]:
    width, height = frame_size(one)
    left, top, right, bottom = one.box
    return left * width, top * height, right * width, bottom * height


def _polygon(matrix: Matrix, box: tuple[float, float, float, float]) -> Grey:
    left, top, right, bottom = box
    corners = np.array([[left, right, right, left], [top, top, bottom, bottom], [1, 1, 1, 1]])
    points: Grey = (matrix @ corners)[:2].T.astype(np.float32)
    return points


def _draw(one: Loaded, matrix: Matrix, size: tuple[int, int]) -> Grey:
    """The part of a picture that a matrix from the drawn pixels to its frame names, as YCrCb."""
    cv2 = opencv()
    whole = np.diag([one.scale, one.scale, 1.0]) @ matrix
    step = float(np.sqrt(abs(np.linalg.det(whole[:2, :2]))))  # its pixels for one that is drawn
    pixels = one.pixels
    if step > 1.2:
        pixels = cv2.GaussianBlur(pixels, (0, 0), 0.45 * step)
    offset = np.array([[1, 0, -0.5], [0, 1, -0.5], [0, 0, 1.0]])  # centres of pixels
    whole = offset @ whole @ np.linalg.inv(offset)
    drawn = cv2.warpAffine(
        pixels, whole[:2], size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )  # fmt: skip
    clipped = ((drawn.max(axis=2) > 250) | (drawn.min(axis=2) < 4)).astype(np.float32)
    planes: Grey = np.dstack([cv2.cvtColor(drawn, cv2.COLOR_RGB2YCrCb).astype(np.float32), clipped])
    return planes


# -- comparing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Agreement:
    same: float  # of the windows with structure
    clean: float  # mean agreement of those that agree
    structured: float  # windows with structure, of all
    compact: bool  # whether those that disagree lie together
    repainted: float  # windows with the same structure in another colour, of all
    curve: float  # how far the tone curve is from the identity, in grey levels


def _agreement(first: Grey, second: Grey, mask: NDArray[np.bool_]) -> _Agreement:
    """Compare the second picture with the first after its tone curve and change of colours."""
    cv2 = opencv()
    a, b = first[..., 0], second[..., 0]
    curved = _tone_curve(a, b, mask)
    painted = _painted(first, second, mask)
    weight = cv2.blur(mask.astype(np.float32), (WINDOW, WINDOW), borderType=cv2.BORDER_CONSTANT)
    usable = mask & (weight > 0.6)

    def mean(values: Any) -> Any:
        blurred = cv2.blur(values * mask, (WINDOW, WINDOW), borderType=cv2.BORDER_CONSTANT)
        return blurred / np.maximum(weight, 1e-6)

    mean_a, mean_b = mean(curved), mean(b)
    var_a, var_b = mean(curved**2) - mean_a**2, mean(b**2) - mean_b**2
    both = mean(curved * b) - mean_a * mean_b
    structure = np.maximum(var_a, var_b)
    agreement = (2 * both + NOISE) / (var_a + var_b + NOISE)
    repainted = float((usable & painted & (agreement > 0.85)).sum() / max(int(usable.sum()), 1))
    other = np.abs(mean_a - mean_b) > TONE
    agreement = np.where(other, 0, agreement)
    counted = usable & ((structure > STRUCTURE) | other)
    total = int(counted.sum())
    if not total:
        return _Agreement(1.0, 1.0, 0.0, True, 0.0, 0.0)
    same = counted & (agreement > SAME_WINDOW)
    clean = float(agreement[same].mean()) if same.any() else 0.0
    different = counted & ~same
    curve = float(np.abs(curved - a)[mask].mean())
    share = total / max(int(usable.sum()), 1)
    compact = _is_compact(different, usable)
    return _Agreement(same.sum() / total, clean, share, compact, repainted, curve)


def _painted(first: Grey, second: Grey, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where the chroma differs after one linear change of colours for the whole picture.

    A thing that was painted in another colour differs; clipped pixels say nothing.
    """
    cv2 = opencv()
    clear = mask & (first[..., 3] < 0.5) & (second[..., 3] < 0.5)
    if clear.sum() < 100:
        return np.zeros(mask.shape, bool)
    known = np.column_stack([first[clear][:, :3], np.ones(int(clear.sum()), np.float32)])
    wanted = second[clear][:, 1:3]
    keep = np.ones(len(known), bool)
    for _ in range(2):
        change = np.linalg.lstsq(known[keep], wanted[keep], rcond=None)[0]
        away = np.abs(known @ change - wanted).max(axis=1)
        keep = away <= max(float(np.percentile(away, 75)), 1.0)
    off = np.zeros((*mask.shape, 2), np.float32)
    off[clear] = wanted - known @ change
    share = cv2.blur(clear.astype(np.float32), (WINDOW, WINDOW))
    means = np.abs(cv2.blur(off, (WINDOW, WINDOW))).max(axis=2)
    painted: NDArray[np.bool_] = (share > 0.5) & (means > COLOUR * share)
    return painted


def _tone_curve(a: Grey, b: Grey, mask: NDArray[np.bool_]) -> Grey:
    """Picture `a` with each of its grey levels replaced by what `b` mostly shows there."""
    levels = (a[mask] / 8).astype(np.int64)
    values = b[mask]
    order = np.argsort(levels, kind="stable")
    counts = np.bincount(levels, minlength=33)
    parts = np.split(values[order], np.cumsum(counts)[:-1])
    known = [i for i, part in enumerate(parts) if len(part) >= 12]
    if len(known) < 2:
        return a + np.float32(np.median(values) - np.median(a[mask]))
    middles = np.array([float(np.median(parts[i])) for i in known])
    weights = np.sqrt(counts[known])
    line = np.polyfit(np.array(known) * 8 + 4.0, middles, 1, w=weights)
    rising = np.maximum.accumulate(middles)
    falling = np.minimum.accumulate(middles[::-1])[::-1]
    curve = (rising + falling) / 2  # the nearest rising curve, roughly
    if line[0] < 0.15:
        curve = np.full_like(curve, np.median(values))
    curved: Grey = np.interp(a, np.array(known) * 8 + 4.0, curve).astype(np.float32)
    beyond = line[0] * np.minimum(a - (known[0] * 8 + 4), 0)
    beyond += line[0] * np.maximum(a - (known[-1] * 8 + 4), 0)
    curved += beyond.astype(np.float32)
    return curved


def _is_compact(different: NDArray[np.bool_], usable: NDArray[np.bool_]) -> bool:
    """Whether what differs fills the boxes of at most two parts, which are not most of it all."""
    cv2 = opencv()
    if not different.any():
        return True
    closed = cv2.morphologyEx(
        different.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((9, 9), np.uint8)
    )
    count, _, stats, _ = cv2.connectedComponentsWithStats(closed)
    parts = sorted(stats[1:count].tolist(), key=lambda part: -part[4])[:2]
    covered = sum(part[4] for part in parts) / closed.sum()
    boxes = sum(part[2] * part[3] for part in parts)
    return bool(covered > 0.8 and boxes < 0.4 * usable.sum())


def _nearly_equal(a: Grey, b: Grey, mask: NDArray[np.bool_]) -> bool:
    """For pictures with hardly any structure: all planes equal but for noise."""
    off = np.abs(a - b)[..., :3][mask]
    return bool(len(off) > 0 and off.mean() < 3 and np.percentile(off, 99) < 16)


def _kind(
    a: Fingerprint, b: Fingerprint, matrix: Matrix, shares: tuple[float, float],
    frames: tuple[float, float], agreement: _Agreement, view: tuple[Grey, Grey, NDArray[np.bool_]],
) -> Kind:  # fmt: skip
    """How the second picture differs from the first: what weighs most."""
    first, second, mask = view
    if agreement.same < UNTOUCHED or (min(frames) < 0.97 and min(shares) > 0.95):  # or a border
        return "overlaid"
    if min(frames) < 0.97:
        return "cropped"
    if np.linalg.det(matrix[:2, :2]) < 0:
        return "mirrored"
    if abs(np.degrees(np.arctan2(matrix[1, 0], matrix[0, 0]))) > 10:
        return "turned"
    off = opencv().blur(first[..., 1:3] - second[..., 1:3], (WINDOW, WINDOW))
    chroma = np.abs(off)[mask]
    if agreement.curve > 5 or (chroma.size and chroma.mean() > 5):
        return "adjusted"
    sizes = {(one.picture.width, one.picture.height) for one in (a, b)}
    return "recompressed" if len(sizes) == 1 else "resized"
