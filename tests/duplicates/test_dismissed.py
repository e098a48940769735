"""Pairs that are no duplicates: remembered with the index, by content, and left out."""

from pathlib import Path

import ddh.index
from ddh.duplicates import Duplicates, Group, Member, Picture, Similar
from ddh.duplicates.dismissed import MAX_PAIRS, SETTING, Dismissed


def picture(name: str) -> Picture:
    return Picture(Path(f"{name}.jpg"), 4, 3, 12, 0, name * 32, "JPEG")


FOUND = Duplicates(
    [Group(picture("a"), (Member(picture("b"), "resized", 1), Member(picture("c"), "turned", 1)))],
    [Similar(picture("d"), picture("e"), 0.5)],
    [],
    5,
)


def left(dismissed: Dismissed) -> list[list[str]]:
    return [[m.picture.path.stem for m in group.members] for group in dismissed.without(FOUND)]


def test_pairs_are_left_out_in_any_order():
    assert left(Dismissed()) == [["b", "c"]]
    assert left(Dismissed([("b" * 32, "a" * 32)])) == [["c"]]
    assert left(Dismissed([("a" * 32, "b" * 32), ("c" * 32, "a" * 32)])) == []
    assert left(Dismissed([("b" * 32, "c" * 32)])) == [["b", "c"]]
    assert Dismissed([("e" * 32, "d" * 32)]).without(FOUND).similar == []


def test_they_are_stored_with_the_index(tmp_path):
    with ddh.index.open(tmp_path / "p.index", bits=8) as index:
        assert ("a", "b") not in Dismissed.read(index)
        Dismissed().changed([("a" * 32, "b" * 32)], are_duplicates=False).write(index)
    with ddh.index.open(tmp_path / "p.index") as index:
        known = Dismissed.read(index)
        assert ("b" * 32, "a" * 32) in known
        assert ("a" * 32, "b" * 32) not in known.changed(
            [("b" * 32, "a" * 32)], are_duplicates=True
        )


def test_the_oldest_are_forgotten_before_a_setting_is_too_long(tmp_path):
    pairs = [(f"{n:032x}"[::-1], "f" * 32) for n in range(MAX_PAIRS + 5)]
    known = Dismissed().changed(pairs, are_duplicates=False)
    assert pairs[4] not in known
    assert pairs[5] in known
    with ddh.index.open(tmp_path / "p.index", bits=8) as index:
        known.write(index)
        assert len(index.settings()[SETTING]) < 65_535  # Milvus takes no longer ones
