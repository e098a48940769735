"""The order in which pictures of a group are kept."""

from dataclasses import replace
from pathlib import Path

from ddh.duplicates import Picture
from ddh.duplicates.keeping import has_more, keep_order


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


def test_colour_and_the_camera_come_before_bytes():
    stripped = picture("a", 10, 9)
    grey = replace(picture("b", 10, 90), has_colour=False, has_camera=True)
    original = replace(picture("c", 10, 5), has_camera=True)
    found = sorted([grey, stripped, original], key=keep_order("pixels"))
    assert found == [original, stripped, grey]


def test_what_a_picture_has_more_than_another_of_its_size():
    plain = picture("a", 100, 5)
    with_camera, grey = replace(plain, has_camera=True), replace(plain, has_colour=False)
    assert has_more(with_camera, plain, 1.0)
    assert has_more(plain, grey, 1.0)
    assert has_more(plain, plain, 1.6)
    assert not has_more(plain, plain, 1.1)
    assert not has_more(plain, with_camera, 0.6)
    assert not has_more(replace(with_camera, width=90), plain, 1.6)
