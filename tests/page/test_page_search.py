"""Searching on the real page: by picture, click, key and code; radius, filters, paging, keys."""

import base64
import re

import pytest
from playwright.sync_api import Page, Route, expect

CARDS = ".grid .card:not(.placeholder)"


def distances(page: Page) -> list[int]:
    """The distances on the screen, as they are written."""
    texts = page.locator(".distance").all_text_contents()
    return [0 if "same" in text else int(re.search(r"\d+", text).group()) for text in texts]


def keys(page: Page) -> list[str]:
    return page.locator(f"{CARDS} .name[title]").evaluate_all("all => all.map((e) => e.title)")


def wait_for_search(page: Page) -> None:
    status = page.locator(".results .status")
    expect(status).to_contain_text(re.compile("(nearest|most alike) first"))


@pytest.fixture
def page(open_page, address) -> Page:
    opened = open_page(address)
    expect(opened.locator(CARDS).nth(24)).to_be_attached()
    return opened


def test_the_collection_is_shown_first(page):
    expect(page.get_by_role("heading", name="The collection")).to_be_visible()
    expect(page.locator(".results .status")).to_have_text("300 pictures")
    expect(page.locator(f"{CARDS} img").first).to_have_class("loaded")
    assert page.locator(f"{CARDS} img").first.get_attribute("alt").startswith("Picture 0/0000.png")


def test_click_searches_from_a_picture_and_back_returns(page):
    page.locator(f"{CARDS} a").nth(7).click()
    wait_for_search(page)
    assert page.url.endswith("#/search?key=7%2F0007.png")
    expect(page.locator(".results .status")).to_contain_text("nearest first")
    found = distances(page)
    assert found[0] == 0
    assert found == sorted(found)
    page.go_back()
    expect(page.get_by_role("heading", name="The collection")).to_be_visible()
    assert page.locator(".distance").count() == 0


def test_upload_searches_and_its_code_becomes_the_address(page, collected):
    picture = collected.root / collected.keys[11]
    page.locator("input[type=file]").set_input_files(picture)
    wait_for_search(page)
    expect(page.get_by_role("heading", name="Like your picture")).to_be_visible()
    assert re.search(r"#/search\?code=[0-9a-f]{8}&model=\w+$", page.url)
    expect(page.locator(".results .status")).to_contain_text("most alike first")
    assert distances(page)[0] == 0  # the same file is in the index
    assert page.locator(".query-picture img").get_attribute("src").startswith("blob:")


def test_an_uploaded_picture_is_read_anew_when_the_codes_are_of_another_model(
    open_page, address, collected
):
    page = open_page(address, expected=(409,))
    page.locator("input[type=file]").set_input_files(collected.root / collected.keys[11])
    wait_for_search(page)
    asked = []

    def refuse_once(route: Route) -> None:
        picture = "multipart" in route.request.headers["content-type"]
        asked.append("picture" if picture else route.request.post_data_json["model_id"])
        if len(asked) == 1:
            route.fulfill(status=409, json={"detail": "the index has codes of another model"})
        else:
            route.continue_()

    page.route("**/search", refuse_once)
    with page.expect_response(lambda answer: answer.url.endswith("/search") and answer.ok):
        page.get_by_role("slider", name="Radius").press("ArrowRight")
    expect(page.get_by_role("heading", name="Like your picture")).to_be_visible()
    wait_for_search(page)
    assert asked == [page.request.get(f"{address}health").json()["model_id"], "picture"]


@pytest.mark.parametrize(
    ("way", "view", "name", "type"),
    [
        ("paste", "Search", "five.png", "image/png"),
        ("drop", "Jobs", "five.png", "image/png"),
        ("drop", "Search", "IMG_5.HEIC", ""),  # browsers do not know the type of all pictures
    ],
)
def test_paste_and_drop_anywhere(page, collected, way, view, name, type):
    page.locator(".tabs").get_by_role("link", name=view).click()
    picture = base64.b64encode((collected.root / collected.keys[5]).read_bytes()).decode()
    page.evaluate(
        """([way, picture, name, type]) => {
          const bytes = Uint8Array.from(atob(picture), (c) => c.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes], name, { type }));
          const options = { bubbles: true, cancelable: true };
          const event = way === "paste"
            ? new ClipboardEvent("paste", { ...options, clipboardData: data })
            : new DragEvent("drop", { ...options, dataTransfer: data });
          document.body.dispatchEvent(event);
        }""",
        [way, picture, name, type],
    )
    wait_for_search(page)
    expect(page.locator(".query-name")).to_have_text(name)
    assert distances(page)[0] == 0


def test_a_file_that_is_no_picture_is_refused_by_the_service(open_page, address):
    page = open_page(address, expected=(422,))
    broken = {"name": "broken.png", "mimeType": "image/png", "buffer": b"no picture at all"}
    page.locator("input[type=file]").set_input_files(broken)
    expect(page.get_by_role("heading", name="That did not work")).to_be_visible()
    text = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"words"}
    page.locator("input[type=file]").set_input_files(text)
    expect(page.locator(".notice")).to_contain_text("notes.txt is not a picture")


def test_typed_key_and_code(open_page, address):
    page = open_page(address, expected=(404,))
    field = page.get_by_role("searchbox")
    field.fill("key:3/0013.png")
    field.press("Enter")
    wait_for_search(page)
    expect(page.get_by_role("heading", name="Like 0013.png")).to_be_visible()
    field.fill("00ff00FF")
    field.press("Enter")
    expect(page.get_by_role("heading", name="Near a code")).to_be_visible()
    assert page.url.endswith("code=00ff00ff")
    field.fill("key:no such key?#")
    field.press("Enter")
    expect(page.locator(".notice")).to_contain_text("no such key?#")


def test_radius_narrows_and_nothing_found_is_said(page):
    page.locator(f"{CARDS} a").first.click()
    wait_for_search(page)
    slider = page.get_by_role("slider", name="Radius")
    assert slider.get_attribute("max") == "16"
    slider.focus()
    for _ in range(3):
        slider.press("ArrowRight")
    expect(page.locator(".radius output").first).to_have_text("within 3 bits")
    page.wait_for_url("**radius=3")
    expect(page.locator(".grid[aria-busy]")).to_have_count(0)
    assert max(distances(page)) <= 3
    page.goto(page.url.split("#")[0] + "#/search?code=00000000&radius=1")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()


def test_filters_on_folder_and_metadata(page, collected):
    fours = collected.labels.count(4)
    folders = page.get_by_role("navigation", name="Folders")
    folders.get_by_role("link", name=f"4 {fours}", exact=True).click()
    expect(page.locator(".results .status")).to_contain_text(f"{fours} pictures")
    assert all(key.startswith("4/") for key in keys(page))
    page.locator(f"{CARDS} a").first.click()
    wait_for_search(page)
    expect(page.locator(CARDS)).to_have_count(fours)  # the filter stays
    page.get_by_label("parity", exact=True).select_option(label="odd")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()  # 4 is even
    folders.get_by_role("link", name="All pictures").click()
    expect(page.locator(CARDS).first).to_be_visible()
    odd = {key for key, label in zip(collected.keys, collected.labels, strict=True) if label % 2}
    assert set(keys(page)) <= odd
    page.get_by_role("button", name="Clear the filters").click()
    expect(page.locator(CARDS).first).to_contain_text("same code")
    assert page.url.endswith("#/search?key=4%2F0004.png")


def test_scrolling_goes_on_to_the_end(page):
    seen = set(keys(page))
    for _ in range(100):
        page.mouse.wheel(0, 500)
        page.wait_for_function("() => !document.querySelector('.placeholder')")
        seen |= set(keys(page))
        if page.locator('[aria-posinset="300"]').count():
            break
    assert len(seen | set(keys(page))) == 300
    assert page.locator(".grid > li").count() < 150  # the others are not in the document
    page.evaluate("() => window.scrollTo(0, 0)")
    expect(page.locator('[aria-posinset="1"]')).to_be_visible()


def test_hovering_marks_the_bits_that_differ(page):
    page.locator(f"{CARDS} a").nth(2).click()
    wait_for_search(page)
    page.locator(CARDS).nth(24).scroll_into_view_if_needed()  # other cards come, and some go
    card = page.locator(CARDS, has=page.locator(f'.name[title="{keys(page)[-1]}"]'))
    card.hover()
    distance = int(re.search(r"\d+", card.locator(".distance").text_content()).group())
    assert distance > 1
    expect(page.locator(".query-code .differs")).to_have_count(distance)
    expect(page.locator(".hint")).to_have_text(f"{distance} bits differ")
    expect(page.get_by_role("img", name=re.compile(f"{distance} bits differ$"))).to_be_visible()


def test_details_of_a_picture(open_page, address):
    clipboard = ["clipboard-read", "clipboard-write"]
    page = open_page(f"{address}#/search?key=0%2F0000.png", permissions=clipboard)
    wait_for_search(page)
    page.locator(CARDS).nth(20).hover()
    page.locator(".about").nth(20).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("img.large")).to_be_visible()
    key = keys(page)[20]
    expect(dialog.locator(".facts")).to_contain_text(key)
    expect(dialog.locator(".codes figure")).to_have_count(2)
    query_code = dialog.locator(".codes figure").first
    expect(query_code.locator(".differs")).to_have_count(distances(page)[20])
    dialog.get_by_role("button", name="Copy the key").click()
    expect(dialog.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("() => navigator.clipboard.readText()") == key
    dialog.get_by_role("link", name="Search from here").click()
    page.wait_for_url(f"**key={key.replace('/', '%2F')}")
    expect(dialog).to_be_hidden()


def test_everything_with_the_keyboard_alone(page):
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator(f"{CARDS} a").first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator(f"{CARDS} a").nth(1)).to_be_focused()
    tops = page.locator(CARDS).evaluate_all("all => all.map((e) => e.offsetTop)")
    columns = tops.count(tops[0])
    page.keyboard.press("ArrowDown")
    expect(page.locator(f"{CARDS} a").nth(1 + columns)).to_be_focused()
    page.keyboard.press("Space")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator(f"{CARDS} a").nth(2 + columns)).to_be_focused()  # where the dialog was left
    page.keyboard.press("Enter")
    wait_for_search(page)
    assert distances(page)[0] == 0
    expect(page.locator(f"{CARDS} a").first).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()


def test_hostile_keys_stay_text(open_page, address):
    page = open_page(address, expected=(404, 422))
    hostile = '<img src=x onerror="window.harmed=1">/../..%2F?#'
    page.get_by_role("searchbox").fill(f"key:{hostile}")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("%2F?#")
    expect(page.get_by_role("heading", name="That did not work")).to_be_visible()
    assert page.evaluate("() => window.harmed") is None
