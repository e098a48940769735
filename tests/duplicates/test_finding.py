"""Duplicates of real files: edits are found and named, look-alikes are not proposed."""

import os
import shutil
import sqlite3
from contextlib import closing, nullcontext

import cv2
import numpy as np
import pytest
from photographs import photograph
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

from ddh._core.errors import DDHWarning, InputError
from ddh.bench.edits import SINGLE
from ddh.duplicates import find_duplicates
from ddh.duplicates.lists import Pair, verify

KIND = {
    "size": {"resized"}, "codec": {"recompressed"}, "crop": {"cropped", "overlaid"},
    "light": {"adjusted"}, "overlay": {"overlaid"},
}  # fmt: skip
LISTED = [edit.name for edit in SINGLE]


def only_pair(folder, **options):
    found = find_duplicates(folder, **options)
    assert [len(group.members) for group in found] == [1]
    return found.groups[0]


@pytest.mark.parametrize("edit", SINGLE, ids=LISTED)
def test_each_edit_is_found_among_others_and_named(tmp_path, edit):
    image = photograph(1)
    image.save(tmp_path / "original.png")
    for seed in (2, 3):
        photograph(seed).save(tmp_path / f"{seed}.png")
    content, ending = edit(image, np.random.default_rng(4))
    (tmp_path / f"edited{ending}").write_bytes(content)
    group = only_pair(tmp_path)
    assert {group.keep.path.stem, group.members[0].picture.path.stem} == {"original", "edited"}
    kinds = set(KIND.get(edit.family, ())) or {"mirrored" if edit.name == "mirror" else "turned"}
    if edit.name == "watermark":
        kinds |= {"recompressed"}  # half transparent, it may leave the structure as it was
    assert group.members[0].kind in kinds
    assert 0.7 < group.members[0].score <= 1


def test_same_pixels_in_another_format(tmp_path):
    photograph(5).save(tmp_path / "a.png")
    photograph(5).save(tmp_path / "b.tif")
    assert only_pair(tmp_path).members[0].kind == "same-pixels"


def test_the_stored_turn_of_a_camera_is_applied(tmp_path):
    image = photograph(5)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "camera.png", exif=exif)
    image.save(tmp_path / "upright.png")
    group = only_pair(tmp_path)
    assert group.members[0].kind == "same-pixels"
    assert (group.keep.width, group.keep.height) == image.size


def warped(image: Image.Image, amount: float) -> Image.Image:
    """As if things had moved a little: a smooth, uneven shift of up to `amount` of the width."""
    pixels = np.asarray(image)
    height, width = pixels.shape[:2]
    rng = np.random.default_rng(0)
    shifts = [
        cv2.resize(rng.uniform(-1, 1, (4, 4)).astype(np.float32), (width, height),
                   interpolation=cv2.INTER_CUBIC) * amount * width
        for _ in range(2)
    ]  # fmt: skip
    y, x = np.mgrid[:height, :width].astype(np.float32)
    return Image.fromarray(cv2.remap(pixels, x + shifts[0], y + shifts[1], cv2.INTER_LINEAR))


def test_look_alikes_are_similar_and_never_duplicates(tmp_path):
    image = photograph(6)
    image.save(tmp_path / "a.png")
    warped(image, 0.03).save(tmp_path / "b.png")
    found = find_duplicates(tmp_path)
    assert found.groups == []
    assert [{pair.first.path.name, pair.second.path.name} for pair in found.similar] == [
        {"a.png", "b.png"}
    ]


def test_another_background_is_not_a_duplicate(tmp_path):
    front, back = np.asarray(photograph(6)), np.asarray(photograph(7))
    y, x = np.mgrid[: front.shape[0], : front.shape[1]]
    inside = np.hypot(x / front.shape[1] - 0.5, y / front.shape[0] - 0.5) < 0.3
    Image.fromarray(front).save(tmp_path / "a.png")
    Image.fromarray(np.where(inside[..., None], front, back)).save(tmp_path / "b.png")
    assert find_duplicates(tmp_path).groups == []


def pasted(image: Image.Image, part: Image.Image, place: tuple[int, int]) -> Image.Image:
    """A round thing in front of a picture."""
    mask = Image.new("L", part.size)
    ImageDraw.Draw(mask).ellipse((0, 0, *part.size), fill=255)
    image = image.copy()
    image.paste(part, place, mask)
    return image


def numbered(image: Image.Image, number: str) -> Image.Image:
    image = image.copy()
    ImageDraw.Draw(image).text((40, 30), number, (20, 20, 60), ImageFont.load_default(30))
    return image


@pytest.mark.parametrize("case", ["replaced", "moved", "appeared", "number", "painted"])
def test_one_scene_with_another_thing_is_not_a_duplicate(tmp_path, case):
    """The rest is equal to the pixel; what differs was not laid on a picture, as text is."""
    scene, thing, other = photograph(6), photograph(7, (90, 70)), photograph(8, (90, 70))
    bright = scene.point(lambda level: 128 + level // 2)
    first, second = {
        "replaced": (pasted(scene, thing, (90, 80)), pasted(scene, other, (90, 80))),
        "moved": (pasted(scene, thing, (60, 60)), pasted(scene, thing, (150, 100))),
        "appeared": (scene, pasted(scene, thing, (120, 90))),
        "number": (numbered(bright, "B7 2048391"), numbered(bright, "K4 9173565")),
        "painted": (scene, scene),
    }[case]
    if case == "painted":
        red, green, blue = second.crop((90, 80, 180, 150)).split()
        second = pasted(scene, Image.merge("RGB", (blue, red, green)), (90, 80))
    first.save(tmp_path / "a.jpg", quality=92)
    second.save(tmp_path / "b.jpg", quality=92)
    found = find_duplicates(tmp_path)
    assert found.groups == []
    assert len(found.similar) == 1


@pytest.mark.parametrize("name", ["watermark", "text", "border"])
def test_the_picture_without_what_was_laid_on_it_is_kept(tmp_path, name):
    image = photograph(1)
    image.save(tmp_path / "original.jpg", quality=70)
    (edit,) = (edit for edit in SINGLE if edit.name == name)
    content, ending = edit(image, np.random.default_rng(4))  # more bytes, of better quality
    (tmp_path / f"edited{ending}").write_bytes(content)
    assert only_pair(tmp_path).keep.path.stem == "original"
    assert find_duplicates(tmp_path, keep="bytes").groups[0].keep.path.stem == "edited"


def test_the_original_is_kept_among_several_overlays(tmp_path):
    """The largest file has text; the next one a watermark, and is cleaner than the first only."""
    image = photograph(1)
    image.save(tmp_path / "original.jpg", quality=70)
    image.resize((160, 120)).save(tmp_path / "half.jpg", quality=70)
    for name in ("text", "watermark"):
        (edit,) = (edit for edit in SINGLE if edit.name == name)
        edited = edit.change(image, np.random.default_rng(4))
        edited.save(tmp_path / f"{name}.jpg", quality=96)
    (group,) = find_duplicates(tmp_path)
    assert group.keep.path.stem == "original"
    assert {member.picture.path.stem for member in group.members} == {"half", "text", "watermark"}


def camera() -> Image.Exif:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Maker", "Camera 1"
    exif.get_ifd(0x8769)[0x9003] = "2024:05:03 10:22:31"
    return exif


POORER = {
    "grey": lambda image: image.convert("L"),
    "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(2)),
    "tilted": lambda image: image.rotate(1.5, Image.Resampling.BICUBIC),
    "same": lambda image: image,
}


@pytest.mark.parametrize("ending", [".jpg", ".png"])
@pytest.mark.parametrize(
    ("name", "exif"),
    [*((name, camera()) for name in POORER), ("grey", Image.Exif()), ("blurred", Image.Exif())],
)
def test_an_original_is_never_removed_for_a_poorer_copy_of_its_size(tmp_path, name, exif, ending):
    """However many bytes the copy has. Only EXIF tells a tilted or recompressed one."""
    photograph(1, (640, 480)).save(tmp_path / "original.jpg", quality=85, exif=exif)
    copy = POORER[name](Image.open(tmp_path / "original.jpg"))
    options = {"exif": Image.Exif(), **({"quality": 98} if ending == ".jpg" else {})}
    copy.save(tmp_path / f"copy{ending}", **options)
    assert only_pair(tmp_path).keep.path.stem == "original"
    assert only_pair(tmp_path, keep="newest").keep.path.stem == "copy"


def test_neither_goes_where_each_has_what_the_other_lacks(tmp_path):
    image = photograph(1)
    image.save(tmp_path / "colour.jpg", quality=85)
    image.convert("L").save(tmp_path / "camera.jpg", quality=85, exif=camera())
    found = find_duplicates(tmp_path)
    assert found.groups == []
    assert len(found.similar) == 1
    assert only_pair(tmp_path, keep="path").keep.path.stem == "camera"
    colour, grey = tmp_path / "colour.jpg", tmp_path / "camera.jpg"
    assert verify([Pair(colour, grey), Pair(grey, colour)])[1] == []  # somebody has chosen


@pytest.mark.parametrize("ending", [".gif", ".webp", ".png", ".tif"])
def test_a_file_with_several_frames_is_no_duplicate_of_its_first(tmp_path, ending):
    first, *others = map(photograph, (1, 2, 3))
    first.save(tmp_path / f"moving{ending}", save_all=True, append_images=others)
    shutil.copy(tmp_path / f"moving{ending}", tmp_path / f"again{ending}")
    first.save(tmp_path / "still.png")
    found = find_duplicates(tmp_path)
    assert [[member.kind for member in group.members] for group in found] == [["identical"]]
    assert "still" not in {found.groups[0].keep.path.stem, found.removable[0].picture.path.stem}
    assert len(found.similar) == 1


def test_the_second_picture_of_a_phone_is_no_frame(tmp_path):
    """A gain map, or the depth: a file in the Multi-Picture Format shows one picture."""
    first, *others = map(photograph, (1, 2, 3))
    first.save(tmp_path / "phone.jpg", "MPO", save_all=True, append_images=others, quality=95)
    assert Image.open(tmp_path / "phone.jpg").n_frames == 3
    first.save(tmp_path / "sent.jpg", quality=60)
    assert only_pair(tmp_path).keep.path.stem == "phone"


def test_flat_pictures_are_not_all_the_same(tmp_path):
    for level in (40, 120, 200):
        Image.new("RGB", (64, 64), (level, level, 90)).save(tmp_path / f"{level}.png")
    assert find_duplicates(tmp_path).groups == []


def test_groups_have_no_chains(tmp_path):
    """Two windows of a picture that hardly overlap are both duplicates of it, not of each other."""
    image = photograph(8, (400, 300))
    image.crop((0, 0, 260, 300)).save(tmp_path / "left.png")
    image.crop((140, 0, 400, 300)).save(tmp_path / "right.png")
    assert find_duplicates(tmp_path).groups == []
    image.save(tmp_path / "whole.png")
    group = find_duplicates(tmp_path).groups[0]
    assert group.keep.path.name == "whole.png"
    assert {m.picture.path.name for m in group.members} == {"left.png", "right.png"}
    assert {m.kind for m in group.members} == {"cropped"}
    assert find_duplicates(tmp_path, keep="smallest").groups[0].keep.path.name != "whole.png"
    assert len(find_duplicates(tmp_path, keep="smallest").removable) == 1


def test_copies_of_a_member_follow_it(tmp_path):
    image = photograph(9)
    image.save(tmp_path / "a.png")
    ImageEnhance.Brightness(image).enhance(0.7).save(tmp_path / "dark.png")
    shutil.copy(tmp_path / "dark.png", tmp_path / "dark 2.png")
    shutil.copy(tmp_path / "a.png", tmp_path / "a 2.png")
    (group,) = find_duplicates(tmp_path, keep="path")
    assert [(m.picture.path.name, m.kind) for m in group.members] == [
        ("a.png", "identical"), ("dark 2.png", "adjusted"), ("dark.png", "adjusted")
    ]  # fmt: skip


def test_a_second_search_reads_new_and_changed_files_only(tmp_path, monkeypatch):
    import ddh.duplicates.cache as module

    read = []
    original = module.fingerprint
    monkeypatch.setattr(module, "fingerprint", lambda f: read.append(f.name) or original(f))
    folder, cache = tmp_path / "photos", tmp_path / "cache" / "f.sqlite"
    folder.mkdir()
    for seed in range(3):
        photograph(seed).save(folder / f"{seed}.png")
    photograph(1).resize((160, 120)).save(folder / "small.png")
    first = find_duplicates(folder, cache=cache)
    assert len(read) == 4
    assert find_duplicates(folder, cache=cache) == first
    assert len(read) == 4
    photograph(7).save(folder / "2.png")
    photograph(2).save(folder / "new.png")
    find_duplicates(folder, cache=cache)
    assert sorted(read[4:]) == ["2.png", "new.png"]


def without_its_table(cache):
    """As an interrupted first search leaves it."""
    with closing(sqlite3.connect(cache)) as database:
        database.execute("DROP TABLE fingerprints")


def with_damaged_pages(cache):
    cache.write_bytes(cache.read_bytes()[:4096].ljust(cache.stat().st_size, b"x"))


def with_other_content(cache):
    cache.write_bytes(b"not a database" * 100)


@pytest.mark.parametrize(
    ("damage", "warns"),
    [
        (without_its_table, nullcontext()),
        (with_damaged_pages, pytest.warns(DDHWarning, match="cannot be used.*delete it")),
        (with_other_content, pytest.warns(DDHWarning, match="cannot be used.*delete it")),
    ],
)
def test_a_damaged_cache_is_done_without(tmp_path, damage, warns):
    folder, cache = tmp_path / "photos", tmp_path / "f.sqlite"
    folder.mkdir()
    photograph(1).save(folder / "a.png")
    photograph(1).resize((160, 120)).save(folder / "small.png")
    first = find_duplicates(folder, cache=cache)
    damage(cache)
    with warns:
        assert find_duplicates(folder, cache=cache).groups == first.groups


def test_a_pipe_is_skipped(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    photograph(1).save(tmp_path / "a.png")
    found = find_duplicates(tmp_path)
    assert (found.compared, found.skipped) == (1, [])
    (skipped,) = find_duplicates([tmp_path / "a.png", tmp_path / "pipe.jpg"]).skipped
    assert "not a regular file" in skipped.reason


def test_nothing_to_search(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        find_duplicates(tmp_path / "missing")
    with pytest.raises(InputError, match="no folders"):
        find_duplicates([])
    with pytest.raises(InputError, match="keep is one of"):
        find_duplicates(tmp_path, keep="best")
