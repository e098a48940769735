"""Duplicates on the real page: find, compare, choose, move to the trash and a folder, undo."""

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from page_service import BITS, check_state, needs_axe, serving
from PIL import Image
from playwright.sync_api import Locator, Page, Route, expect

import ddh.index

ORIGINALS, COPIED = 12, 5


@dataclass(frozen=True)
class Desk:
    """A service that may change files, and where they are."""

    address: str
    root: Path
    folder: Path


def collect(folder: Path) -> Path:
    """Soft random pictures, five of them twice and one of these three times, with random codes."""
    root, rng = folder / "photos", np.random.default_rng(5)
    (root / "backup").mkdir(parents=True)
    for number in range(ORIGINALS):
        blots = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        blots.resize((320, 240), Image.Resampling.BICUBIC).save(root / f"IMG_{number:02}.png")
    for number in range(COPIED):
        shutil.copy2(root / f"IMG_{number:02}.png", root / "backup" / f"copy_{number:02}.png")
    shutil.copy2(root / "IMG_00.png", root / "backup" / "again_00.png")
    keys = sorted(file.relative_to(root).as_posix() for file in root.rglob("*.png"))
    with ddh.index.open(folder / "photos.index", bits=BITS) as index:
        codes = rng.integers(0, 256, (len(keys), BITS // 8), dtype=np.uint8)
        index.add(keys, codes, paths=keys)
        index.set_setting(root=str(root))
    return folder / "photos.index"


@contextmanager
def serve(folder: Path, *options: str) -> Iterator[Desk]:
    own = {"DDH_CACHE": "cache", "DDH_STATE": "state", "XDG_DATA_HOME": "data", "HOME": "."}
    environment = {name: str(folder / place) for name, place in own.items()}
    with serving(collect(folder), *options, environment=environment) as address:
        yield Desk(address, folder / "photos", folder)


@pytest.fixture
def desk(chromium, tmp_path) -> Iterator[Desk]:
    """For a test that changes files."""
    with serve(tmp_path, "--writable") as desk:
        yield desk


@pytest.fixture(scope="module")
def shared(chromium, tmp_path_factory) -> Iterator[Desk]:
    """For tests that leave the files as they were, or undo what they do."""
    with serve(tmp_path_factory.mktemp("shared"), "--writable") as desk:
        yield desk


@pytest.fixture
def page(desk, open_page) -> Page:
    """The page after a search."""
    return search(open_page(f"{desk.address}#/duplicates"))


@pytest.fixture
def shown(shared, open_page, device) -> Page:
    """The same on every device, of files that are as they were afterwards."""
    return search(open_page(f"{shared.address}#/duplicates", **device))


def search(page: Page) -> Page:
    find = page.get_by_role("button", name="Find duplicates")
    expect(find.or_(page.locator(".group")).first).to_be_visible()
    if find.is_visible():
        find.click()
    expect(page.locator(".group")).to_have_count(COPIED)
    expect(page.get_by_role("button", name="Look again")).to_be_visible()
    expect(page.locator(".groups.waiting")).to_have_count(0)
    return page


def members(page: Page) -> Locator:
    return page.locator(".member:not(.kept)")


def exported(page: Page, name: str) -> str:
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Export the ticked as {name}").click()
    return download.value.path().read_text()


def test_nothing_is_read_until_someone_asks(desk, open_page):
    page = open_page(f"{desk.address}#/duplicates")
    expect(page.get_by_role("heading", name="Find pictures that are the same")).to_be_visible()
    assert page.locator(".group").count() == 0
    search(page)
    expect(page.locator(".duplicates .view-head")).to_contain_text("5 groups · 6 pictures could go")
    page.reload()  # the result is remembered
    expect(page.locator(".group")).to_have_count(COPIED)


def test_groups_side_by_side_with_kinds_and_one_to_keep(shown):
    page = shown
    for group in page.locator(".group").all():
        assert group.locator(".kept").count() == 1
        expect(group.locator(".kept .badge")).to_have_text("Keep")
        expect(group.locator(".member:not(.kept) .badge").first).to_have_text("Identical")
    expect(page.locator(".member").first).to_contain_text("320 × 240")


def test_no_group_leaves_a_blank_column(shown):
    """Every row of groups reaches from the left edge to the right one."""
    page = shown
    boxes = [group.bounding_box() for group in page.locator(".group").all()]
    room = page.locator(".groups").bounding_box()
    for top in {box["y"] for box in boxes}:
        row = [box for box in boxes if box["y"] == top]
        assert min(box["x"] for box in row) == pytest.approx(room["x"], abs=1)
        end = max(box["x"] + box["width"] for box in row)
        assert end == pytest.approx(room["x"] + room["width"], abs=1)


def undo(page: Page) -> Locator:
    """The way back from what was just done: it has the focus, and is in sight."""
    button = page.locator(".news").get_by_role("button", name="Undo")
    expect(button).to_be_focused()
    expect(button).to_be_in_viewport()
    return button


def test_the_trash_and_undo(shown, shared):
    page, desk = shown, shared
    key = members(page).first.get_attribute("data-key")
    content = (desk.root / key).read_bytes()
    members(page).first.get_by_role("checkbox").check()
    bar = page.get_by_role("region", name="The ticked")
    expect(bar).to_contain_text("1 ticked")
    bar.get_by_role("button", name="Move to the trash").click()
    expect(page.locator(".news")).to_contain_text("1 picture moved to the trash")
    expect(bar).to_be_hidden()
    assert not (desk.root / key).exists()
    assert len(list((desk.folder / "data" / "Trash" / "files").iterdir())) == 1
    expect(page.locator(f'.member[data-key="{key}"]')).to_have_count(0)
    undo(page)
    check_state(page, "moved to the trash")
    page.reload()  # undoing works later too
    page.locator(".news").get_by_role("button", name="Undo").click()
    expect(page.locator(f'.member[data-key="{key}"]')).to_have_count(1)
    assert (desk.root / key).read_bytes() == content
    assert list((desk.folder / "data" / "Trash" / "files").iterdir()) == []


def test_lists_know_of_pictures_in_the_trash(page, desk):
    copies = f"{desk.address}#/search?folder=backup"
    page.goto(copies)
    expect(page.locator(".grid .card:not(.placeholder)")).to_have_count(6)
    page.goto(f"{desk.address}#/duplicates")
    page.get_by_role("button", name="Tick all but the kept").click()
    page.get_by_role("button", name="Move to the trash").click()
    expect(page.locator(".news")).to_contain_text("6 pictures moved to the trash")
    page.goto(copies)
    expect(page.locator(".card.missing")).to_have_count(6)
    page.goto(f"{desk.address}#/duplicates")
    page.locator(".news").get_by_role("button", name="Undo").click()
    expect(page.locator(".group")).to_have_count(COPIED)
    page.goto(copies)
    expect(page.locator(".card.missing")).to_have_count(0)


def test_a_kind_without_pictures_is_not_taken_for_all(shared, open_page):
    page = search(open_page(f"{shared.address}#/duplicates"))
    page.goto(f"{shared.address}#/duplicates?kind=resized")
    expect(page.get_by_role("heading", name="None of this kind")).to_be_visible()
    kinds = page.get_by_label("Kind")
    expect(kinds).to_have_value("resized")
    kinds.select_option("identical")
    expect(page.locator(".group")).to_have_count(COPIED)
    expect(page.locator(".duplicates .status")).to_have_text("5 groups")  # not what all kinds are


def test_all_to_a_folder_and_back(page, desk):
    page.get_by_role("button", name="Tick all but the kept").click()
    assert page.locator(".ticked").count() == 6
    page.get_by_role("button", name="Move to a folder").click()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_role("textbox")
    assert field.input_value() == str(desk.folder / "photos-duplicates")
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(page.locator(".group")).to_have_count(0)
    expect(page.get_by_role("heading", name="No duplicates")).to_be_visible()
    moved = [file for file in (desk.folder / "photos-duplicates").rglob("*") if file.is_file()]
    assert len(moved) == 6
    page.locator(".news").get_by_role("button", name="Undo").click()
    expect(page.locator(".group")).to_have_count(COPIED)
    assert not (desk.folder / "photos-duplicates").exists()


def in_parts(route: Route) -> None:
    """The module of the view with requests of two pictures or groups."""
    text, changed = re.subn(
        r"^const (PAGE|MOST|BATCH) = \d+;", r"const \1 = 2;", route.fetch().text(), flags=re.M
    )
    assert changed == 3
    route.fulfill(body=text, content_type="text/javascript")


def test_requests_of_parts_are_ticked_listed_and_undone_as_one(desk, open_page):
    page = open_page(f"{desk.address}#/duplicates")
    search(page)
    page.route("**/duplicates.js", in_parts)
    page.reload()
    expect(page.locator(".group").first).to_be_visible()
    page.get_by_role("button", name="Tick all but the kept").click()
    bar = page.get_by_role("region", name="The ticked")
    expect(bar).to_contain_text("6 ticked")
    bar.get_by_role("button", name="Move to the trash").click()
    expect(page.locator(".news")).to_contain_text("6 pictures moved to the trash")
    journals = list((desk.folder / "state").rglob("dedup-*.jsonl"))
    assert len(journals) >= 3
    page.locator(".news").get_by_role("button", name="Undo").click()
    expect(page.locator(".news")).to_be_empty()
    assert len(list(desk.root.rglob("*.png"))) == ORIGINALS + COPIED + 1


def test_what_changed_meanwhile_is_named_and_stays(page, desk):
    key = members(page).first.get_attribute("data-key")
    other = desk.root.parent / "other.png"
    Image.new("RGB", (9, 9)).save(other)
    other.replace(desk.root / key)  # at once: its thumbnail may be read at any moment
    page.get_by_role("button", name="Tick all but the kept").click()
    page.get_by_role("button", name="Move to the trash").click()
    expect(page.locator(".news")).to_contain_text("1 picture left alone")
    expect(page.locator(".news")).to_contain_text(f"{key} it has changed")
    expect(page.locator(".news")).to_contain_text("5 pictures moved to the trash")
    assert (desk.root / key).is_file()


def test_another_one_is_kept(shown, shared):
    page, desk = shown, shared
    group = page.locator(".group").filter(has_text="again_00.png")
    kept = group.locator(".kept").get_attribute("data-key")
    spare = group.locator(".member:not(.kept)").first.get_attribute("data-key")
    group.get_by_role("button", name=f"Keep {spare.rpartition('/')[2]} instead").click()
    expect(group.locator(".kept")).to_have_attribute("data-key", spare)
    expect(group.locator(".kept .frame")).to_be_focused()
    check_state(page, "another one is kept")
    group.locator(f'.member[data-key="{kept}"]').get_by_role("checkbox").check()
    page.get_by_role("button", name="Move to the trash").click()
    expect(page.locator(".news")).to_contain_text("1 picture moved")
    assert (desk.root / spare).is_file()
    assert not (desk.root / kept).exists()
    undo(page).click()
    expect(page.locator(".news")).to_be_empty()
    assert (desk.root / kept).is_file()


def test_the_second_is_kept_after_comparing(shown):
    group = shown.locator(".group").filter(has_text="again_00.png")
    kept = group.locator(".kept").get_attribute("data-key")
    group.locator(".member:not(.kept) .frame").first.click()
    shown.get_by_role("dialog").get_by_role("button", name="Keep the second").click()
    expect(group.locator(".kept .frame")).to_be_focused()
    group.locator(f'.member[data-key="{kept}"] .frame').click()
    heading = shown.get_by_role("dialog").get_by_role("heading")
    expect(heading).to_have_text("Duplicate")  # the one that was to be kept is not any more


# When the last search ended, if not at the given time.
FINISHED = """async (before) => {
  const { state, finished } = await (await fetch("duplicates?limit=1")).json();
  return state !== "running" && finished !== before && finished;
}"""


def test_not_a_duplicate_is_remembered(shown, shared):
    page, desk = shown, shared
    group = page.locator(".group").filter(has_text="copy_03.png")
    group.get_by_role("button", name="is not a duplicate").click()
    expect(page.locator(".group")).to_have_count(COPIED - 1)
    way_back = undo(page)
    check_state(page, "dismissed")
    finished = page.evaluate(FINISHED, None)
    page.get_by_role("button", name="Look again").click()
    page.wait_for_function(FINISHED, arg=finished)
    expect(page.get_by_role("button", name="Look again")).to_be_focused()
    expect(page.locator(".group")).to_have_count(COPIED - 1)
    way_back.click()
    expect(page.locator(".group")).to_have_count(COPIED)
    assert len(list(desk.root.rglob("*.png"))) == ORIGINALS + COPIED + 1


def test_the_ticked_are_exported_as_lists_to_apply(page, desk, tmp_path):
    group = page.locator(".group").filter(has_text="copy_04.png")
    group.get_by_role("checkbox").check()
    files = {str(desk.root / "IMG_04.png"), str(desk.root / "backup" / "copy_04.png")}
    rows = list(csv.DictReader(io.StringIO(exported(page, "CSV"))))
    assert {row["path"] for row in rows} == files
    assert [row["kind"] for row in rows] == ["keep", "identical"]
    listed = exported(page, "JSON")
    (only,) = json.loads(listed)["groups"]
    assert {only["keep"], only["members"][0]["path"]} == files
    with page.expect_download() as download:
        page.get_by_role("link", name="All as CSV").click()
    assert len(download.value.path().read_text().splitlines()) == 1 + 2 * COPIED + 1
    from click.testing import CliRunner

    from ddh.cli import cli

    (tmp_path / "list.json").write_text(listed)
    options = ["--apply", tmp_path / "list.json", "--move-to", tmp_path / "away"]
    options += ["--journal", tmp_path / "journal.jsonl"]
    assert CliRunner().invoke(cli, ["dedup", *map(str, options)]).exit_code == 0
    assert Path(only["members"][0]["path"]).exists() is False


def test_comparing_side_by_side_and_with_the_slider(shown):
    page = shown
    group = page.locator(".group").filter(has_text="again_00.png")
    group.locator(".member:not(.kept) .frame").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("figure img")).to_have_count(2)
    check_state(page, "side by side")
    dialog.get_by_role("button", name="Overlay").click()
    expect(dialog.locator("canvas")).to_have_count(2)
    page.wait_for_function("() => document.querySelector('.stack canvas').width === 320")
    slider = dialog.get_by_role("slider")
    slider.focus()
    slider.press("End")
    assert slider.get_attribute("aria-valuetext") == "100 percent of the kept picture"
    assert (
        page.evaluate("() => document.querySelector('.stack').style.getPropertyValue('--at')")
        == "100%"
    )
    check_state(page, "overlay")
    first = dialog.locator("label span").nth(1).inner_text()
    dialog.get_by_role("button", name="Next picture").click()
    expect(dialog.locator("label span").nth(1)).not_to_have_text(first)
    dialog.get_by_role("checkbox").check()
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="The ticked")).to_contain_text("1 ticked")
    assert group.get_by_role("checkbox", checked=True).count() == 1


def test_a_service_that_is_read_only_shows_and_exports(open_page, browser, tmp_path):
    with serve(tmp_path) as desk:
        page = search(open_page(f"{desk.address}#/duplicates"))
        page.get_by_role("button", name="Tick all but the kept").click()
        bar = page.get_by_role("region", name="The ticked")
        expect(bar.get_by_role("button", name="Export the ticked as CSV")).to_be_visible()
        expect(bar.get_by_role("button", name="Move to the trash")).to_be_hidden()
        assert page.get_by_role("button", name="is not a duplicate").count() == 0
        page.close()


def before(route: Route, nothing: dict[str, object]) -> None:
    """An answer of the service as it was before its first search."""
    route.fulfill(json=route.fetch().json() | nothing)


@needs_axe
def test_every_state_is_accessible(shared, open_page, device):
    page = open_page("about:blank", **device)
    nothing = {"state": "none", "finished": None, "groups": [], "total": 0, "undo": None}
    page.route("**/duplicates?*", lambda route: before(route, nothing))
    page.goto(f"{shared.address}#/duplicates")
    expect(page.get_by_role("button", name="Find duplicates")).to_be_visible()
    check_state(page, "before a search")
    page.unroute("**/duplicates?*")
    page.reload()
    search(page)
    check_state(page, "groups")
    page.get_by_role("button", name="Tick all but the kept").click()
    check_state(page, "ticked")
    page.get_by_role("button", name="Move to a folder").click()
    check_state(page, "a folder is asked for")
