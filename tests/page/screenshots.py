"""The pictures of the page in the documentation: `python tests/page/screenshots.py docs/images`."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from page_service import collect_digits, serving
from PIL import Image
from playwright.sync_api import Page, sync_playwright

COUNT, EPOCHS, SIZE, BITS = 1797, 30, 64, 64
VIEWPORT = {"width": 1400, "height": 940}
QUERY, POINTED = "4/0004.png", 17
LOADED = """() => [...document.querySelectorAll(".frame img, .query-picture img")].every((image) =>
  image.classList.contains("loaded") || image.getBoundingClientRect().top > innerHeight)"""


def settled(page: Page) -> None:
    """Wait until everything that was asked for is there and has faded in."""
    page.wait_for_load_state("networkidle")
    page.wait_for_function(LOADED, timeout=120_000)
    page.wait_for_timeout(600)


def save(page: Page, path: Path) -> None:
    page.screenshot(path=path)
    Image.open(path).convert("RGB").save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def point_at_a_dot(page: Page) -> None:
    """Move the pointer along lines through the map until there is a dot under it."""
    for y in range(VIEWPORT["height"] // 3, VIEWPORT["height"], 60):
        for x in range(VIEWPORT["width"] // 2, VIEWPORT["width"] - 100, 8):
            page.mouse.move(x, y)
            if page.locator(".pointing").count():
                return


def take(address: str, page: Page, out: Path) -> None:
    """The search with a result pointed at, and the map."""
    page.goto(f"{address}#/search?key={QUERY.replace('/', '%2F')}")
    settled(page)
    page.locator(".card").nth(POINTED).hover()
    settled(page)
    save(page, out / "page.png")
    page.goto(f"{address}#/map?colour=label")
    page.locator(".legend li").first.wait_for(timeout=120_000)
    point_at_a_dot(page)
    settled(page)
    save(page, out / "map.png")


def main(out: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("chromium is needed to take screenshots, and is not installed")
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        made = collect_digits(Path(folder), COUNT, epochs=EPOCHS, size=SIZE, bits=BITS)
        own = {"DDH_CACHE": f"{folder}/cache", "DDH_STATE": f"{folder}/state"}
        options = ["--model", str(made.model), "--root", str(made.root)]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        with serving(made.index, *options, environment=own) as address:
            take(address, browser.new_page(viewport=VIEWPORT), out)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
