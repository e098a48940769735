"""Proof that two pictures are the same: one is laid on the other and their pixels are compared.

The common part is drawn from both at the resolution of the coarser one. A tone curve from one to
the other takes out brightness, contrast and colour; the structure that is left is compared window
by window (as in SSIM). Windows without structure prove nothing and are not counted. A duplicate
differs nowhere by more than compression does, or only by text or a watermark on one of the two.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh.duplicates.candidates import Matrix, frame_size
from ddh.duplicates.fingerprints import SIDE, Fingerprint, opencv
from ddh.duplicates.results import Kind, Picture
from ddh.images import decode
from ddh.images.decoding import reduction

LOADED = 256  # pixels of the longer side of the pictures that are compared
DECODED = LOADED * 3 // 4  # pixels of the shorter side that a large JPEG is decoded to, at least
COMPARED, LEAST_COMPARED = 160, 96  # pixels of the longer side of the common part
FINE = 192  # the same where it may carry text
WINDOW = 9
INSIDE = 0.9  # of one of the pictures must be common, borders apart
LEAST_SHARE = 0.25  # of the other
STRUCTURE = 40.0  # variance of grey levels from which on a window counts
LEAST_STRUCTURE = 0.04  # of the windows must count
SAME_WINDOW = 0.6
SAME, OVERLAID = 0.94, 0.7  # windows that agree, at least
CLEAN, CLEAN_LARGE, CLEAN_OVERLAID = 0.94, 0.95, 0.97  # agreement where nothing was changed
TONE, COLOUR = 28.0, 14.0  # levels that the means of a window may differ by
REPAINTED = 0.02  # windows with the same structure in another colour, at most
NOISE = 60.0  # variance that compression alone may add to a window
CHANGED = 150.0  # variance of a difference that compression alone does not make
UNTOUCHED = 0.001  # windows that may differ so where nothing was laid on a picture
STROKE, SOLID, MOST_STROKES = 24.0, 0.25, 0.2  # of text: levels; shares of thick parts, of all
VEIL = 0.6  # opacity of a watermark, at most
ADDED, ADDED_VEIL = 0.68, 0.6  # how clearly what differs was added to one picture
ADJUSTED, CLIPPED = 5.0, 0.25  # levels of another brightness; clipped pixels of a window
ALIKE = 0.35
NEARLY = 0.75  # agreement that a finer alignment may improve
ALIGNED = 112, 224  # pixels of the longer side at which pictures are aligned

Grey = NDArray[np.float32]
Planes = NDArray[np.uint8]  # grey, two of chroma, and where a pixel is clipped


@dataclass(frozen=True)
class Verdict:
    """Whether two pictures are the same, how one differs, and the agreement of their windows."""

    duplicate: bool
    kind: Kind
    score: float
    similar: bool = True
    is_cleaner: bool = False  # whether text or a watermark lies on the first, not on the second
    sharpness: float = 1.0  # of the second, where that of the first is 1; text counts for none


UNLIKE = Verdict(False, "cropped", 0.0, similar=False)


@dataclass(frozen=True, eq=False)
class Loaded:
    """Pixels of a picture for comparison, its longer side at most `LOADED` pixels."""

    pixels: NDArray[np.uint8]
    scale: float  # from the frame of the features to these pixels
    sharpness: float


def load(one: Fingerprint) -> Loaded:
    """The pixels that `compare` needs."""
    cv2 = opencv()
    pixels = np.asarray(decode(one.picture.path, at_least=DECODED))
    sharpness = _sharpness(pixels, one.picture)
    longer = max(pixels.shape[:2])
    if longer > LOADED:
        size = tuple(max(1, round(side * LOADED / longer)) for side in pixels.shape[1::-1])
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return Loaded(np.ascontiguousarray(pixels), max(pixels.shape[:2]) / SIDE, sharpness)


def _sharpness(pixels: NDArray[np.uint8], picture: Picture) -> float:
    """Fine detail relative to coarser detail, which contrast does not change.

    Measured at the scale that a JPEG of this size is decoded at, without the corners that a turn
    leaves.
    """
    cv2 = opencv()
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    scale = reduction((picture.width, picture.height), DECODED)
    size = math.ceil(picture.width / scale), math.ceil(picture.height / scale)
    if grey.shape[::-1] != size:
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    height, width = grey.shape
    grey = grey[height // 16 : height - height // 16, width // 16 : width - width // 16]
    fine, coarse = (cv2.GaussianBlur(grey, (0, 0), sigma) for sigma in (1, 3))
    noise = 0.25 * math.sqrt(grey.size)
    return float((cv2.norm(grey, fine) + noise) / (cv2.norm(fine, coarse) + noise))


def compare(
    a: Fingerprint, b: Fingerprint, matrix: Matrix, pixels: tuple[Loaded, Loaded]
) -> Verdict:
    """Lay picture `b` on picture `a` by the matrix and compare what they have in common."""
    verdict = _compare(a, b, matrix, pixels)
    if verdict.duplicate:
        return verdict
    for side in ALIGNED:
        matrix = refine(matrix, *pixels, side)
        refined = _compare(a, b, matrix, pixels)
        verdict = max(verdict, refined, key=lambda one: (one.duplicate, one.score))
        if verdict.duplicate or verdict.score < NEARLY:
            break
    return verdict


def _compare(
    a: Fingerprint, b: Fingerprint, matrix: Matrix, pixels: tuple[Loaded, Loaded]
) -> Verdict:
    view = _common(a, b, matrix, *pixels)
    if view is None:
        return UNLIKE
    first, second, mask, shares, frames, detail = view
    agreement = _agreement(first, second, mask)
    repainted = agreement.repainted
    if not agreement.is_enough:  # a tone curve may lose levels, and grey does not tell colours
        back = _agreement(second, first, mask)
        repainted = min(repainted, back.repainted)
        agreement = max(agreement, back, key=lambda found: found.same * found.clean)
    score = round(float(agreement.same * agreement.clean), 3)
    contained = max(*shares, *frames) >= INSIDE and min(shares) >= LEAST_SHARE
    cleaner = 0
    if agreement.changed <= UNTOUCHED:
        same = agreement.same >= SAME and agreement.clean >= CLEAN + detail * (CLEAN_LARGE - CLEAN)
    else:
        same = agreement.same >= OVERLAID and agreement.clean >= CLEAN_OVERLAID
        if same and contained:
            finer = _common(a, b, matrix, *pixels, fine=True)
            cleaner = _overlay(*finer[:3])
            same = cleaner != 0
    duplicate = bool(
        contained and same and agreement.structured >= LEAST_STRUCTURE and repainted < REPAINTED
    )
    if agreement.structured < LEAST_STRUCTURE:
        duplicate = contained and agreement.same >= SAME and _nearly_equal(first, second, mask)
    view = first, second, mask
    kind = _kind(a, b, matrix, shares, frames, agreement, view) if duplicate else UNLIKE.kind
    sharpness = 1.0 if kind == "overlaid" else pixels[1].sharpness / pixels[0].sharpness
    return Verdict(duplicate, kind, score, score >= ALIKE, cleaner > 0, sharpness)


# -- laying one picture on the other ---------------------------------------------------------------


def refine(matrix: Matrix, a: Loaded, b: Loaded, pixels: int = ALIGNED[0]) -> Matrix:
    """The matrix after a few steps of ECC alignment (Evangelidis and Psarakis, 2008)."""
    cv2 = opencv()
    side = pixels / SIDE
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


def _common(
    a: Fingerprint, b: Fingerprint, matrix: Matrix, pa: Loaded, pb: Loaded, fine: bool = False
) -> Any:
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
    calm = max(finest / 1.5, min(finest, LEAST_COMPARED / longer))  # noise of compression fades
    zoom = min(COMPARED / longer, max(calm, 16 / longer))
    if fine:
        zoom = min(FINE / longer, max(finest, 16 / longer))
    size = (max(8, round((right - left) * zoom)), max(8, round((bottom - top) * zoom)))
    to_frame = np.array([[1 / zoom, 0, left], [0, 1 / zoom, top], [0, 0, 1]])
    first = _draw(pa, to_frame, size)
    second = _draw(pb, np.linalg.inv(matrix) @ to_frame, size)
    mask = np.zeros(size[::-1], np.uint8)
    polygon = (common.reshape(-1, 2) - (left, top)) * zoom - 0.5
    cv2.fillConvexPoly(mask, np.rint(polygon).astype(np.int32), 1)
    mask = cv2.erode(mask, np.ones((3, 3), np.uint8), borderValue=0)
    finest = min(_density(a, np.eye(3)), _density(b, matrix))
    detail = float(np.clip(np.log2(max(finest / zoom, 1e-3)), 0, 1))  # beyond what is drawn
    return first, second, mask.astype(bool), shares, frames, detail


def _density(one: Fingerprint, matrix: Matrix) -> float:
    """Pixels of a file for a unit of the frame that it lies on."""
    longer = max(one.picture.width, one.picture.height)
    return longer / SIDE / float(np.sqrt(abs(np.linalg.det(matrix[:2, :2]))))


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


def _draw(one: Loaded, matrix: Matrix, size: tuple[int, int]) -> Planes:
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
    red, green, blue = cv2.split(drawn)
    clipped = (cv2.max(cv2.max(red, green), blue) > 250) | (cv2.min(cv2.min(red, green), blue) < 4)
    return np.stack([*cv2.split(cv2.cvtColor(drawn, cv2.COLOR_RGB2YCrCb)), clipped.view(np.uint8)])


# -- comparing -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Agreement:
    same: float  # of the windows with structure
    clean: float  # mean agreement of those that agree
    structured: float  # windows with structure, of all
    repainted: float  # windows with the same structure in another colour, of all
    curve: float  # how far the tone curve is from the identity, in grey levels
    changed: float  # windows that differ by more than compression, of all
    region: NDArray[np.bool_]  # those windows

    @property
    def is_enough(self) -> bool:
        """Whether a second look cannot change the verdict."""
        same = self.same >= SAME and self.clean >= CLEAN_LARGE
        return same and self.changed <= UNTOUCHED and self.repainted < REPAINTED


def _agreement(
    first: Planes, second: Planes, mask: NDArray[np.bool_], with_colours: bool = True
) -> _Agreement:
    """Compare the second picture with the first after its tone curve and change of colours."""
    cv2 = opencv()
    b = second[0].astype(np.float32)
    curved = _tone_curve(first[0], second[0], mask)
    moved = cv2.absdiff(curved, first[0].astype(np.float32))
    curve = float(cv2.mean(moved, mask.view(np.uint8))[0])
    inside = mask.astype(np.float32)
    weight = _blurred(inside)
    usable = mask & (weight > 0.6)
    centre = np.float32(128)  # differences of squares lose fewer digits
    x, y = (curved - centre) * inside, (b - centre) * inside
    scale = 1 / np.maximum(weight, 1e-6)
    mean_a, mean_b = _blurred(x) * scale, _blurred(y) * scale
    var_a = _blurred(x * x) * scale - mean_a * mean_a
    var_b = _blurred(y * y) * scale - mean_b * mean_b
    both = _blurred(x * y) * scale - mean_a * mean_b
    structure = np.maximum(var_a, var_b)
    agreement = (2 * both + NOISE) / (var_a + var_b + NOISE)
    pixels = max(int(np.count_nonzero(usable)), 1)
    repainted = 0.0
    if with_colours:
        painted = usable & _painted(first, second, mask)
        repainted = np.count_nonzero(painted & (agreement > SAME_WINDOW)) / pixels
    other = np.abs(mean_a - mean_b) > TONE
    agreement[other] = 0
    counted = usable & ((structure > STRUCTURE) | other)
    total = int(np.count_nonzero(counted))
    region = usable & (agreement < SAME_WINDOW) & (other | (var_a + var_b - 2 * both > CHANGED))
    if curve > ADJUSTED:  # what is brighter has lost the structure of what is clipped
        region &= _blurred((first[3] | second[3]).astype(np.float32)) < CLIPPED
    if not total:
        return _Agreement(1.0, 1.0, 0.0, 0.0, 0.0, 0.0, region)
    same = counted & (agreement > SAME_WINDOW)
    # Weighed by structure: noise spoils faint windows, a wrong place the strong ones.
    far = same & ~_grown(region)
    far = far if far.any() else same
    noise = NOISE * np.count_nonzero(far)
    shared = 2 * float(np.sum(both, where=far, dtype=np.float64)) + noise
    clean = shared / max(float(np.sum(var_a + var_b, where=far, dtype=np.float64)) + noise, 1.0)
    changed = np.count_nonzero(region) / pixels
    share = total / pixels
    found = np.count_nonzero(same) / total
    return _Agreement(found, clean, share, repainted, curve, changed, region)


def _grown(region: NDArray[np.bool_]) -> NDArray[np.bool_]:
    kernel = np.ones((WINDOW, WINDOW), np.uint8)
    grown: NDArray[np.bool_] = opencv().dilate(region.astype(np.uint8), kernel) > 0
    return grown


def _overlay(first: Planes, second: Planes, mask: NDArray[np.bool_]) -> int:
    """Which picture text or a watermark was added to: 1 the first, -1 the second, 0 neither.

    Strokes are thin, and between and below them the structure of the plain picture is still
    there. A thing that moved or was replaced is solid, and has a structure of its own in both.
    """
    cv2 = opencv()
    near = _grown(_agreement(first, second, mask, with_colours=False).region) & mask
    plain = _tone_curve(first[0], second[0], mask & ~near)  # the levels of text are its own
    other = second[0].astype(np.float32)
    strokes = near & (cv2.absdiff(plain, other) > STROKE)
    side = round(0.042 * max(mask.shape)) | 1
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    solid = cv2.morphologyEx(strokes.astype(np.uint8), cv2.MORPH_OPEN, kernel).sum()
    if solid > SOLID * strokes.sum() or strokes.sum() > MOST_STROKES * mask.sum():
        return 0
    slopes = [
        np.stack([cv2.Sobel(one, cv2.CV_32F, x, 1 - x, ksize=1)[near] for x in (0, 1)])
        for one in (plain, other)
    ]
    energy = [float((slope**2).sum()) + 1 for slope in slopes]
    survives = float((slopes[0] * slopes[1]).sum()) / min(energy)
    added = np.log2(max(energy) / min(energy))
    below, above = (plain, other) if energy[0] < energy[1] else (other, plain)
    i, j = below[strokes], above[strokes]
    opacity = np.where(j > i, (j - i) / (256 - i), (i - j) / (i + 1))
    is_veil = opacity.size > 0 and np.percentile(opacity, 95) < VEIL
    if survives + added / 4 < (ADDED_VEIL if is_veil else ADDED):
        return 0
    return 1 if above is plain else -1


def _blurred(values: Grey) -> Grey:
    blurred: Grey = opencv().blur(values, (WINDOW, WINDOW), borderType=opencv().BORDER_CONSTANT)
    return blurred


def _painted(first: Planes, second: Planes, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where the chroma differs after one linear change of colours for the whole picture.

    A thing that was painted in another colour differs; clipped pixels say nothing.
    """
    cv2 = opencv()
    clear = mask & (first[3] == 0) & (second[3] == 0)
    part = np.flatnonzero(clear[::2, ::2])  # enough to fit the change
    if len(part) < 40:
        return np.zeros(mask.shape, bool)
    centre = np.float32(128)
    known, wanted = (
        planes[:, ::2, ::2].reshape(4, -1)[:, part] - centre for planes in (first, second)
    )
    known[3], wanted = 1, wanted[1:3]
    x, y = known, wanted
    for _ in range(2):
        square = x @ x.T + np.eye(4, dtype=np.float32)  # a grey picture has no chroma to fit
        change = np.linalg.solve(square, x @ y.T)
        off = np.abs(change.T @ known - wanted).max(axis=0)
        most = 3 * len(off) // 4
        keep = off <= max(float(np.partition(off, most)[most]), 1.0)
        x, y = known[:, keep], wanted[:, keep]
    inside = clear.astype(np.float32)
    share = cv2.blur(inside, (WINDOW, WINDOW))
    expected = change[:3].T @ (first[:3].reshape(3, -1) - centre) + (change[3][:, None] + centre)
    away = (second[1:3] - expected.reshape(2, *mask.shape)) * inside
    painted = np.zeros(mask.shape, bool)
    for plane in away:
        painted |= np.abs(cv2.blur(plane, (WINDOW, WINDOW))) > COLOUR * share
    painted &= share > 0.5
    return painted


def _tone_curve(a: NDArray[np.uint8], b: NDArray[np.uint8], mask: NDArray[np.bool_]) -> Grey:
    """Picture `a` with each of its grey levels replaced by what `b` mostly shows there."""
    pairs = (a[mask] >> 3).astype(np.int32) << 8 | b[mask]
    table = np.bincount(pairs, minlength=32 * 256).reshape(32, 256)
    counts = table.sum(axis=1)
    known = np.flatnonzero(counts >= 12)
    if len(known) < 2:
        shift = np.median(b[mask]) - np.median(a[mask]) if mask.any() else 0
        return a + np.float32(shift)
    below = np.cumsum(table[known], axis=1)
    middles = np.argmax(2 * below >= counts[known, None], axis=1).astype(np.float64)
    slope = _slope(known * 8 + 3.5, middles, counts[known])
    rising = np.maximum.accumulate(middles)
    falling = np.minimum.accumulate(middles[::-1])[::-1]
    curve = (rising + falling) / 2  # the nearest rising curve, roughly
    if slope < 0.15:
        curve = np.full_like(curve, np.median(b[mask]))
    levels = np.arange(256)
    values = np.interp(levels, known * 8 + 3.5, curve)
    values += slope * np.minimum(levels - (known[0] * 8 + 3.5), 0)
    values += slope * np.maximum(levels - (known[-1] * 8 + 3.5), 0)
    curved: Grey = opencv().LUT(a, values.astype(np.float32))
    return curved


def _slope(x: NDArray[Any], y: NDArray[Any], weights: NDArray[np.int64]) -> float:
    """Of the straight line through weighted points."""
    away = x - np.average(x, weights=weights)
    return float((weights * away) @ (y - np.average(y, weights=weights)) / (weights @ away**2))


def _nearly_equal(a: Planes, b: Planes, mask: NDArray[np.bool_]) -> bool:
    """For pictures with hardly any structure: all planes equal but for noise."""
    off = opencv().absdiff(a[:3], b[:3])[:, mask]
    return bool(off.size > 0 and off.mean() < 3 and np.percentile(off, 99) < 16)


def _kind(
    a: Fingerprint, b: Fingerprint, matrix: Matrix, shares: tuple[float, float],
    frames: tuple[float, float], agreement: _Agreement,
    view: tuple[Planes, Planes, NDArray[np.bool_]],
) -> Kind:  # fmt: skip
    """How the second picture differs from the first: what weighs most."""
    first, second, mask = view
    if agreement.changed > UNTOUCHED or (min(frames) < 0.97 and min(shares) > 0.95):  # or a border
        return "overlaid"
    if min(frames) < 0.97:
        return "cropped"
    if np.linalg.det(matrix[:2, :2]) < 0:
        return "mirrored"
    if abs(np.degrees(np.arctan2(matrix[1, 0], matrix[0, 0]))) > 10:
        return "turned"
    off = first[1:3].astype(np.float32) - second[1:3]
    chroma = [np.abs(opencv().blur(plane, (WINDOW, WINDOW)))[mask].mean() for plane in off]
    if agreement.curve > ADJUSTED or np.mean(chroma) > ADJUSTED:
        return "adjusted"
    sizes = {(one.picture.width, one.picture.height) for one in (a, b)}
    return "recompressed" if len(sizes) == 1 else "resized"
