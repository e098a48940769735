"""The compiled loops refuse buffers and indices that would lead them outside memory."""

import numpy as np
import pytest

loops = pytest.importorskip("ddh.neighbours._overlap")


def lists(*rows):
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return starts, np.concatenate([np.array(row, np.int32) for row in rows])


GOOD = lists([0, 1], [1], [0, 2])
HOLDERS = lists([0, 2], [0, 1], [2])


def ends():
    return np.empty(3, np.int64)


@pytest.mark.parametrize(
    "bad",
    [
        lists([0, 3], [1], [2]),  # no such image
        lists([0, -1], [1], [2]),
        (np.array([0, 2, 1, 3]), np.zeros(3, np.int32)),  # starts that fall
        (np.array([0, 1, 2, 9]), np.zeros(3, np.int32)),  # starts beyond the items
        (np.empty(0, np.int64), np.empty(0, np.int32)),
    ],
)
def test_damaged_lists(bad):
    out = np.empty(4, np.int64), np.empty(5, np.int32)
    with pytest.raises(ValueError, match="damaged"):
        loops.renumber(*bad, np.empty(3, np.int32), *out)
    with pytest.raises(ValueError, match="damaged"):
        loops.union(*GOOD, *bad, ends())
    with pytest.raises(ValueError, match="damaged"):
        loops.top_overlaps(*bad, *HOLDERS, b"", 0, 3, 1, 1, ends(), ends())


@pytest.mark.parametrize("limits", [(-1, 3, 1, 1), (0, 4, 1, 1), (2, 1, 1, 1), (0, 3, 9, 1)])
def test_rows_outside_the_lists(limits):
    with pytest.raises(ValueError, match="out of range"):
        loops.top_overlaps(*GOOD, *HOLDERS, b"", *limits, ends(), ends())


def test_a_holder_named_twice_would_overflow_the_counts():
    twice = lists([0, 0, 0, 2], [0, 1], [2])
    with pytest.raises(ValueError, match="out of range"):
        loops.top_overlaps(*GOOD, *twice, b"", 0, 3, 1, 1, ends(), ends())


@pytest.mark.parametrize("starts", [[0, 9, 9, 9], [0, 2, 1, 3], [-1, 0, 0, 0], [0, 0, 0, 0]])
def test_starts_that_do_not_fit_the_rows(starts):
    image, lengths, out = np.arange(3, dtype=np.int32), ends(), np.empty(6, np.int32)
    with pytest.raises(ValueError, match="starts"):
        loops.symmetrize(*GOOD, *HOLDERS, image, 0, 3, lengths, np.array(starts), out)


@pytest.mark.parametrize(
    "change",
    [
        {"count": np.full(4, 99, np.int32)},
        {"count": np.full(4, -2, np.int32)},
        {"value": np.zeros(3, np.float32)},
        {"shape": (5, 4)},
        {"shape": (-1, -1)},
        {"place": (1, 0)},
        {"place": (2**62, 0)},
        {"capacity": 1},
        {"capacity": 2**61},
        {"part": (0, 5)},
    ],
)
def test_tiles_and_candidates_out_of_range(change):
    said = {"shape": (4, 4), "place": (0, 0), "part": (0, 4), "capacity": 8} | change
    count = said.get("count", np.zeros(4, np.int32))
    value = said.get("value", np.zeros((4, 8), np.float32))
    state = (np.full(4, -np.inf, np.float32), count, value, np.zeros((4, 8), np.int32))
    tile = np.zeros((4, 4), np.float32)
    with pytest.raises(ValueError, match=r"outside|fit|buffer"):
        loops.collect(
            tile,
            *said["shape"],
            *said["place"],
            *said["part"],
            True,
            2,
            said["capacity"],
            0,
            *state,
        )


@pytest.mark.parametrize("capacity", [2, 3])
def test_rows_with_room_for_few_candidates(capacity):
    """Ties filled such a row, and the next one went behind it."""
    state = [np.full(4, -np.inf, np.float32), np.zeros(4, np.int32)]
    state += [np.zeros((4, capacity), np.float32), np.zeros((4, capacity), np.int32)]
    with pytest.raises(ValueError, match="fit"):
        loops.collect(np.ones((1, 4), np.float32), 1, 4, 0, 0, 0, 1, True, 1, capacity, 0.0, *state)


def test_infinite_similarities_stay_inside_a_full_row():
    """A row that has overflowed (count -1) takes no further candidate, not even infinity."""
    tile = np.full((1, 64), np.inf, np.float32)
    state = [np.full(64, -np.inf, np.float32), np.zeros(64, np.int32)]
    state += [np.zeros((64, 4), np.float32), np.zeros((64, 4), np.int32)]
    loops.collect(tile, 1, 64, 0, 0, 0, 1, True, 2, 4, 0.0, *state)
    assert state[1].tolist() == [-1] + [0] * 63
    assert not state[2][1:].any()
