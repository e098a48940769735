"""The pictures of the page in the documentation, of photographs that may be shown there.

`python tests/page/screenshots.py PHOTOS docs/images`, with the folder and the list of credits that
free_photos.py has made; the credits of what is seen are written beside the pictures.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote

from page_service import serving
from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

VIEWPORT: ViewportSize = {"width": 1400, "height": 940}
QUALITY = 88  # of WebP: letters are as sharp as in a PNG of five times the size
QUERY, OTHER = "Travel/Windmills/windmill1.webp", "Travel/Windmills/windmill2.webp"
POINTED = 6  # among the results
LOADED = """() => [...document.querySelectorAll(".frame img, .query-picture img")].every((image) =>
  image.classList.contains("loaded") || image.getBoundingClientRect().top > innerHeight)"""
SHOWN = """(names) => names.filter((name) => name.getBoundingClientRect().top < innerHeight + 60)
  .map((name) => name.title)"""  # a picture is above its name
HEAD = """# Credits

The pictures of the page show photographs from the resources of [GCompris](https://gcompris.net)
3.1 (in Debian: gcompris-qt-data), cropped to thumbnails. Each is under its own licence:

| picture | author | licence | source |
|---|---|---|---|
"""


def settled(page: Page) -> None:
    """Wait until everything that was asked for is there and has faded in."""
    page.wait_for_load_state("networkidle")
    page.wait_for_function(LOADED, timeout=120_000)
    page.wait_for_timeout(600)


def save(page: Page, path: Path) -> None:
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shot.save(path, quality=QUALITY, method=6)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def take_search(page: Page, address: str, root: str, out: Path) -> set[str]:
    """A search with a result pointed at; the keys of what is seen."""
    page.goto(address)
    page.get_by_role("button", name=f"Folders in {root}", exact=True).click()
    for key in (OTHER, QUERY):  # the first search reads the index
        page.goto(f"{address}#/search?key={quote(f'{root}/{key}', safe='')}")
        settled(page)
    page.locator(".card").nth(POINTED).hover()
    settled(page)
    save(page, out / "page.webp")
    return set(page.locator(".card .name[title]").evaluate_all(SHOWN))


def take_map(page: Page, address: str, out: Path) -> set[str]:
    """The map with pictures; their keys."""
    shown = set()
    page.on("request", lambda request: shown.add(unquote(request.url.partition("/thumbnails/")[2])))
    page.goto(f"{address}#/map")
    page.locator(".legend li").first.wait_for(timeout=120_000)
    page.wait_for_timeout(1000)
    page.get_by_role("button", name="Zoom in").click()
    page.mouse.move(VIEWPORT["width"] / 2, VIEWPORT["height"] - 2)  # away from the button
    known = -1
    while len(shown) > known:  # pictures are asked for as others arrive
        known = len(shown)
        page.wait_for_timeout(3000)
    save(page, out / "map.webp")
    return {key.partition("?")[0] for key in shown if key}


def licence(text: str) -> str:
    """Its usual name, with a link to its text."""
    if not text.startswith("CC"):
        return "public domain"
    kind, _, version = text.replace(" ", "-").rpartition("-")
    if kind == "CC0":
        return "[CC0 1.0](https://creativecommons.org/publicdomain/zero/1.0/)"
    where = kind.removeprefix("CC-").lower()
    name = f"{kind.replace('CC-', 'CC ')} {version}"
    return f"[{name}](https://creativecommons.org/licenses/{where}/{version}/)"


def write_credits(shown: Iterable[str], said: dict[str, dict[str, str]], out: Path) -> None:
    rows = [
        f"| {key} | {said[key]['copyright']} | {licence(said[key]['license'])} "
        f"| [{said[key]['source'].split('/')[2].removeprefix('www.')}]({said[key]['source']}) |\n"
        for key in sorted(shown)
    ]
    (out / "CREDITS.md").write_text(HEAD + "".join(rows))


def take(browser: Browser, photos: Path, folder: Path, out: Path) -> None:
    own = {"DDH_CACHE": f"{folder}/cache", "DDH_STATE": f"{folder}/state"}
    index = folder / "photos.index"
    command = [sys.executable, "-m", "ddh", "add", str(photos), "--index", str(index)]
    subprocess.run(command, env=os.environ | own, check=True)
    with serving(index, environment=own) as address:
        shown = take_search(browser.new_page(viewport=VIEWPORT), address, photos.name, out)
        shown |= take_map(browser.new_page(viewport=VIEWPORT), address, out)
    said = json.loads(photos.with_suffix(".json").read_text())
    write_credits({key.removeprefix(f"{photos.name}/") for key in shown}, said, out)


def main(photos: Path, out: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("chromium is needed to take screenshots, and is not installed")
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        take(browser, photos, Path(folder), out)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
