"""Folders, lists of files and arrays as sources; what counts as pictures."""

import os
import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ddh._core.errors import InputError
from ddh.duplicates.finding import list_files
from ddh.images import (
    ImageArray,
    ImageFiles,
    ImageFolder,
    LabelledImages,
    UnreadableImage,
    is_images,
    open_images,
)


def write(path, value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 3), value).save(path, format="PNG")
    return path


def test_folder_is_recursive_sorted_and_skips_what_is_not_a_picture(tmp_path):
    for name in ("b.png", "a/z.PNG", "a/c/d.jpeg", "a.webp", "x.jpg/inside.png"):
        write(tmp_path / name)
    for name in (".hidden.png", ".thumbnails/e.png", "a/.f.png"):
        write(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    folder = ImageFolder(tmp_path)
    assert folder.names == ("a.webp", "a/c/d.jpeg", "a/z.PNG", "b.png", "x.jpg/inside.png")
    assert [path.relative_to(tmp_path).as_posix() for path in folder.paths] == list(folder.names)
    assert len(folder) == 5
    assert folder.ignored == {"hidden": 3, ".txt": 1}
    assert folder.read(1).size == (4, 3)
    assert "5 images" in repr(folder)


def test_empty_absent_and_mistaken_folders(tmp_path):
    with pytest.raises(InputError, match=r"no images in .*looked in it and below"):
        ImageFolder(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        ImageFolder(tmp_path / "absent")
    with pytest.raises(InputError, match="not a folder"):
        ImageFolder(write(tmp_path / "a.png"))


def test_loops_of_links_end_and_real_places_win(tmp_path):
    root = tmp_path / "root"
    write(root / "real" / "a.png")
    write(tmp_path / "elsewhere" / "b.png")
    (root / "real" / "up").symlink_to(root, target_is_directory=True)
    (root / "again").symlink_to(root / "real", target_is_directory=True)
    (root / "outside").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (root / "a_link.png").symlink_to(root / "real" / "a.png")
    assert ImageFolder(root).names == ("a_link.png", "outside/b.png", "real/a.png")


def test_dangling_link_is_listed_and_refused_when_read(tmp_path):
    write(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "gone.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    folder = ImageFolder(tmp_path)
    assert folder.names == ("a.png", "b.png", "loop.png")
    for number, reason in ((1, "No such file"), (2, "Too many levels of symbolic links")):
        with pytest.raises(UnreadableImage, match=reason):
            folder.read(number)
    assert list(list_files(tmp_path)) == list(folder.paths)


def test_pipes_and_sockets_are_counted_and_never_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.png")
    os.mkfifo("pipe.png")
    os.mkfifo("without an ending")
    (tmp_path / "link.jpg").symlink_to("pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.png")
        folder = ImageFolder(tmp_path)
    assert folder.names == ("a.png",)
    assert folder.ignored == {"pipe or device": 4}


def test_names_that_are_not_utf8_can_be_read_and_printed(tmp_path):
    write(tmp_path / "ok.png")
    odd = os.fsencode(tmp_path) + b"/\xff\xfe.png"
    Path(os.fsdecode(odd)).write_bytes((tmp_path / "ok.png").read_bytes())
    folder = ImageFolder(tmp_path)
    assert folder.names == ("\\xff\\xfe.png", "ok.png")
    assert "".join(folder.names).encode("utf-8")
    assert folder.read(0).size == (4, 3)


def test_files_keep_their_order_and_names(tmp_path):
    paths = [write(tmp_path / name, value) for value, name in enumerate(("b.png", "a.png"))]
    files = ImageFiles(paths, root=tmp_path)
    assert files.names == ("b.png", "a.png")
    assert ImageFiles(map(str, paths)).names == tuple(map(str, paths))
    assert [np.asarray(files.read(i)).max() for i in (0, 1)] == [0, 1]
    taken = files.take([1, 0, 1])
    assert taken.names == ("a.png", "b.png", "a.png")
    with pytest.raises(InputError, match="empty"):
        ImageFiles([])


RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 6, 7), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)


def test_uint8_arrays_are_views():
    assert np.shares_memory(ImageArray(COLOUR).pixels, COLOUR)
    for grey in (GREY, GREY[..., None]):
        array = ImageArray(grey)
        assert np.shares_memory(array.pixels, GREY)
        assert np.array_equal(array.pixels, np.repeat(GREY[..., None], 3, axis=3))
    assert np.array_equal(np.asarray(ImageArray(COLOUR).read(3)), COLOUR[3])
    assert ImageArray(COLOUR).names == ("0", "1", "2", "3", "4")


def test_bool_and_float_arrays_are_scaled():
    assert np.array_equal(ImageArray(GREY > 127).pixels[..., 0], (GREY > 127) * 255)
    for dtype in (np.float16, np.float32, np.float64):
        found = ImageArray((COLOUR / 255).astype(dtype)).pixels
        assert np.array_equal(found, COLOUR)


def test_alpha_in_arrays_lies_on_white():
    alpha = RNG.integers(0, 256, (5, 6, 7, 1), dtype=np.uint8)
    found = ImageArray(np.concatenate([COLOUR, alpha], axis=3)).pixels
    weight = alpha / 255
    assert np.array_equal(found, np.floor(COLOUR * weight + 255 * (1 - weight) + 0.5))


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 9)), "features"),
        (np.zeros((6, 7, 3), np.uint8), r"images\[None\]"),
        (np.zeros((2, 3, 8, 8), np.uint8), "transpose"),
        (np.zeros((2, 8, 8, 2), np.uint8), "shape"),
        (np.zeros((1, 2, 8, 8, 3), np.uint8), "shape"),
        (np.zeros((0, 8, 8), np.uint8), "empty"),
        (np.zeros((2, 8, 8), np.int64), "int64"),
        (np.full((2, 8, 8), 200.0), "200"),
        (np.full((2, 8, 8), -0.5), "-0.5"),
        (np.full((2, 8, 8), np.nan), "nan"),
        (np.array([["a"]])[..., None], "shape|uint8"),
    ],
)
def test_arrays_that_are_not_images(array, words):
    with pytest.raises(InputError, match=words):
        ImageArray(array)


def test_names_of_an_array_must_fit():
    assert ImageArray(GREY, names=list("abcde")).take([4, 0]).names == ("e", "a")
    with pytest.raises(InputError, match="2 names"):
        ImageArray(GREY, names=["a", "b"])


def test_open_images_takes_everything(tmp_path):
    path = write(tmp_path / "a.png")
    assert isinstance(open_images(tmp_path), ImageFolder)
    assert isinstance(open_images(str(path)), ImageFiles)
    assert open_images([path, str(path)]).names == (str(path), str(path))
    array = open_images(COLOUR)
    assert isinstance(array, ImageArray)
    assert open_images(array) is array
    assert open_images(LabelledImages(array, np.arange(5), "five", ("a",) * 5)) is array
    with pytest.raises(InputError, match="does not exist"):
        open_images(tmp_path / "absent.jpg")
    with pytest.raises(InputError, match="paths only"):
        open_images([path, GREY])
    with pytest.raises(InputError, match="empty"):
        open_images([])


def test_is_images_tells_pictures_from_features(tmp_path):
    labelled = LabelledImages(ImageArray(GREY), np.arange(5), "five", ("a",) * 5)
    for x in ("folder", tmp_path, ["a.jpg"], GREY, COLOUR, GREY / 255, ImageArray(GREY), labelled):
        assert is_images(x)
    for x in (np.zeros((5, 8)), [[0.0, 1.0]], np.zeros(3), 3, None, []):
        assert not is_images(x)


def test_labels_must_fit_the_images():
    with pytest.raises(InputError, match="4 labels for 5"):
        LabelledImages(ImageArray(GREY), np.arange(4), "x", ("a",))
    with pytest.raises(InputError, match="2 label columns for 3"):
        LabelledImages(ImageArray(GREY), np.zeros((5, 2), np.uint8), "x", ("a", "b", "c"))
    five = LabelledImages(ImageArray(GREY), np.arange(5), "x", tuple("abcde"))
    taken = five.take([3, 1])
    assert taken.labels.tolist() == [3, 1]
    assert np.array_equal(taken.images.pixels[..., 0], GREY[[3, 1]])
    assert not five.multi_label
