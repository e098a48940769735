"""The order in which pictures of a group are kept."""

from pathlib import Path

from ddh.duplicates import Picture
from ddh.duplicates.keeping import keep_order


def picture(name: str, width: int, size: int, age: int = 0, form: str = "JPEG") -> Picture:
    return Picture(
        path=Path(name), width=width, height=10, bytes=size, mtime_ns=-age, digest=name, format=form
    )


def test_the_largest_picture_is_kept_and_the_oldest_of_equals():
    largest, richer, lossless = (
        picture("c", 20, 1),
        picture("b", 10, 9),
        picture("p", 10, 5, 0, "PNG"),
    )
    older, newer, first = picture("z", 10, 5, 2), picture("y", 10, 5, 1), picture("x", 10, 5, 1)
    found = sorted([first, newer, older, lossless, richer, largest], key=keep_order("pixels"))
    assert found == [largest, richer, lossless, older, first, newer]
