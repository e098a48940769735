"""Browsing on the real page: names, folders, dates, details, selection, tags, saved searches."""

import csv
import io
import itertools
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_service import DEVICES, PATIENCE, check_state, collect_photos, needs_axe, serving
from playwright.sync_api import Page, Route, expect

COUNT = 120
CARDS = ".grid .card:not(.placeholder)"
STATUS = ".results .status"


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return collect_photos(tmp_path_factory.mktemp("browse"), COUNT)


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> Path:
    """The file that a stand-in for xdg-open writes what it is given to."""
    folder = tmp_path_factory.mktemp("desktop")
    script = folder / "xdg-open"
    script.write_text(f'#!/bin/sh\necho "$1" >> {folder / "opened"}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return folder / "opened"


@pytest.fixture(scope="module")
def desk(browser, photos, own_folders, opened) -> Iterator[str]:
    path = {"PATH": f"{opened.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(photos.parent)}
    with serving(photos, "--writable", environment=own_folders | path) as address:
        yield address


@pytest.fixture
def page(open_page, desk) -> Page:
    tab = open_page(desk, permissions=["clipboard-read", "clipboard-write"])
    expect(tab.locator(f"{CARDS} img.loaded").first).to_be_visible()
    return tab


def keys(page: Page) -> list[str]:
    return page.locator(f"{CARDS} .name[title]").evaluate_all("all => all.map((e) => e.title)")


def test_names_are_found_as_one_types(page):
    field = page.get_by_role("searchbox")
    field.press_sequentially("lisbon img_00")
    expect(page.locator(STATUS)).to_contain_text("25 pictures")  # 0000, 0004, ..., 0096
    assert all("Lisbon" in key for key in keys(page))
    assert "q=lisbon+img_00" in page.url
    field.fill("2020 march canon 2d")
    expect(page.locator(STATUS)).to_contain_text("picture")
    expect(page.get_by_role("heading", level=1)).to_have_text("“2020 march canon 2d”")
    field.fill("nothing has this name")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    field.fill("")
    expect(page.get_by_role("heading", name="The collection")).to_be_visible()
    expect(page.locator(STATUS)).to_have_text(f"{COUNT} pictures")


def test_the_folder_tree_opens_and_narrows(page):
    tree = page.get_by_role("navigation", name="Folders")
    expect(tree.get_by_role("link", name="Albums 60")).to_be_visible()
    tree.get_by_role("button", name="Folders in Albums", exact=True).click()
    tree.get_by_role("link", name="Lisbon 30").click()
    expect(page.locator(STATUS)).to_contain_text("30 pictures")
    assert all(key.startswith("Albums/Lisbon/") for key in keys(page))
    page.reload()
    expect(tree.get_by_role("link", name="Lisbon 30")).to_have_attribute("aria-current", "true")
    page.go_back()
    expect(page.locator(STATUS)).to_contain_text(f"{COUNT} pictures")


def test_the_timeline_chooses_months_and_years(page):
    page.get_by_role("button", name="May 2020").click()
    expect(page.get_by_role("heading", name="May 2020")).to_be_visible()
    shown = page.locator(CARDS).count()
    assert 0 < shown < COUNT
    page.get_by_role("button", name="All of 2020").click()
    expect(page.locator(STATUS)).to_contain_text("40 pictures")
    expect(page.locator('.month[aria-pressed="true"]').first).to_be_visible()
    page.get_by_role("button", name="All of 2020").click()
    expect(page.locator(STATUS)).to_contain_text(f"{COUNT} pictures")
    page.locator('.month[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator('.month[aria-pressed="true"]')).to_have_count(1)


def test_the_years_of_a_timeline_have_room(open_page, desk):
    page = open_page(desk, **DEVICES["phone"])
    months = [{"month": f"{year}-{month:02}", "rows": 3} for year in range(2013, 2026)
              for month in (11, 12)[year > 2013 :]]  # fmt: skip
    page.route(re.compile(r"/timeline(\?|$)"), lambda route: route.fulfill(json={"months": months}))
    page.reload()
    years = page.locator(".year")
    expect(years.first).to_be_visible()
    places = [years.nth(i).bounding_box() for i in range(years.count())]
    assert len(places) >= 4
    for place, following in itertools.pairwise(places):
        assert place["x"] + place["width"] <= following["x"] + 6  # of empty room in the buttons


def test_the_order_by_date_and_name(page):
    page.get_by_label("Order").select_option("newest")
    page.wait_for_url("**order=newest")
    expect(page.locator(f"{CARDS} .name[title]").first).to_have_attribute(
        "title", re.compile("/2021/")
    )
    page.get_by_label("Order").select_option("name")
    page.wait_for_url("**order=name")
    expect(page.locator(f"{CARDS} .name[title]").first).to_have_attribute(
        "title", "Albums/Lisbon/2019/IMG_0000.jpg"
    )


def open_details(page: Page, at: int = 5) -> None:
    page.locator(CARDS).nth(at).hover()
    page.locator(".about").nth(at).click()
    expect(page.get_by_role("dialog").locator(".facts")).to_contain_text("Camera")


def test_details_name_date_camera_place_and_file(page, photos):
    open_details(page)
    facts = page.get_by_role("dialog").locator(".facts")
    key = keys(page)[5]
    for words in ("2021", "Canon EOS 0D", "48.8583° N, 2.2944° E", "400 × 300", "kB"):
        expect(facts).to_contain_text(words)
    expect(facts).to_contain_text(str(photos.parent / "photos" / key))


def test_details_open_and_reveal_the_file(page, photos, opened):
    open_details(page)
    key = keys(page)[5]
    file = photos.parent / "photos" / key
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Open the original").click()
    expect(page.locator(".toasts")).to_contain_text("usual program")
    dialog.get_by_role("button", name="Show in folder").click()
    expect(page.locator(".toasts")).to_contain_text("file manager")
    page.wait_for_timeout(100)
    for _ in range(300):
        if opened.exists() and len(opened.read_text().splitlines()) == 2:
            break
        page.wait_for_timeout(100)
    assert opened.read_text().splitlines() == [str(file), str(file.parent)]
    dialog.get_by_role("button", name="Copy the path").click()
    expect(dialog.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("() => navigator.clipboard.readText()") == str(file)


def test_the_picture_is_zoomed_dragged_and_fills_the_screen(page):
    open_details(page)
    image = page.get_by_role("dialog").locator("img.large")
    before = image.bounding_box()["width"]
    page.keyboard.press("+")
    assert image.bounding_box()["width"] > 1.5 * before
    box = page.locator(".detail-picture").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    left = image.bounding_box()["x"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y, steps=3)
    page.mouse.up()
    assert image.bounding_box()["x"] == pytest.approx(left + 60, abs=1)
    page.keyboard.press("0")
    assert image.bounding_box()["width"] == pytest.approx(before)
    page.mouse.wheel(0, -300)
    assert image.bounding_box()["width"] > before
    page.keyboard.press("f")
    page.wait_for_function("() => document.fullscreenElement?.matches('.detail-picture')")
    page.keyboard.press("ArrowRight")
    expect(page.locator("img.large")).to_have_attribute("src", re.compile("IMG_0006"))
    assert page.evaluate("() => Boolean(document.fullscreenElement)")
    page.keyboard.press("f")
    page.wait_for_function("() => !document.fullscreenElement")


def test_the_details_go_on_behind_what_is_loaded(page):
    open_details(page, 0)
    for number in range(1, 51):  # a page of the list has 48
        page.keyboard.press("ArrowRight")
        expect(page.locator("#detail-title")).to_have_text(f"IMG_{number:04}.jpg")
    page.keyboard.press("Escape")
    expect(page.locator('[data-index="50"] .card-link')).to_be_focused()


def select(page: Page, *places: int) -> list[str]:
    for place in places:
        page.locator(CARDS).nth(place).hover()
        page.locator(".select-box").nth(place).click()
    expect(page.get_by_role("region", name="The selected pictures")).to_contain_text(
        f"{len(places)} selected"
    )
    return [keys(page)[place] for place in places]


def test_selected_pictures_are_copied_and_exported(page, photos):
    chosen = select(page, 1, 2, 7)
    bar = page.get_by_role("region", name="The selected pictures")
    bar.get_by_role("button", name="Copy paths").click()
    expect(page.locator(".toasts")).to_contain_text("3 paths copied")
    files = [str(photos.parent / "photos" / key) for key in chosen]
    assert page.evaluate("() => navigator.clipboard.readText()").splitlines() == files
    with page.expect_download() as download:
        bar.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert [row["key"] for row in rows] == chosen
    assert rows[0]["camera"] == "Canon EOS 1D"
    with page.expect_download() as download:
        bar.get_by_role("button", name="JSON").click()
    assert [row["key"] for row in json.loads(download.value.path().read_text())] == chosen
    bar.get_by_role("button", name="Clear").click()
    expect(bar).to_be_hidden()


def test_selecting_with_keys_and_ranges(page):
    bar = page.get_by_role("region", name="The selected pictures")
    page.locator(f"{CARDS} a").first.focus()
    page.keyboard.press("x")
    expect(bar).to_contain_text("1 selected")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(bar).to_contain_text("3 selected")
    page.locator(f"{CARDS} a").nth(8).click(modifiers=["Shift"])
    expect(bar).to_contain_text("9 selected")
    page.locator(f"{CARDS} a").nth(8).click(modifiers=["ControlOrMeta"])
    expect(bar).to_contain_text("8 selected")
    page.locator(f"{CARDS} a").first.focus()
    page.keyboard.press("Escape")
    expect(bar).to_be_hidden()


def test_all_of_a_list_are_selected_also_those_not_shown(page, photos):
    bar = page.get_by_role("region", name="The selected pictures")
    select(page, 0)
    bar.get_by_role("button", name=f"Select all {COUNT} pictures").click()
    expect(bar).to_contain_text(f"{COUNT} selected")
    expect(bar.get_by_role("button", name="Select all")).to_be_hidden()
    bar.get_by_role("button", name="Copy paths").click()
    expect(page.locator(".toasts")).to_contain_text(f"{COUNT} paths copied")
    copied = page.evaluate("() => navigator.clipboard.readText()").splitlines()
    assert len(set(copied)) == COUNT
    with page.expect_download() as download:
        bar.get_by_role("button", name="JSON").click()
    listed = json.loads(download.value.path().read_text())
    assert len({row["key"] for row in listed}) == COUNT
    assert all(row["camera"] for row in listed)
    bar.get_by_role("button", name="Clear").click()
    page.get_by_role("searchbox").fill("lisbon")
    expect(page.locator(STATUS)).to_contain_text("30 pictures")
    page.locator(f"{CARDS} a").first.focus()
    page.keyboard.press("ControlOrMeta+a")
    expect(bar).to_contain_text("30 selected")
    page.get_by_role("searchbox").fill("")
    expect(bar.get_by_role("button", name=f"Select all {COUNT} pictures")).to_be_visible()


def test_tags_are_given_found_and_taken(page):
    select(page, 0, 3)
    page.get_by_role("region", name="The selected pictures").get_by_role(
        "button", name="Tag"
    ).click()
    page.get_by_label("Tags, with spaces").fill("Best #harbour")
    page.keyboard.press("Enter")
    tags = page.get_by_role("navigation", name="Tags")
    expect(tags.get_by_role("link", name="#best 2")).to_be_visible()
    tags.get_by_role("link", name="#harbour 2").click()
    expect(page.locator(STATUS)).to_contain_text("2 pictures")
    open_details(page, 0)
    dialog = page.locator("dialog.detail")
    dialog.get_by_role("button", name="Remove the tag best").click()
    expect(dialog.locator(".chip")).to_have_count(1)
    dialog.get_by_role("link", name="#harbour").click()
    expect(dialog).to_be_hidden()  # the list is there already
    expect(page.get_by_role("heading", name="“#harbour”")).to_be_visible()
    expect(tags.get_by_role("link", name="#best 1")).to_be_visible()


def test_searches_are_saved_and_deleted(page):
    page.get_by_role("searchbox").fill("paris")
    expect(page.locator(STATUS)).to_contain_text("30 pictures")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_label("Name", exact=True).fill("Paris in spring")
    page.keyboard.press("Enter")
    saved = page.get_by_role("navigation", name="Saved searches")
    expect(saved.get_by_role("link", name="Paris in spring")).to_be_visible()
    page.get_by_role("link", name="ddh").first.click()
    expect(page.get_by_role("heading", name="The collection")).to_be_visible()
    page.reload()
    saved.get_by_role("link", name="Paris in spring").click()
    expect(page.get_by_role("searchbox")).to_have_value("paris")
    saved.get_by_role("button", name="Delete the search Paris in spring").click()
    expect(saved.get_by_role("link")).to_have_count(0)


def test_a_folder_is_chosen_and_what_fails_is_said(open_page, desk, photos):
    page = open_page(f"{desk}#/jobs", expected=(422,))
    page.get_by_role("button", name="Add a folder").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("textbox")).to_have_value(str(photos.parent))
    dialog.get_by_role("button", name="photos", exact=True).click()
    dialog.get_by_role("button", name="Albums").click()
    expect(dialog.get_by_role("textbox")).to_have_value(str(photos.parent / "photos" / "Albums"))
    dialog.get_by_role("button", name="The folder above").click()
    expect(dialog.get_by_role("textbox")).to_have_value(str(photos.parent / "photos"))
    dialog.get_by_role("textbox").fill("/no/such/folder")
    dialog.get_by_role("button", name="Add this folder").click()
    expect(dialog.get_by_role("alert")).to_contain_text("/no/such/folder")
    dialog.get_by_role("textbox").fill(str(photos.parent / "photos"))
    dialog.get_by_role("button", name="Add this folder").click()
    expect(dialog).to_be_hidden()
    job = page.get_by_role("article")  # every file is as it was: nothing to encode
    expect(job.locator(".state")).to_have_text("done")
    job.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()


RUNNING = """
import ddh._core.jobs, sys
with ddh._core.jobs.job("index add", "Holidays in Portugal") as job:
    stage = ddh._core.jobs.stage("Encoding", 100, "picture")
    for line in sys.stdin:
        stage.advance(int(line))
        job.write(now=True)
"""


def often(route: Route) -> None:
    """The module of the jobs, which asks for them five times per second."""
    text = route.fetch().text()
    assert "const INTERVAL = 2000;" in text
    route.fulfill(
        body=text.replace("const INTERVAL = 2000;", "const INTERVAL = 200;"),
        content_type="text/javascript",
    )


def test_a_running_job_is_watched_stopped_and_dismissed(open_page, desk, own_folders, device):
    page = open_page("about:blank", **device)
    page.route("**/jobs.js", often)
    command, environment = [sys.executable, "-uc", RUNNING], os.environ | own_folders
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, text=True) as process:
        try:
            print(7, file=process.stdin, flush=True)
            page.goto(f"{desk}#/jobs")
            job = page.get_by_role("article", name="index add: Holidays in Portugal")
            expect(job).to_contain_text("7 of 100 pictures")
            check_state(page, "a running job")
            title = job.get_by_role("heading").bounding_box()
            assert title["height"] < 60  # not one letter below the other
            stop = job.get_by_role("button", name="Stop Holidays in Portugal")
            stop.focus()
            print(35, file=process.stdin, flush=True)
            expect(job).to_contain_text("42 of 100 pictures")
            expect(job.get_by_role("progressbar")).to_have_js_property("value", 42)
            expect(stop).to_be_focused()  # whoever comes by keyboard has the time to press it
            page.keyboard.press("Enter")
            expect(job.locator(".state")).to_have_text("stopped")
            expect(job.get_by_role("button", name="Dismiss Holidays in Portugal")).to_be_focused()
            process.wait(PATIENCE)
            check_state(page, "a stopped job")
            page.get_by_role("button", name="Dismiss the finished").click()
            expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
            expect(page.get_by_role("button", name="Add a folder")).to_be_focused()
        finally:
            process.kill()


STATES = {  # an address, and what is there once it is shown
    "collection": ("search", ".month[data-at]"),
    "names": ("search?q=lisbon", CARDS),
    "folder": ("search?folder=Albums%2FParis&since=2020&until=2020&order=newest", CARDS),
    "similar": ("search?key=Phone%2F2021%2FIMG_0002.jpg", ".query-code svg"),
    "duplicates": ("duplicates?radius=0", ".notice"),
    "map": ("map", ".legend li"),
    "jobs": ("jobs", ".notice"),
}


@needs_axe
def test_axe_finds_no_violation(open_page, desk, device):
    page = open_page(desk, **device)
    for name, (view, there) in STATES.items():
        page.goto(f"{desk}#/{view}")
        expect(page.locator(there).first).to_be_visible()
        expect(page.locator("[aria-busy]")).to_have_count(0)
        if name == "map":
            for _ in range(3):  # from here on with thumbnails
                page.get_by_role("button", name="Zoom in").click()
        check_state(page, name)
    page.goto(f"{desk}#/search")
    expect(page.locator(f"{CARDS} img.loaded").first).to_be_visible()
    page.locator(CARDS).nth(1).hover()
    page.locator(".select-box").nth(1).click()
    check_state(page, "selection")
    page.get_by_role("button", name="Tag").click()
    check_state(page, "tagging")
    page.keyboard.press("Escape")
    page.locator(CARDS).first.hover()
    page.locator(".about").first.click()
    expect(page.locator(".facts")).to_contain_text("Camera")
    check_state(page, "details")
    page.keyboard.press("Escape")
    page.goto(f"{desk}#/jobs")
    page.get_by_role("button", name="Add a folder").click()
    expect(page.locator(".folder-list li").first).to_be_visible()
    check_state(page, "add a folder")


def test_every_action_on_every_device(open_page, desk, photos, device):
    page = open_page(desk, permissions=["clipboard-read", "clipboard-write"], **device)
    expect(page.locator(f"{CARDS} img.loaded").first).to_be_visible()

    def open_panel() -> None:
        page.locator("details.refine").evaluate("(each) => { each.open = true; }")

    select(page, 0, 2)
    bar = page.get_by_role("region", name="The selected pictures")
    bar.get_by_role("button", name="Copy paths").click()
    expect(page.locator(".toasts")).to_contain_text("2 paths copied")
    bar.get_by_role("button", name="Tag").click()
    page.get_by_label("Tags, with spaces").fill("shore")
    page.keyboard.press("Enter")
    bar.get_by_role("button", name="Clear").click()
    open_panel()
    tag = page.get_by_role("navigation", name="Tags").get_by_role("link", name="#shore 2")
    expect(tag).to_be_visible()
    check_state(page, "tags")
    tag.click()
    expect(page.locator(STATUS)).to_contain_text("2 pictures")
    for left in (1, 0):  # whoever has no tag any more is not listed under it
        open_details(page, 0)
        dialog = page.locator("dialog.detail")
        dialog.get_by_role("button", name="Zoom in").click()
        remove = dialog.get_by_role("button", name="Remove the tag shore")
        remove.click()
        expect(remove).to_have_count(0)
        check_state(page, "details without a tag")
        page.keyboard.press("Escape")
        page.goto(f"{desk}#/search")
        page.goto(f"{desk}#/search?q=%23shore")
        expect(page.locator(CARDS)).to_have_count(left)

    page.goto(f"{desk}#/search?q=paris")
    page.get_by_role("button", name="Save", exact=True).click()
    check_state(page, "a name is asked for")
    page.get_by_label("Name", exact=True).fill("Paris")
    page.keyboard.press("Enter")
    open_panel()
    saved = page.get_by_role("navigation", name="Saved searches")
    expect(saved.get_by_role("link", name="Paris")).to_be_visible()
    check_state(page, "saved searches")
    saved.get_by_role("button", name="Delete the search Paris").click()
    expect(saved.get_by_role("link")).to_have_count(0)

    page.goto(f"{desk}#/map?colour=camera")
    page.get_by_role("button", name="Canon EOS 1D").click()
    expect(page.locator('.legend [aria-pressed="true"]')).to_have_count(1)
    check_state(page, "a category")
    page.goto(f"{desk}#/jobs")
    page.get_by_role("button", name="Add a folder").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".folder-list li").first).to_be_visible()
    dialog.get_by_role("textbox").fill(str(photos.parent / "photos"))
    dialog.get_by_role("button", name="Add this folder").click()
    job = page.get_by_role("article")
    expect(job.locator(".state")).to_have_text("done")
    check_state(page, "a finished job")
    job.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
