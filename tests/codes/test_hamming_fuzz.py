"""Random calls of the compiled search against the oracle, and damaged ones that must not crash.

`make sanitize` runs this with a build that watches memory: bytes and bytearrays, unlike small
arrays, are allocated one by one there. DDH_FUZZ sets the number of calls per instruction set.
"""

import os
import random

import numpy as np
import pytest
from native_check import distances

hamming = pytest.importorskip("ddh.codes._hamming")
CASES = int(os.environ.get("DDH_FUZZ", "1000"))
CALLS = 5  # at least, whose answers are compared per draw
WIDTHS = [*range(1, 18), 24, 31, 32, 33, 40, 64, 512]


def draw(rng: random.Random):
    """Queries and rows with many ties, complements and copies; few cases are large."""
    width, large = rng.choice(WIDTHS[:17] if rng.random() < 0.7 else WIDTHS), rng.random() < 0.03
    n = rng.randint(1, 600) if large else rng.choice([1, 2, 31, 32, 33, 63, 64, 65])
    count = rng.randint(1, 140) if large else rng.randint(1, 9)
    numbers = np.random.default_rng(rng.getrandbits(32))
    centres = numbers.integers(0, 256, (rng.choice([1, 3]), width), dtype=np.uint8)
    flips = rng.choice([0.0, 0.02, 0.5])

    def near(size: int) -> np.ndarray:
        noise = np.packbits(numbers.random((size, 8 * width)) < flips, axis=1)
        sides = numbers.integers(0, 2, (size, 1), dtype=np.uint8) * np.uint8(255)
        return centres[numbers.integers(len(centres), size=size)] ^ noise ^ sides

    return near(count), near(n)


def read(found: tuple[bytes, bytes, bytes]):
    counts, far, rows = (np.frombuffer(part, kind) for part, kind in zip(found, "qiq", strict=True))
    return counts, far, rows


def check_scans(variant: str, rng: random.Random, queries, rows, true, order) -> None:
    width, k = rows.shape[1], rng.randint(1, len(rows))
    given = bytes(queries), bytes(rows), width
    out = bytearray(4 * k * len(queries)), bytearray(8 * k * len(queries))
    way = rng.choice([0, 1, 2])
    hamming.top_k(variant, way, *given, k, *out)
    np.testing.assert_array_equal(np.frombuffer(out[1], np.int64), order[:, :k].ravel())
    radius = rng.randint(0, 8 * width)
    counts, far, _ = read(hamming.within(variant, way, *given, radius))
    inside = np.take_along_axis(true, order, 1)
    np.testing.assert_array_equal(counts, (true <= radius).sum(1))
    np.testing.assert_array_equal(far, inside[inside <= radius])
    matrix = bytearray(2 * true.size)
    hamming.matrix(variant, *given, matrix)
    np.testing.assert_array_equal(np.frombuffer(matrix, np.uint16), true.ravel())


def substring(codes: np.ndarray, start: int, bits: int) -> np.ndarray:
    cut = np.unpackbits(codes, axis=1)[:, start : start + bits].astype(np.uint32)
    return (cut << np.arange(bits - 1, -1, -1, dtype=np.uint32)).sum(1, dtype=np.uint32)


def check_buckets(variant: str, rng: random.Random, queries, rows, true, order) -> None:
    """Whole bytes as substrings; every one of them, so that the search is exact."""
    width, n, damage = rows.shape[1], len(rows), rng.random() < 0.5
    if width > 16:
        return
    copied = width <= 8 and rng.random() < 0.5
    padded = next(size for size in (2, 4, 8, width) if size >= width) if copied else width
    tables, keys = [], []
    for byte in range(width):
        offsets, ids = bytearray(4 * 257), bytearray(4 * n)
        ordered = bytearray(n * padded if copied else 0)
        hamming.sort_into_buckets(
            bytes(substring(rows, 8 * byte, 8)), offsets, ids, bytes(rows), ordered, width
        )
        mask = bytearray(padded)
        mask[byte] = 255
        tables.append((8, mask, offsets, ids, ordered))
        keys.append(substring(queries, 8 * byte, 8))
    k = rng.choice([0, rng.randint(1, n)])
    radius, done = rng.randint(0, 8 * width), bytearray(len(queries))
    all_keys = bytearray(np.stack(keys, 1).tobytes())
    if damage:
        victim = rng.choice([all_keys, rng.choice(tables)[rng.choice([2, 3])]])
        for _ in range(rng.choice([1, 4, 64])):
            victim[rng.randrange(len(victim))] = rng.getrandbits(8)
    try:
        found = hamming.index_search(
            variant, bytes(queries), bytes(rows), width, bytes(all_keys), tables, k, radius, 0.0,
            0.0, done,
        )  # fmt: skip
    except ValueError:
        assert damage
        return
    if not damage:
        near = np.take_along_axis(true, order, 1)
        wanted = near[:, :k] if k else near
        keep = wanted <= (8 * width if k else radius)
        assert all(done)
        np.testing.assert_array_equal(read(found)[1], wanted[keep])


def check_lists(variant: str, rng: random.Random, queries, rows, true, order) -> None:
    n, lists, damage = len(rows), rng.randint(1, 9), rng.random() < 0.5
    cuts = sorted(rng.randint(0, n) for _ in range(lists - 1))
    offsets = bytearray(np.array([0, *cuts, n]).tobytes())
    probes = [rng.sample(range(lists), lists) for _ in queries]
    given = bytearray(np.array(probes, np.uint32).tobytes())
    if damage:
        victim = rng.choice([offsets, given])
        victim[rng.randrange(len(victim))] = rng.getrandbits(8)
    k = rng.randint(1, n)
    try:
        found = hamming.list_search(
            variant, bytes(queries), bytes(rows), rows.shape[1], bytes(given), bytes(offsets),
            np.arange(n, dtype=np.uint32).tobytes(), k,
        )  # fmt: skip
    except ValueError:
        assert damage
        return
    if not damage:
        np.testing.assert_array_equal(read(found)[2], order[:, :k].ravel())


def check_ranking(variant: str, rng: random.Random, queries, rows, true, order) -> None:
    width, k = rows.shape[1], rng.randint(1, len(rows))
    values = 2.0 * np.unpackbits(queries, axis=1) - 1.0
    out = bytearray(8 * k * len(queries)), bytearray(8 * k * len(queries))
    hamming.rank(variant, values.tobytes(), bytes(rows), width, k, *out)
    np.testing.assert_array_equal(np.frombuffer(out[1], np.int64), order[:, :k].ravel())


@pytest.mark.timeout(300 + CASES // 10)
@pytest.mark.parametrize("variant", hamming.variants())
def test_random_calls(variant):
    rng = random.Random(21)
    for _ in range(-(-CASES // CALLS)):
        queries, rows = draw(rng)
        true = distances(queries, rows)
        order = np.argsort(true, axis=1, kind="stable")
        for check in (check_scans, check_ranking, check_buckets, check_lists):
            check(variant, rng, queries, rows, true, order)


@pytest.mark.parametrize("width", [1, 3, 8, 9, 16, 32])
@pytest.mark.parametrize("variant", hamming.variants())
def test_ranking_by_tables(variant, width):
    """Rows and queries enough that they share tables, which end where the memory does."""
    numbers = np.random.default_rng(width)
    rows = numbers.integers(0, 256, (32_768 + 5, width), dtype=np.uint8)
    queries = numbers.integers(0, 256, (70, width), dtype=np.uint8)
    order = np.argsort(distances(queries, rows), axis=1, kind="stable")[:, :3]
    values = 2.0 * np.unpackbits(queries, axis=1) - 1.0
    out = bytearray(8 * order.size), bytearray(8 * order.size)
    hamming.rank(variant, values.tobytes(), bytes(rows), width, 3, *out)
    np.testing.assert_array_equal(np.frombuffer(out[1], np.int64), order.ravel())
