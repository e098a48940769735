"""The page in its other states: phone, dark, token, empty index, no model or pictures, jobs."""

import re

import numpy as np
import pytest
from page_service import BITS, Collected, serving
from PIL import Image
from playwright.sync_api import Page, expect

import ddh._core.jobs
import ddh.index

PHONE = {"viewport": {"width": 375, "height": 740}, "has_touch": True, "is_mobile": True}
TOKEN = "a token of the tests, long enough"
CARDS = ".grid .card:not(.placeholder)"
VIEWS = ["search", "search?key=0%2F0000.png", "duplicates", "map", "jobs"]


def test_phone_width_never_scrolls_sideways(open_page, address):
    page = open_page(address, **PHONE)
    for view in VIEWS:
        page.goto(f"{address}#/{view}")
        page.wait_for_load_state("networkidle")
        width, inside = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
        assert width <= inside == 375, view
        tabs = page.locator(".tabs").bounding_box()
        assert tabs["y"] + tabs["height"] == 740  # at hand for the thumb


def brightness(page: Page, property: str) -> float:
    colour = page.evaluate("(name) => getComputedStyle(document.body)[name]", property)
    return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3])


def test_dark_follows_the_system_and_the_switch_is_kept(open_page, address):
    page = open_page(address, color_scheme="dark")
    assert brightness(page, "backgroundColor") < 200 < brightness(page, "color")
    page.get_by_role("button", name="Switch to light").click()
    assert brightness(page, "backgroundColor") > 600 > brightness(page, "color")
    page.reload()
    expect(page.get_by_role("button", name="Switch to dark")).to_be_visible()
    assert brightness(page, "backgroundColor") > 600


# Relative luminance and contrast of WCAG 2, over every text that is on the screen.
CONTRASTS = """() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const weights = [0.2126, 0.7152, 0.0722];
  const luminance = (rgb) => weights.reduce((sum, w, i) => sum + w * linear(rgb[i] / 255), 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (colour.startsWith("rgb(")) return channels(colour);
    }
    return channels(getComputedStyle(document.body).backgroundColor);
  };
  const low = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility({ visibilityProperty: true })) continue;
    const text = luminance(channels(getComputedStyle(element).color));
    const below = luminance(ground(element));
    const contrast = (Math.max(text, below) + 0.05) / (Math.min(text, below) + 0.05);
    if (contrast < 4.5) low.push([element.outerHTML.slice(0, 80), contrast]);
  }
  return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(open_page, address, scheme):
    page = open_page(address, color_scheme=scheme, reduced_motion="reduce")
    for view in VIEWS:
        page.goto(f"{address}#/{view}")
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(100)
        assert page.evaluate(CONTRASTS) == []


def test_landmarks_names_and_focus(open_page, address):
    page = open_page(address)
    for role in ("banner", "main", "search", "complementary"):
        assert page.get_by_role(role).count() == 1, role
    for name in ("Views", "Folders"):
        expect(page.get_by_role("navigation", name=name)).to_be_visible()
    unnamed = page.locator("button, a, input, select").evaluate_all(
        """all => all.filter((e) => e.checkVisibility())
          .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length))
          .map((e) => e.outerHTML)"""
    )
    assert unnamed == []
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_token_is_asked_for_once(open_page, collected: Collected, own_folders):
    root = ("--root", str(collected.root))
    environment = own_folders | {"DDH_TOKEN": TOKEN}
    with serving(collected.index, *root, environment=environment) as address:
        page = open_page(address, expected=(401,))
        field = page.get_by_role("dialog").get_by_role("textbox", name="Token")
        expect(field).to_be_focused()
        for _ in range(3):  # a browser lets a page keep its dialog once only
            page.keyboard.press("Escape")
        expect(field).to_be_focused()
        field.fill("wrong")
        field.press("Enter")
        expect(page.get_by_role("alert").filter(has_text="not the token")).to_be_visible()
        field.fill(TOKEN)
        field.press("Enter")
        expect(page.locator(".card img").first).to_have_class("loaded")
        page.reload()
        expect(page.locator(".card img").first).to_have_class("loaded")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.close()  # before the service goes


def test_pictures_whose_files_are_gone_are_greyed(open_page, own_folders, tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (32, 32), "red").save(tmp_path / "photos" / "there.png")
    with ddh.index.open(tmp_path / "new.index", bits=BITS) as index:
        names = ["there.png", "gone.png"]
        index.add(names, np.zeros((2, index.code_bytes), np.uint8), paths=names)
        index.set_setting(root=str(tmp_path / "photos"))
    with serving(tmp_path / "new.index", environment=own_folders) as address:
        page = open_page(address)
        expect(page.locator(CARDS)).to_have_count(2)
        gone = page.locator(".card.missing")
        expect(gone).to_have_count(1)
        expect(gone.locator(".caption")).to_contain_text("gone.png · file is gone")
        expect(gone.get_by_role("link")).to_have_accessible_name(re.compile("file is gone"))
        page.close()  # before the service goes


DROP = """() => {
  const data = new DataTransfer();
  data.items.add(new File(["a picture"], "a.png", { type: "image/png" }));
  document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, dataTransfer: data }));
}"""


def test_empty_index_says_what_to_do_and_fills_itself(open_page, collected, own_folders, tmp_path):
    location = tmp_path / "new.index"
    with (
        ddh.index.open(location, bits=BITS) as index,
        serving(location, environment=own_folders) as address,
    ):
        page = open_page(address)
        expect(page.get_by_role("heading", name="This index is empty")).to_be_visible()
        expect(page.locator(".notice")).to_contain_text("ddh add photos/ --index new.index")
        for view, words in (("Map", "Nothing to map yet"), ("Duplicates", "No duplicates yet")):
            page.get_by_role("link", name=view).click()
            expect(page.get_by_role("heading", name=words)).to_be_visible()
        page.get_by_role("link", name="Search").click()
        with ddh.index.open(collected.index) as full:
            rows = full.get_many(collected.keys[:5])
        index.add([row.key for row in rows], np.stack([row.code for row in rows]))
        expect(page.locator(CARDS)).to_have_count(5)
        # Neither root nor model was given: codes stand in, and pictures cannot be asked with.
        expect(page.locator(".note")).to_contain_text("--root")
        expect(page.locator(".stand-in svg").first).to_be_visible()
        expect(page.locator(".drop.closed")).to_contain_text("--model")
        page.evaluate(DROP)
        expect(page.locator(".toasts")).to_contain_text("No model at hand")  # and goes by itself
        page.locator(".card-link").nth(2).click()
        expect(page.locator(".query-code svg")).to_be_visible()
        expect(page.locator("#banner")).to_be_hidden()
        page.close()


def test_rows_that_others_have_added_are_shown(open_page, collected, own_folders, tmp_path):
    location = tmp_path / "new.index"
    with ddh.index.open(collected.index) as full:
        rows = full.get_many(collected.keys[:9])
    keys, codes = [row.key for row in rows], np.stack([row.code for row in rows])
    with (
        ddh.index.open(location, bits=BITS) as index,
        serving(location, environment=own_folders) as address,
    ):
        index.add(keys[:5], codes[:5])
        page = open_page(address)
        expect(page.locator(CARDS)).to_have_count(5)
        index.add(keys[5:7], codes[5:7])
        page.get_by_role("link", name="Jobs").click()  # asks how many there are
        expect(page.locator("#collection")).to_contain_text("7 pictures")
        page.get_by_role("link", name="Search", exact=True).click()
        expect(page.locator(CARDS)).to_have_count(7)
        page.goto(f"{address}#/search?key={keys[0].replace('/', '%2F')}")
        page.reload()
        expect(page.locator(CARDS)).to_have_count(7)
        index.add(keys[7:], codes[7:])
        page.get_by_role("link", name="Search", exact=True).click()
        expect(page.locator(CARDS)).to_have_count(9)
        expect(page.locator("#collection")).to_contain_text("9 pictures")
        page.close()


def test_a_service_that_is_gone_is_said_and_found_again(open_page, address):
    page = open_page(address, gone=True)
    expect(page.locator(".card img").first).to_have_class("loaded")
    page.route("**/*", lambda route: route.abort("connectionrefused"))
    page.locator(".card-link").nth(3).click()
    expect(page.get_by_role("alert").first).to_contain_text("does not answer")
    page.unroute("**/*")
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator(".results .status")).to_contain_text("nearest first")


def test_jobs_show_progress_and_curves_as_they_run(open_page, address, own_folders, monkeypatch):
    monkeypatch.setenv("DDH_STATE", own_folders["DDH_STATE"])
    page = open_page(f"{address}#/jobs")
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    with ddh._core.jobs.job("fit", "digits.ddh") as job:
        stage = ddh._core.jobs.stage("Training", 10, "epoch")
        for epoch in range(6):
            stage.point("loss", 2 / (epoch + 1))
            stage.advance()
        job.write(now=True)
        card = page.get_by_role("article")
        expect(card).to_contain_text("6 of 10 epochs")
        expect(card.locator(".state")).to_have_text("running")
        expect(card.get_by_role("img", name="loss: from 2 to 0.3333")).to_be_visible()
        assert card.locator(".chart .tick text").count() >= 2
        opacity = card.locator(".chart .tick").first.evaluate("e => getComputedStyle(e).opacity")
        assert opacity == "1"
    expect(card.locator(".state")).to_have_text("done")
    expect(page.locator(".jobs-view .status")).to_have_text("0 running")
