"""The data sets, on small files in their real layouts."""

import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

from ddh._core.errors import DDHWarning, InputError
from ddh.images import (
    cifar,
    cifar10,
    coco17,
    digits,
    flickr25k,
    flowers17,
    flowers17_splits,
    imagenet100,
    mscoco,
    multi_label_list,
    nus_wide,
)


def write_image(path, value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 3), value).save(path, format="JPEG")


# -- CIFAR-10 ---------------------------------------------------------------------------------


@pytest.fixture
def small_cifar(tmp_path, monkeypatch):
    """Batches of four pictures in the official form, with their digests put in the table."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for number, name in enumerate(cifar.MD5):
        batch = {
            b"data": rng.integers(0, 256, (4, 3072), dtype=np.uint8),
            b"labels": [number, 1, 2, 3],
            b"filenames": [f"{name}_{i}.png".encode() for i in range(4)],
        }
        content = pickle.dumps(batch, protocol=3)
        (folder / name).write_bytes(content)
        monkeypatch.setitem(cifar.MD5, name, hashlib.md5(content).hexdigest())
    return tmp_path


def test_cifar_layout(small_cifar):
    train = cifar10(small_cifar, "train")
    assert train.images.pixels.shape == (20, 32, 32, 3)
    assert train.labels.tolist()[::4] == [0, 1, 2, 3, 4]
    assert train.images.names[5] == "data_batch_2_1.png"
    first = pickle.loads((small_cifar / cifar.FOLDER / "data_batch_1").read_bytes())[b"data"][0]
    assert train.images.pixels[0, 2, 5].tolist() == [first[c * 1024 + 2 * 32 + 5] for c in range(3)]
    assert len(cifar10(small_cifar / cifar.FOLDER, "test")) == 4
    assert np.array_equal(cifar10(small_cifar, "all").labels[:20], train.labels)
    assert train.classes[0] == "airplane"
    assert len(train.classes) == 10


def test_cifar_says_what_is_wrong(small_cifar, tmp_path):
    with pytest.raises(InputError, match=r"cifar-10-python\.tar\.gz from https"):
        cifar10(tmp_path / "empty")
    with pytest.raises(InputError, match="splits"):
        cifar10(small_cifar, "validation")
    batch = small_cifar / cifar.FOLDER / "data_batch_3"
    batch.write_bytes(batch.read_bytes()[:-1] + b"!")
    with pytest.raises(InputError, match="data_batch_3 is damaged"):
        cifar10(small_cifar)
    batch.unlink()
    with pytest.raises(InputError, match="data_batch_3 cannot be read"):
        cifar10(small_cifar)


class Attack:
    def __reduce__(self):
        return os.system, ("echo attacked",)


@pytest.mark.parametrize("harm", [Attack(), np.dtype("O"), np.array([Attack()], dtype=object)])
def test_cifar_batches_cannot_run_code(small_cifar, monkeypatch, harm, capfd):
    content = pickle.dumps({b"data": harm, b"labels": [], b"filenames": []}, protocol=3)
    (small_cifar / cifar.FOLDER / "test_batch").write_bytes(content)
    monkeypatch.setitem(cifar.MD5, "test_batch", hashlib.md5(content).hexdigest())
    with pytest.raises(InputError, match="test_batch"):
        cifar10(small_cifar, "test")
    assert "attacked" not in capfd.readouterr().out


# -- Oxford-17 --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    root = tmp_path_factory.mktemp("flowers")
    write_image(root / "jpg" / "image_0001.jpg")
    content = (root / "jpg" / "image_0001.jpg").read_bytes()
    for number in range(2, 1361):
        (root / "jpg" / f"image_{number:04d}.jpg").write_bytes(content)
    return root


def test_flowers_have_80_a_class(flowers):
    data = flowers17(flowers)
    assert len(data) == 1360
    assert np.array_equal(np.bincount(data.labels), [80] * 17)
    assert data.images.names[80] == "image_0081.jpg"
    assert data.classes[data.labels[80]] == "snowdrop"
    assert len(flowers17(flowers / "jpg")) == 1360


def test_official_splits_of_flowers(flowers, tmp_path):
    for file in (flowers / "jpg").iterdir():
        (tmp_path / file.name).hardlink_to(file)
    rng = np.random.default_rng(0)
    numbers = [rng.permutation(1360) + 1 for _ in range(3)]
    content = {}
    for i, order in enumerate(numbers, 1):
        content |= {f"trn{i}": order[:680], f"val{i}": order[680:1020], f"tst{i}": order[1020:]}
    scipy.io.savemat(tmp_path / "datasplits.mat", content)
    splits = flowers17_splits(tmp_path)
    assert [split.name for split in splits] == ["official 1", "official 2", "official 3"]
    for split, order in zip(splits, numbers, strict=True):
        assert np.array_equal(split.train, np.sort(order[:680]) - 1)
        assert np.array_equal(split.test, np.sort(order[1020:]) - 1)
    scipy.io.savemat(tmp_path / "datasplits.mat", content | {"tst2": numbers[1][:340]})
    with pytest.raises(InputError, match="split 2"):
        flowers17_splits(tmp_path)
    scipy.io.savemat(tmp_path / "datasplits.mat", {"trn1": [1]})
    with pytest.raises(InputError, match="lacks val1, tst1"):
        flowers17_splits(tmp_path)
    (tmp_path / "datasplits.mat").write_bytes(b"not a MATLAB file")
    with pytest.raises(InputError, match="not a MATLAB file"):
        flowers17_splits(tmp_path)


def test_seeded_splits_of_flowers_say_so(flowers):
    with pytest.warns(DDHWarning, match="not the official ones"):
        splits = flowers17_splits(flowers, seed=5)
    labels = np.arange(1360) // 80
    for split in splits:
        assert np.array_equal(
            np.sort(np.concatenate([split.train, split.validation, split.test])), np.arange(1360)
        )
        for part, count in ((split.train, 40), (split.validation, 20), (split.test, 20)):
            assert np.array_equal(np.bincount(labels[part]), [count] * 17)
        assert "seed 5" in split.name
    assert not np.array_equal(splits[0].train, splits[1].train)
    with pytest.warns(DDHWarning):
        again = flowers17_splits(flowers, seed=5)
    assert np.array_equal(again[2].test, splits[2].test)


def test_missing_flowers_are_an_error(tmp_path):
    with pytest.raises(InputError, match=r"17flowers\.tgz"):
        flowers17(tmp_path)
    write_image(tmp_path / "image_0001.jpg")
    with pytest.raises(InputError, match=r"1359 of the 1,360 .* image_0002\.jpg"):
        flowers17(tmp_path)


# -- NUS-WIDE ---------------------------------------------------------------------------------

CONCEPTS = ("airport", "animal", "beach", "sky", "zebra")


@pytest.fixture
def nus(tmp_path):
    """Eight pictures and five concepts in the layout of the release, Windows line ends and all."""
    labels = np.zeros((8, 5), int)
    labels[:, 3] = [1, 1, 1, 1, 1, 0, 0, 0]  # sky
    labels[:, 1] = [1, 0, 0, 0, 0, 1, 1, 0]  # animal
    labels[:, 0] = [0, 0, 0, 0, 0, 0, 1, 1]  # airport: as frequent as beach
    labels[:, 2] = [0, 0, 0, 1, 1, 0, 0, 0]
    paths = [f"{kind}\\{i:04d}_{i}77.jpg" for i, kind in enumerate(["actor", "zoo"] * 4)]
    for i in (0, 1, 2, 3, 5, 6, 7):  # 4 is no longer to be had
        write_image(tmp_path / "Flickr" / paths[i].replace("\\", "/"), 10 * i)
    lists = tmp_path / "ImageList"
    lists.mkdir()
    parts = {"": range(8), "Train": (0, 1, 2, 3, 4), "Test": (5, 6, 7)}
    for part, members in parts.items():
        text = "".join(f"{paths[i]}\r\n" for i in members)
        (lists / f"{part}Imagelist.txt").write_text(text, newline="")
    truth = tmp_path / "Groundtruth"
    for column, concept in enumerate(CONCEPTS):
        for part, members in parts.items():
            folder = truth / ("TrainTestLabels" if part else "AllLabels")
            folder.mkdir(parents=True, exist_ok=True)
            name = f"Labels_{concept}_{part}.txt" if part else f"Labels_{concept}.txt"
            (folder / name).write_text("".join(f"{labels[i, column]}\n" for i in members))
    return tmp_path


def test_nus_wide_takes_the_most_frequent_concepts(nus):
    data = nus_wide(nus, concepts=3)
    assert data.classes == ("airport", "animal", "sky")
    assert data.multi_label
    assert data.missing == 1
    assert data.images.names[:2] == ("actor/0000_077.jpg", "zoo/0001_177.jpg")
    assert data.labels.tolist() == [
        [0, 1, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 1, 0], [1, 1, 0], [1, 0, 0]
    ]  # fmt: skip
    assert np.asarray(data.images.read(3)).max() == 30


def test_nus_wide_leaves_out_pictures_without_a_chosen_concept(nus):
    data = nus_wide(nus, concepts=1)
    assert data.classes == ("sky",)
    assert len(data) == 4
    assert data.missing == 1


def test_nus_wide_official_split(nus):
    train, test = nus_wide(nus, "train", concepts=3), nus_wide(nus, "test", concepts=3)
    assert train.classes == test.classes == ("airport", "animal", "sky")
    assert (len(train), train.missing, len(test), test.missing) == (4, 1, 3, 0)
    assert test.labels.tolist() == [[0, 1, 0], [1, 1, 0], [1, 0, 0]]
    assert test.images.names == ("zoo/0005_577.jpg", "actor/0006_677.jpg", "zoo/0007_777.jpg")


def test_nus_wide_pictures_may_lie_elsewhere(nus, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("pictures")
    (nus / "Flickr").rename(elsewhere / "all")
    assert len(nus_wide(nus, concepts=3, images=elsewhere / "all")) == 7
    with pytest.raises(InputError, match="none of the 8 images"):
        nus_wide(nus, concepts=3)


def test_nus_wide_says_what_is_wrong(nus, tmp_path_factory):
    with pytest.raises(InputError, match=r"Groundtruth/AllLabels.*unpack"):
        nus_wide(tmp_path_factory.mktemp("nothing"))
    with pytest.raises(InputError, match="21 concepts were asked for, the label files name 5"):
        nus_wide(nus)
    with pytest.raises(InputError, match="splits"):
        nus_wide(nus, "validation")
    labels = nus / "Groundtruth" / "AllLabels" / "Labels_sky.txt"
    good = labels.read_text()
    for bad in (good.replace("0", "2"), good.replace("\n", "", 1), good + "yes\n"):
        labels.write_text(bad)
        with pytest.raises(InputError, match=r"Labels_sky\.txt should hold one 0 or 1 per line"):
            nus_wide(nus, concepts=3)
    labels.write_text(good + "1\n")
    with pytest.raises(InputError, match="differ in length"):
        nus_wide(nus, concepts=3)
    labels.write_text(good)
    listing = nus / "ImageList" / "Imagelist.txt"
    listing.write_text(listing.read_text() + "actor\\9.jpg\n")
    with pytest.raises(InputError, match="9 images, its labels 8 lines"):
        nus_wide(nus, concepts=3)
    listing.unlink()
    with pytest.raises(InputError, match=r"Imagelist\.txt is missing"):
        nus_wide(nus, concepts=3)


# -- COCO-17 ----------------------------------------------------------------------------------


@pytest.fixture
def coco(tmp_path):
    """Four pictures with their concepts, in the layout of COCO-17."""
    folder = tmp_path / "coco17"
    shown = {"00000": "boat", "00001": "bird", "00002": "bicycle|fire hydrant", "00003": "bird"}
    for value, name in enumerate(shown):
        write_image(folder / "images" / f"{name}.webp", 40 * value)
    lines = [f"{name}.webp,{concepts}" for name, concepts in shown.items()]
    (folder / "labels.csv").write_text("\n".join(["image,concepts", *lines, ""]))
    return tmp_path


def test_coco17_has_a_column_per_concept(coco):
    data = coco17(coco)
    assert data.classes == ("bicycle", "bird", "boat", "fire hydrant")
    assert data.labels.tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1], [0, 1, 0, 0]]
    assert data.images.names[2] == "00002.webp"
    assert data.multi_label
    assert np.asarray(data.images.read(3).convert("L")).mean() == pytest.approx(120, abs=2)
    assert coco17(coco / "coco17").labels.tolist() == data.labels.tolist()


def test_coco17_says_what_is_wrong(coco, tmp_path_factory):
    with pytest.raises(InputError, match=r"no COCO-17 .*put the photographs into images/"):
        coco17(tmp_path_factory.mktemp("nothing"))
    labels = coco / "coco17" / "labels.csv"
    good = labels.read_text()
    for bad, words in (
        ("", "begins with ''"),
        ("name,label\n", "begins with 'name,label'"),
        (good + "00004.webp\n", "line 6: not an image and its concepts"),
        (good + "00004.webp,\n", "line 6: not an image and its concepts"),
        (good + "00004.webp,boat\n", "1 of the 5 images of COCO-17 are missing"),
    ):
        labels.write_text(bad)
        with pytest.raises(InputError, match=words):
            coco17(coco)


# -- Lists and digits -------------------------------------------------------------------------


def test_multi_label_list(tmp_path):
    for name in ("a.jpg", "sub/b c.jpg", "sub/d.jpg"):
        write_image(tmp_path / name)
    listing = tmp_path / "database.txt"
    listing.write_text("a.jpg 0 1 0\n\nsub/b c.jpg 1 1 0\r\nsub\\d.jpg 0 0 1\ngone.jpg 1 1 1\n")
    data = multi_label_list(listing, tmp_path)
    assert data.labels.tolist() == [[0, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert data.images.names == ("a.jpg", "sub/b c.jpg", "sub/d.jpg")
    assert (data.missing, data.name, data.classes) == (1, "database", ("0", "1", "2"))
    assert multi_label_list(listing, tmp_path, classes=["x", "y", "z"]).classes == ("x", "y", "z")
    with pytest.raises(InputError, match="3 label columns, 2 classes"):
        multi_label_list(listing, tmp_path, classes=["x", "y"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a.jpg\n", "line 1: no 0/1 labels"),
        ("a.jpg 0 1\nb.jpg 1\n", "line 2: 1 labels where the first line has 2"),
        ("a.jpg 0 1\nb.jpg 1 0 1\n", "line 2: 3 labels"),
        ("a.jpg 0 1\nb.jpg 1 7\n", "line 2: 0 labels"),
        ("a.jpg 0 1\n", "none of the 1 images"),
    ],
)
def test_bad_lists(tmp_path, text, words):
    listing = tmp_path / "list.txt"
    listing.write_text(text)
    with pytest.raises(InputError, match=words):
        multi_label_list(listing, tmp_path)


def test_absent_list(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        multi_label_list(tmp_path / "absent.txt", tmp_path)


def test_digits():
    data = digits()
    assert data.images.pixels.shape == (1797, 8, 8, 3)
    assert (data.images.pixels.min(), data.images.pixels.max()) == (0, 255)
    assert len(np.unique(data.images.pixels)) == 17
    assert np.array_equal(np.unique(data.labels), np.arange(10))
    assert data.classes == tuple("0123456789")


# -- Flickr25k --------------------------------------------------------------------------------


@pytest.fixture
def flickr(tmp_path):
    """Five pictures and three concepts in the layout of the release."""
    notes = tmp_path / "mirflickr25k_annotations_v080"
    notes.mkdir()
    (notes / "README.txt").write_text("Not a concept.")
    (notes / "clouds.txt").write_text("1\n3\n24999\n")
    (notes / "clouds_r1.txt").write_text("1\n")
    (notes / "sea.txt").write_text("3\n4\n")
    for number in (1, 2, 3, 4):
        write_image(tmp_path / "mirflickr" / f"im{number}.jpg", 10 * number)
    return tmp_path


def test_flickr25k_takes_the_pictures_with_a_concept(flickr):
    data = flickr25k(flickr)
    assert data.classes == ("clouds", "sea")
    assert [Path(name).name for name in data.images.names] == ["im1.jpg", "im3.jpg", "im4.jpg"]
    assert data.labels.tolist() == [[1, 0], [1, 1], [0, 1]]
    assert data.missing == 1


def test_flickr25k_says_what_is_wrong(flickr, tmp_path_factory):
    with pytest.raises(InputError, match=r"no annotations of MIRFLICKR-25000 .*liacs"):
        flickr25k(tmp_path_factory.mktemp("nothing"))
    notes = flickr / "mirflickr25k_annotations_v080"
    (notes / "sea.txt").write_text("25001\n")
    with pytest.raises(InputError, match="outside 1 to 25,000"):
        flickr25k(flickr)
    (notes / "sea.txt").write_text("three\n")
    with pytest.raises(InputError, match="one number per line"):
        flickr25k(flickr)


# -- lists of HashNet's release ---------------------------------------------------------------


def write_lists(root: Path, columns: int, before: str = "") -> None:
    """Two queries, four searched images, of which two are training images."""

    def line(number: int) -> str:
        bits = ["1" if column == number % columns else "0" for column in range(columns)]
        return f"{before}train2014/{number}.jpg {' '.join(bits)}\n"

    for number in range(6):
        write_image(root / "train2014" / f"{number}.jpg", 10 * number)
    for name, members in {"test": (0, 1), "database": (2, 3, 4, 5), "train": (3, 5)}.items():
        (root / f"{name}.txt").write_text("".join(map(line, members)))


@pytest.mark.parametrize("before", ["", "./", "/home/someone/data/coco/"])
def test_mscoco_is_split_by_its_lists(tmp_path, before):
    write_lists(tmp_path, 80, before)
    data = mscoco(tmp_path)
    assert data.labels.shape == (6, 80)
    assert {part: rows.tolist() for part, rows in data.parts.items()} == {
        "query": [0, 1],
        "database": [2, 3, 4, 5],
        "train": [3, 5],
    }
    assert data.labels.argmax(axis=1).tolist() == [0, 1, 2, 3, 4, 5]
    assert [Path(name).name for name in data.images.names] == [f"{i}.jpg" for i in range(6)]


def test_imagenet100_has_classes_and_lists_in_parts(tmp_path):
    write_lists(tmp_path, 100)
    lines = (tmp_path / "database.txt").read_text().splitlines(keepends=True)
    (tmp_path / "database.txt").unlink()
    (tmp_path / "database0.txt").write_text("".join(lines[:1]))
    (tmp_path / "database1.txt").write_text("".join(lines[1:]))
    data = imagenet100(tmp_path)
    assert data.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.parts["database"].tolist() == [2, 3, 4, 5]
    assert not data.take([0, 1]).parts


def test_lists_say_where_the_files_go(tmp_path):
    with pytest.raises(InputError, match=r"no lists of MS COCO.*thuml/HashNet.*cocodataset"):
        mscoco(tmp_path)
    write_lists(tmp_path, 80)
    with pytest.raises(InputError, match="has 80 label columns, not 100"):
        imagenet100(tmp_path)
    (tmp_path / "train2014" / "4.jpg").unlink()
    with pytest.raises(InputError, match=r"1 of the 6 images of MS COCO.* are missing below"):
        mscoco(tmp_path)
    (tmp_path / "train.txt").unlink()
    with pytest.raises(InputError, match=r"train\.txt is missing"):
        mscoco(tmp_path)


def test_imagenet100_wants_one_class_per_image(tmp_path):
    write_lists(tmp_path, 100)
    text = (tmp_path / "test.txt").read_text().splitlines()
    (tmp_path / "test.txt").write_text(text[0].replace(" 0", " 1") + "\n" + text[1] + "\n")
    with pytest.raises(InputError, match="every image has one class"):
        imagenet100(tmp_path)
