"""Batches: order, bad files, bounds on what runs ahead, an end to the threads, JPEG at scale."""

import threading
import time

import numpy as np
import pytest
from PIL import Image

from ddh._core.errors import InputError
from ddh.images import (
    ImageArray,
    ImageFiles,
    ImageFolder,
    ImageSource,
    PictureCache,
    Preprocessing,
    load_batches,
)

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ten pictures of growing brightness, and two bad files among them."""
    root = tmp_path_factory.mktemp("pictures")
    for i in range(12):
        Image.new("RGB", (20 + i, 30), (i, 2 * i, 3 * i)).save(root / f"{i:02d}.png")
    (root / "04.png").write_bytes(b"")
    (root / "07.png").write_bytes((root / "08.png").read_bytes()[:60])
    return ImageFolder(root)


def image_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ddh-images")]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_order_is_kept_and_bad_files_are_reported(folder, workers, ahead):
    batches = list(load_batches(folder, Preprocessing(8), 5, workers=workers, ahead=ahead))
    assert [batch.indices.tolist() for batch in batches] == [[0, 1, 2, 3], [5, 6, 8, 9], [10, 11]]
    for batch in batches:
        assert batch.indices.dtype == np.int64
        assert batch.pixels.shape == (len(batch), 8, 8, 3)
        assert batch.pixels.dtype == np.uint8
        assert np.array_equal(batch.pixels[:, 3, 3], batch.indices[:, None] * [1, 2, 3])
    failures = [failure for batch in batches for failure in batch.failures]
    assert [(f.index, f.name) for f in failures] == [(4, "04.png"), (7, "07.png")]
    assert "0 bytes" in failures[0].reason
    assert "truncated" in failures[1].reason


def test_indices_choose_and_order(folder):
    (batch,) = load_batches(folder, Preprocessing(8), 10, indices=[11, 0, 11])
    assert batch.indices.tolist() == [11, 0, 11]
    assert batch.pixels[:, 0, 0, 0].tolist() == [11, 0, 11]
    assert list(load_batches(folder, Preprocessing(8), 10, indices=[])) == []
    with pytest.raises(InputError, match="between 0 and 11"):
        load_batches(folder, Preprocessing(8), 10, indices=[12])


def test_a_batch_of_bad_files_only_is_empty(folder):
    (batch,) = load_batches(folder, Preprocessing(8), 10, indices=[4, 7])
    assert len(batch) == 0
    assert batch.pixels.shape == (0, 8, 8, 3)
    assert len(batch.failures) == 2


@pytest.mark.parametrize("bad", [{"batch_size": 0}, {"workers": 0}, {"ahead": -1}])
def test_bad_arguments_are_refused_at_once(folder, bad):
    arguments = {"batch_size": 4} | bad
    with pytest.raises(InputError, match="at least"):
        load_batches(folder, Preprocessing(8), **arguments)


class Counting(ImageSource):
    """Counts the pictures that were read, each of which takes a moment."""

    def __init__(self, total, seconds=0.0):
        self.names = [str(i) for i in range(total)]
        self.started = 0
        self.seconds = seconds
        self.lock = threading.Lock()

    names = ()

    def read(self, i):
        with self.lock:
            self.started += 1
        time.sleep(self.seconds)
        return Image.new("RGB", (8, 8))

    def take(self, indices):
        raise NotImplementedError


def test_threads_run_ahead_but_not_without_bound():
    source = Counting(400)
    batches = load_batches(source, Preprocessing(8), 10, workers=2, ahead=3)
    next(batches)
    deadline = time.monotonic() + 10
    while source.started < 40 and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    assert source.started == 40  # the batch in hand and three ahead
    batches.close()


def test_closing_stops_the_threads():
    source = Counting(1000, seconds=0.002)
    batches = load_batches(source, Preprocessing(8), 100, workers=2, ahead=5)
    next(batches)
    assert image_threads()
    batches.close()
    assert not image_threads()
    started = source.started
    time.sleep(0.05)
    assert source.started == started < 600


def test_an_interrupted_consumer_stops_the_threads():
    def consume():
        for _ in load_batches(Counting(1000, seconds=0.002), Preprocessing(8), 50, workers=2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert not image_threads()


def test_a_fault_of_a_source_is_not_taken_for_a_bad_file():
    class Broken(Counting):
        def read(self, i):
            raise ZeroDivisionError("a fault in the program")

    with pytest.raises(ZeroDivisionError):
        list(load_batches(Broken(3), Preprocessing(8), 2))
    assert not image_threads()


def test_another_source_may_refuse_with_any_input_error():
    class Refusing(Counting):
        def read(self, i):
            raise InputError("no such record")

    (batch,) = load_batches(Refusing(2), Preprocessing(8), 2)
    assert [failure.reason for failure in batch.failures] == ["no such record"] * 2


def test_arrays_of_the_right_size_pass_by_pillow(monkeypatch):
    pixels = RNG.integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)
    monkeypatch.setattr(ImageArray, "read", lambda *_: pytest.fail("went through Pillow"))
    batches = list(load_batches(ImageArray(pixels), Preprocessing(32), 20, indices=range(5, 45)))
    assert np.array_equal(np.concatenate([batch.pixels for batch in batches]), pixels[5:45])
    assert not np.shares_memory(batches[0].pixels, pixels)


SHAPES = [(32, 32), (20, 20), (64, 64), (40, 56), (57, 41), (30, 300), (9, 7), (500, 700)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("channels", [(), (3,), (4,)])
@pytest.mark.parametrize(
    "preprocessing",
    [Preprocessing(32), Preprocessing(32, resize=37, interpolation="bicubic"),
     Preprocessing(32, mode="squash")],
)  # fmt: skip
def test_an_array_and_its_file_give_the_same_pixels(shape, channels, preprocessing, tmp_path):
    array = RNG.integers(0, 256, (2, *shape, *channels), dtype=np.uint8)
    paths = [tmp_path / f"{i}.png" for i in range(len(array))]
    for pixels, path in zip(array, paths, strict=True):
        Image.fromarray(pixels).save(path)
    (from_array,) = load_batches(ImageArray(array), preprocessing, 2)
    (from_files,) = load_batches(ImageFiles(paths), preprocessing, 2)
    assert from_array.pixels.shape == (2, 32, 32, 3)
    assert np.array_equal(from_array.pixels, from_files.pixels)
    assert from_array.pixels.flags.writeable


def test_every_transparency_of_an_array_equals_that_of_its_file(tmp_path):
    array = np.zeros((1, 256, 256, 4), np.uint8)
    array[0, ..., 0], array[0, ..., 1] = np.mgrid[:256, :256]
    array[0, ..., 3] = np.arange(256)
    Image.fromarray(array[0]).save(tmp_path / "alpha.png")
    file = np.asarray(ImageFiles([tmp_path / "alpha.png"]).read(0))
    assert np.array_equal(ImageArray(array).pixels[0], file)


def test_resized_arrays_equal_preprocessing_one_by_one():
    pixels = RNG.integers(0, 256, (12, 20, 30, 3), dtype=np.uint8)
    preprocessing = Preprocessing(16, resize=18, interpolation="bicubic")
    (batch,) = load_batches(ImageArray(pixels), preprocessing, 12, workers=2)
    expected = [preprocessing.apply(Image.fromarray(picture)) for picture in pixels]
    assert np.array_equal(batch.pixels, expected)


def test_reduced_jpegs_are_faster_and_nearly_the_same(tmp_path):
    rough = Image.fromarray(RNG.integers(0, 256, (60, 80, 3), dtype=np.uint8))
    photo = rough.resize((2000, 1500), Image.Resampling.BICUBIC)
    grain = RNG.normal(0, 6, (1500, 2000, 3))
    noisy = np.clip(np.asarray(photo) + grain, 0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(tmp_path / "photo.jpg", quality=90)
    files = ImageFiles([tmp_path / "photo.jpg"])
    preprocessing = Preprocessing(224, resize=256)
    seconds: dict[str, list[float]] = {"full": [], "reduced": []}
    for _ in range(5):  # the least of several: others use the machine too
        started = time.thread_time()
        full = preprocessing.apply(files.read(0)).astype(int)
        seconds["full"].append(time.thread_time() - started)
        started = time.thread_time()
        reduced = files.read_reduced(0, preprocessing.shorter_side)
        preprocessing.apply(reduced)
        seconds["reduced"].append(time.thread_time() - started)
    assert reduced.size == (1000, 750)
    assert min(seconds["reduced"]) < 0.7 * min(seconds["full"])
    (batch,) = load_batches(files, preprocessing, 1)
    assert np.abs(batch.pixels[0] - full).mean() < 2


PICTURE = 8 * 8 * 3  # bytes of a prepared picture


@pytest.mark.parametrize("room", [0, 6, 12])
def test_a_cache_gives_what_decoding_gives_and_reads_what_it_has_no_room_for(folder, room):
    reads = []

    class Counted(ImageFolder):
        def read_reduced(self, i, side):
            reads.append(i)
            return super().read_reduced(i, side)

    counted = Counted(folder.root)
    cache = PictureCache(counted, Preprocessing(8), room * PICTURE)
    for epoch in range(3):
        order = np.random.default_rng(epoch).permutation(12)
        parts = [order[:5], order[5:5], order[5:]]
        reads.clear()
        found = list(cache.load_parts(parts))
        assert sorted(reads) == (
            list(range(12)) if epoch == 0 else sorted({4, 7, *range(room, 12)})
        )
        for part, batch in zip(parts, found, strict=True):
            good = part[~np.isin(part, [4, 7])]
            assert batch.indices.tolist() == good.tolist()
            assert np.array_equal(batch.pixels[:, 3, 3], good[:, None] * [1, 2, 3])
            assert {failure.index for failure in batch.failures} == {4, 7} & set(part.tolist())


def test_a_cache_copies_nothing_that_needs_no_preparation():
    pixels = RNG.integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    cache = PictureCache(ImageArray(pixels), Preprocessing(8), 1 << 20)
    for _ in range(2):
        (batch,) = cache.load_parts([np.array([3, 1])])
        assert np.array_equal(batch.pixels, pixels[[3, 1]])
    assert cache._pixels.nbytes == 0


def test_closing_a_cache_stops_the_threads(folder):
    batches = PictureCache(folder, Preprocessing(8), 1 << 20).load_parts(
        [np.arange(6), np.arange(6, 12)]
    )
    next(batches)
    batches.close()
    assert not image_threads()
