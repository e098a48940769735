"""Near-duplicates on the real page: groups, radius, ticks, and the list that is exported."""

import csv
import io
import json

import pytest
from playwright.sync_api import Page, expect


@pytest.fixture
def page(open_page, address) -> Page:
    opened = open_page(f"{address}#/duplicates?radius=0")
    expect(opened.locator(".group").first).to_be_visible()
    return opened


def exported(page: Page, name: str) -> str:
    with page.expect_download() as download:
        page.get_by_role("region", name="The ticked").get_by_role("button", name=name).click()
    return download.value.path().read_text()


def test_groups_side_by_side_with_one_to_keep(page):
    first = page.locator(".group").first
    assert first.locator(".member").count() >= 2
    expect(first.locator(".kept .badge")).to_have_text("keep")
    assert first.locator(".kept").count() == 1
    expect(first.locator(".member:not(.kept)").first).to_contain_text("same code")
    expect(first.locator(".member").first).to_contain_text("160 × 160")


def test_radius_finds_more(page):
    before = page.locator(".status").first.inner_text()
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("End")
    page.wait_for_url("**radius=8")
    expect(page.locator(".duplicates .status")).to_contain_text("group")
    expect(page.locator(".duplicates .status")).not_to_have_text("Looking for groups…")
    expect(page.locator(".groups.waiting")).to_have_count(0)
    assert page.locator(".duplicates .status").inner_text() != before


def test_ticked_pictures_are_exported_and_nothing_else(page):
    group = page.locator(".group").first
    spare = group.locator(".member:not(.kept)").first
    kept_key = group.locator(".kept input").get_attribute("data-key")
    key = spare.locator("input").get_attribute("data-key")
    spare.locator("input").check()
    rows = list(csv.DictReader(io.StringIO(exported(page, "CSV"))))
    assert [(row["key"], row["keep"], row["distance"]) for row in rows] == [(key, kept_key, "0")]
    assert [row["key"] for row in json.loads(exported(page, "JSON"))] == [key]
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("region", name="The ticked")).to_be_hidden()


def test_all_but_the_suggested_are_ticked(page):
    page.get_by_role("button", name="Tick all but the suggested").click()
    assert page.locator(".kept input:checked").count() == 0
    assert page.locator(".member:not(.kept) input:not(:checked)").count() == 0
    ticked = page.locator(".member:not(.kept)").count()
    assert len(json.loads(exported(page, "JSON"))) == ticked


def test_paging_shows_every_group(page, address):
    def total(radius: int) -> int:
        return page.request.get(f"{address}duplicates?radius={radius}&limit=1").json()["total"]

    radius = next(radius for radius in range(9) if total(radius) > 20)  # more than a page
    page.goto(f"{address}#/duplicates?radius={radius}")
    expect(page.locator(".duplicates .status")).to_have_text(f"{total(radius)} groups")
    for shown in (*range(40, total(radius), 20), total(radius)):
        page.evaluate("() => window.scrollTo(0, document.body.scrollHeight)")
        page.wait_for_function("(n) => document.querySelectorAll('.group').length >= n", arg=shown)
    expect(page.locator(".group")).to_have_count(total(radius))


def test_the_whole_list_is_the_service_s_own(page):
    with page.expect_download() as download:
        page.get_by_role("link", name="Every group as CSV").click()
    assert "key" in download.value.path().read_text().splitlines()[0]
