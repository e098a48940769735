"""What cameras write, and what they should not."""

import pytest
from PIL import Image

from ddh.images.exif import PhotoFacts, photo_facts


def written(path, main=(), photo=(), gps=()):
    exif = Image.Exif()
    for number, value in main:
        exif[number] = value
    for directory, entries in ((0x8769, photo), (0x8825, gps)):
        exif.get_ifd(directory).update(dict(entries))
    Image.new("RGB", (40, 30)).save(path, exif=exif)
    return photo_facts(path)


def test_date_camera_exposure_and_place(tmp_path):
    facts = written(
        tmp_path / "a.jpg",
        [(0x010F, "NIKON CORPORATION"), (0x0110, "NIKON D750\0 "), (0x0112, 6)],
        [(0x9003, "2024:05:03 10:22:31"), (0x829A, 1 / 250), (0x829D, 2.8), (0x8827, 400),
         (0x920A, 35.0), (0xA434, "35mm f/1.8")],
        [(1, "S"), (2, (33.0, 51.0, 24.48)), (3, "E"), (4, (151.0, 12.0, 54.72))],
    )  # fmt: skip
    assert facts == PhotoFacts(
        30, 40, "2024-05-03T10:22:31", "NIKON D750", "35mm f/1.8",
        "1/250 s · f/2.8 · ISO 400 · 35 mm", (-33.8568, 151.2152),
    )  # fmt: skip
    assert facts.metadata() == {
        "taken": "2024-05-03T10:22:31", "camera": "NIKON D750", "latitude": -33.8568,
        "longitude": 151.2152,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "model", "camera"),
    [("Canon", "Canon EOS 5D", "Canon EOS 5D"), ("Apple", "iPhone 12", "Apple iPhone 12"),
     ("", "X", "X"), ("Y", "", "Y"), (" ", "\n", None)],
)  # fmt: skip
def test_the_maker_is_named_once(tmp_path, make, model, camera):
    assert written(tmp_path / "a.jpg", [(0x010F, make), (0x0110, model)]).camera == camera


def test_nonsense_is_left_out(tmp_path):
    facts = written(
        tmp_path / "a.jpg",
        [(0x0132, "0000:00:00 00:00:00"), (0x0110, "x" * 5000)],
        [(0x9003, "yesterday"), (0x829A, 0.0), (0x829D, -3.0)],
        [(1, "N"), (2, (500.0, 0.0, 0.0)), (3, "E"), (4, (1.0, 0.0, 0.0))],
    )
    assert facts == PhotoFacts(40, 30, None, "x" * 100, None, None, None)
    assert (
        written(tmp_path / "b.jpg", gps=[(2, (0.0, 0.0, 0.0)), (4, (0.0, 0.0, 0.0))]).place is None
    )


def test_files_that_are_no_pictures_have_no_facts(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    assert photo_facts(tmp_path / "a.jpg") == PhotoFacts()
    assert photo_facts(tmp_path / "none.jpg") == PhotoFacts()
    assert photo_facts(tmp_path) == PhotoFacts()
    assert PhotoFacts().metadata() == {}
