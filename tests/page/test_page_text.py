"""Searching by what a text says on the real page, with the stand-in for a pair of towers."""

import numpy as np
import pytest
from page_service import BITS, check_state, serving
from PIL import Image
from playwright.sync_api import expect

import ddh.index
import text_pair

CARDS = ".grid .card:not(.placeholder)"


@pytest.fixture(scope="module")
def colours(chromium, tmp_path_factory):
    """The service of three colours in two folders, which reads texts."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "pair").mkdir()
    text_pair.save_pair(folder / "pair")
    keys = [f"{place}/{name}.png" for place in ("one", "two") for name in text_pair.COLOURS]
    for number, key in enumerate(keys):
        (folder / "photos" / key).parent.mkdir(parents=True, exist_ok=True)
        colour = text_pair.COLOURS[key[4:-4]]
        Image.new("RGB", (60 + number, 40), colour).save(folder / "photos" / key)
    with ddh.index.open(folder / "c.index", bits=BITS) as index:
        index.add(keys, np.zeros((len(keys), BITS // 8), np.uint8), paths=keys)
        index.set_setting(root=str(folder / "photos"))
    options = ["--text-model", str(folder / "pair")]
    own = {"DDH_CACHE": str(folder / "cache"), "DDH_STATE": str(folder / "state")}
    with serving(folder / "c.index", *options, environment=own) as address:
        yield address


def test_a_description_finds_pictures_best_first(open_page, colours, device):
    page = open_page(colours, **device)
    expect(page.locator(CARDS)).to_have_count(6)
    field = page.get_by_role("searchbox", name="by what is seen")
    field.fill("something blue")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()  # no such name
    field.press("Enter")
    page.wait_for_url("**text=something+blue")
    expect(page.get_by_role("heading", level=1)).to_have_text("“something blue”")
    expect(page.locator(".results .status")).to_contain_text("best first")
    expect(page.locator(".query-name")).to_have_text("something blue")
    for place in (0, 1):
        name = page.locator(f"{CARDS} .name[title]").nth(place)
        expect(name).to_have_attribute("title", ("one/blue.png", "two/blue.png")[place])
    expect(page.locator(".distance")).to_have_count(0)  # a text has no code
    check_state(page, "found by a text")
    page.get_by_role("button", name="Leave this query").click()
    expect(page.get_by_role("heading", name="The collection")).to_be_visible()
