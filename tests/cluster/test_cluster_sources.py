"""Pictures listed, cut into batches and read from folders and URLs, without a cluster."""

import os
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

from ddh._core.errors import DDHError, InputError, MissingDependency
from ddh.cluster.batches import Batch, ImageFile, cut
from ddh.cluster.pipeline import WINDOWS, _ahead
from ddh.cluster.sources import DownloadedImages, ImageLocation, parts
from ddh.images import ImageFolder, UnreadableImage, decode
from ddh.index.collection import content_digest


@pytest.fixture
def memory(some_photos: Path):
    """The pictures in fsspec's file system in memory, one of them with an awkward name."""
    fs = fsspec.filesystem("memory")
    for file in some_photos.rglob("*.png"):
        fs.pipe(f"/bucket/{file.relative_to(some_photos)}", file.read_bytes())
    first = next(some_photos.rglob("*.png"))
    fs.pipe("/bucket/two/odd [1]*.png", first.read_bytes())
    (some_photos / "two" / "odd [1]*.png").write_bytes(first.read_bytes())
    for hidden in (".hidden.png", ".folder/a.png", "notes.txt"):
        fs.pipe(f"/bucket/{hidden}", b"")
    yield fs
    fs.rm("/bucket", recursive=True)


def test_a_url_lists_the_keys_of_the_same_folder(some_photos, memory, tmp_path):
    expected = sorted(ImageFolder(some_photos).names)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in expected:
            archive.write(some_photos / name, f"photos/{name}")
    for url in (str(some_photos), f"file://{some_photos}", "memory://bucket", "memory://bucket/",
                f"zip://photos::file://{tmp_path}/a.zip"):  # fmt: skip
        source = ImageLocation(url)
        source.check()
        listed = list(source.files())
        assert sorted(picture.key for picture in listed) == expected
        assert [p.key for p in source.files()] == [p.key for p in listed]
        sizes = {picture.key: picture.size for picture in listed}
        assert sizes == {name: (some_photos / name).stat().st_size for name in expected}
        assert all(picture.mtime_ns > 0 for picture in listed)
    assert {p.key for p in ImageLocation("memory://bucket/two", "two").files()} == {
        name for name in expected if name.startswith("two/")
    }


def test_a_stamp_is_that_of_the_file_system(tmp_path):
    (tmp_path / "a.png").touch()
    os.utime(tmp_path / "a.png", ns=(1, 1_234_567_890_123_456_789))
    assert next(ImageLocation(str(tmp_path)).files()).mtime_ns == 1_234_567_890_123_456_789
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("a.png", (2020, 1, 2, 3, 4, 6)), b"")
    picture = next(ImageLocation(f"zip://::file://{tmp_path}/a.zip").files())
    assert picture.mtime_ns == datetime(2020, 1, 2, 3, 4, 6, tzinfo=UTC).timestamp() * 1e9


@pytest.mark.parametrize("at_once", [False, True])
def test_remote_pictures_are_those_of_the_files(some_photos, memory, at_once):
    """Also from a file system that fetches many files at once, as object stores do."""
    source = ImageLocation("memory://bucket")
    pictures = list(source.files())
    fs = AsyncFileSystemWrapper(memory) if at_once else memory
    remote = DownloadedImages(fs, pictures)
    for i, picture in enumerate(pictures):
        file = some_photos / picture.key
        assert np.array_equal(remote.read_reduced(i, 8), decode(file))
        assert remote.digest(i) == content_digest(file)


def test_a_missing_picture_is_bad_and_a_failing_server_is_not(memory):
    gone = ImageFile("gone.png", "/bucket/gone.png", 1, 1)
    with pytest.raises(UnreadableImage, match=r"gone.png: cannot be opened"):
        DownloadedImages(memory, [gone]).read(0)
    huge = ImageFile("huge.png", "/bucket/huge.png", 1 << 40, 1)
    with pytest.raises(UnreadableImage, match=r"larger than the limit"):
        DownloadedImages(memory, [huge]).read(0)

    class Tired(type(memory)):
        def cat_file(self, *arguments, **options):
            raise TimeoutError("slow down")

    with pytest.raises(TimeoutError):  # so that the batch is tried again
        DownloadedImages(Tired(), [gone])


def test_files_are_downloaded_in_parts_that_fit_into_memory():
    files = [ImageFile(str(i), "", size, 1) for i, size in enumerate([1] * 100 + [100 << 20] * 3)]
    assert [len(part) for part in parts(files)] == [64, 37, 1, 1]
    assert [file for part in parts(files) for file in part] == files


def test_what_cannot_be_read_is_said_clearly(tmp_path):
    with pytest.raises(MissingDependency, match="s3fs"):
        ImageLocation("s3://bucket/photos")
    with pytest.raises(InputError, match="bogus"):
        ImageLocation("bogus://photos")
    with pytest.raises(InputError, match="is not there on the node"):
        ImageLocation("memory://nowhere").check()
    with pytest.raises(InputError, match=f"{tmp_path}/none is not there on the node"):
        ImageLocation(str(tmp_path / "none")).check()
    with pytest.raises(DDHError, match="cannot be listed"):
        list(ImageLocation("memory://nowhere").files())


def pictures(count: int, *, without: int = -1) -> list[ImageFile]:
    return [ImageFile(f"{i:06d}.png", "", 1, 1) for i in range(count) if i != without]


@pytest.mark.parametrize("size", [1, 2, 7, 256])
def test_batches_hold_every_picture_once_in_order(size):
    batches = list(cut(pictures(3000), size))
    assert [picture for batch in batches for picture in batch.files] == pictures(3000)
    assert max(map(len, batches)) <= size
    assert len(batches) <= 2 * 3000 / size + 1
    assert len({batch.id for batch in batches}) == len(batches)


def test_a_picture_more_or_less_changes_few_batches():
    before = {batch.id for batch in cut(pictures(20_000), 128)}
    after = [batch.id for batch in cut(pictures(20_000, without=3), 128)]
    assert sum(batch not in before for batch in after) <= 8
    touched = pictures(20_000)
    touched[500] = touched[500]._replace(mtime_ns=2)
    assert sum(batch.id not in before for batch in cut(touched, 128)) == 1


def test_a_listing_runs_one_window_ahead():
    made = 0

    def items():
        nonlocal made
        for number in range(3000):
            made = number + 1
            yield Batch([ImageFile(f"{number}", "", 1, 1)])

    taken = []
    for window in _ahead(items()):
        taken.append(len(window))
        assert made <= sum(taken) + WINDOWS[-1]
    assert taken == [*WINDOWS, 1024, 632]

    def broken():
        yield from items()
        raise InputError("the listing broke")

    with pytest.raises(InputError, match="listing broke"):
        list(_ahead(broken()))
