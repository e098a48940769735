"""Random and damaged calls of the compiled loops; see tests/codes/test_hamming_fuzz.py."""

import os
import random
from contextlib import suppress

import numpy as np
import pytest

loops = pytest.importorskip("ddh.neighbours._overlap")
CASES = int(os.environ.get("DDH_FUZZ", "1000"))


def random_lists(rng: random.Random, images: int) -> list[list[int]]:
    return [sorted(rng.sample(range(images), rng.randint(0, images))) for _ in range(images)]


def packed(rows: list[list[int]]) -> tuple[bytearray, bytearray]:
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    items = np.array([item for row in rows for item in row], np.int32)
    return bytearray(starts.tobytes()), bytearray(items.tobytes())


def transposed(rows: list[list[int]]) -> list[list[int]]:
    return [[i for i, row in enumerate(rows) if j in row] for j in range(len(rows))]


def check_lists(rng: random.Random, damage: bool) -> None:
    images = rng.randint(1, rng.choice([4, 8, 40]))
    rows = random_lists(rng, images)
    holders = transposed(rows)
    there, back = packed(rows), packed(holders)
    image = bytearray(np.arange(images, dtype=np.int32).tobytes())
    k2 = rng.randint(1, images)
    if damage:
        victim = rng.choice([part for part in (*there, *back, image) if part])
        for _ in range(rng.choice([1, 8])):
            victim[rng.randrange(len(victim))] = rng.getrandbits(8)
    ends = bytearray(8 * images), bytearray(8 * images)
    chosen, _ = loops.top_overlaps(*there, *back, image, 0, images, k2, 1, *ends)
    if not damage:
        overlaps = [[len({*a} & {*b}) for b in rows] for a in rows]
        wanted = [sorted(range(images), key=lambda j, r=row: (-r[j], j))[:k2] for row in overlaps]
        kept = [{j for j in top if row[j]} for top, row in zip(wanted, overlaps, strict=True)]
        cuts = np.frombuffer(ends[0], np.int64)[:-1]
        assert [
            {*part.tolist()} for part in np.split(np.frombuffer(chosen, np.int32), cuts)
        ] == kept
    union = np.frombuffer(loops.union(*there, *there, ends[0]), np.int32)
    if not damage:
        wanted = [{j for i in row for j in rows[i]} for row in rows]
        parts = np.split(union, np.frombuffer(ends[0], np.int64)[:-1])
        assert [{*part.tolist()} for part in parts] == wanted
    lengths, starts = bytearray(8 * images), np.zeros(images + 1, np.int64)
    loops.symmetrize(*there, *back, image, 0, images, lengths, starts, bytearray())
    np.cumsum(np.frombuffer(lengths, np.int64), out=starts[1:])
    out = bytearray(4 * int(starts[-1]))
    loops.symmetrize(*there, *back, image, 0, images, lengths, starts, out)
    if not damage:
        wanted = [
            sorted(({*a} | {*b}) - {i}) for i, (a, b) in enumerate(zip(rows, holders, strict=True))
        ]
        assert np.frombuffer(out, np.int32).tolist() == [j for row in wanted for j in row]
    new = bytearray(4 * images), bytearray(len(there[0])), bytearray(len(there[1]))
    loops.renumber(*there, *new)
    if not damage:
        assert sorted(np.frombuffer(new[0], np.int32)) == list(range(images))


def check_candidates(rng: random.Random, damage: bool) -> None:
    images, k = rng.randint(1, rng.choice([8, 20, 60])), rng.randint(1, 4)
    capacity = rng.randint(max(4, 2 * k), 20)
    numbers = np.random.default_rng(rng.getrandbits(32))
    tile = numbers.integers(-3, 4, (images, images)).astype(np.float32)
    if damage:
        tile.flat[rng.randrange(tile.size)] = rng.choice([np.nan, np.inf, -np.inf])
    state = [bytearray(np.full(images, -np.inf, np.float32).tobytes()), bytearray(4 * images)]
    state += [bytearray(4 * images * capacity), bytearray(4 * images * capacity)]
    shape, part = [images, images, 0, 0], [0, images]
    if damage:
        for numbers in (shape, part):
            numbers[rng.randrange(len(numbers))] += rng.choice([-1, 0, 1])
    by_row = rng.random() < 0.5
    loops.collect(tile.tobytes(), *shape, *part, by_row, k, capacity, 0.0, *state)
    if not damage:
        columns = np.frombuffer(state[3], np.int32).reshape(images, capacity)
        values = np.where(np.eye(images), -np.inf, tile if by_row else tile.T)
        for row, held in enumerate(np.frombuffer(state[1], np.int32)):
            best = np.argsort(-values[row], kind="stable")[: min(k, images - 1)]
            assert held < 0 or {*best.tolist()} <= {*columns[row, :held].tolist()}


@pytest.mark.timeout(300 + CASES // 10)
@pytest.mark.parametrize("check", [check_lists, check_candidates])
def test_random_calls(check):
    rng = random.Random(22)
    for _ in range(CASES // 2):
        check(rng, damage=False)
        with suppress(ValueError):
            check(rng, damage=True)
