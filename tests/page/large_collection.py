"""Figures of the page at 100,000 photos: `python tests/page/large_collection.py FOLDER [--at AT]`.

FOLDER holds photos. The collection repeats them with small edits (crop, brightness, quality) in
made-up folders with made-up dates; codes are signs of principal components of their colours, so
that no network runs. AT keeps the collection for the next time; else it is made in a temporary
folder. Frames are counted while wheel and drag events arrive, as a person would send them.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from page_service import BITS
from PIL import Image, ImageEnhance
from playwright.sync_api import CDPSession, Page, sync_playwright

import ddh.index
from ddh.images.formats import picture_extensions
from ddh.index import FileStamp
from ddh.index.collection import Collection

QUERIES = ("img_0099", "lisbon 2014", "canon may", "jpg", "nothing like this", "album 07 2019 june")
PLACES = ("Lisbon", "Paris", "Oslo", "Rome", "Home")
ALBUMS = 40
SIDE = 6  # of the picture whose colours give a code
PERSON = 1 / 60  # seconds between two events of a mouse
FRAMES = """() => {
  const frames = (window.frames_ = []);
  let last = null;
  const tick = (now) => {
    if (last !== null) frames.push(now - last);
    last = now;
    window.framing_ = requestAnimationFrame(tick);
  };
  window.framing_ = requestAnimationFrame(tick);
}"""
WORK = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")
PICTURES = ".card:not(.placeholder)"
SHOWN = f"() => document.querySelectorAll('{PICTURES} img.loaded').length >= 12"


def make_index(folder: Path, photos: Path, rows: int) -> Path:
    """An index over so many edited copies of photos."""
    files = sorted(p for p in photos.rglob("*") if p.suffix.lower() in picture_extensions())
    rng = np.random.default_rng(0)
    root, keys, metadata, colours = folder / "photos", [], [], []
    stamps: list[FileStamp] = []
    for number in range(rows):
        with Image.open(files[number % len(files)]) as image:
            edited = edit(image.convert("RGB"), rng)
        colours.append(np.asarray(edited.resize((SIDE, SIDE), Image.Resampling.BOX)).ravel())
        album = int(colours[number % len(files)].astype(int).sum()) % ALBUMS  # copies lie together
        year, month, day = 2005 + number % 20, 1 + (number // 7) % 12, 1 + number % 28
        keys.append(f"album {album:02}/{PLACES[number % 5]}/{year}/IMG_{number:06}.jpg")
        metadata.append(
            {"taken": f"{year}-{month:02}-{day:02}T12:00:00", "camera": f"Canon EOS {number % 7}D"}
        )
        file = root / keys[-1]
        file.parent.mkdir(parents=True, exist_ok=True)
        edited.save(file, quality=int(rng.integers(60, 90)))
        state = file.stat()
        stamps.append(FileStamp(state.st_mtime_ns, state.st_size))
    values = np.array(colours, np.float32)
    values -= values.mean(axis=0)
    directions = np.linalg.eigh(values.T @ values)[1][:, ::-1][:, :BITS]
    codes = np.packbits(values @ directions > 0, axis=1)
    location = folder / "large.index"
    with ddh.index.open(location, bits=BITS) as index:
        Collection(index).bind_folder(root)
        for start in range(0, rows, 20_000):
            part = slice(start, start + 20_000)
            chosen = {"paths": keys[part], "stamps": stamps[part], "metadata": metadata[part]}
            index.add(keys[part], codes[part], **chosen)
    return location


def edit(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A picture with a little less at its edges and another brightness."""
    width, height = image.size
    left, top, right, bottom = rng.uniform(0, 0.06, 4)
    box = (left * width, top * height, (1 - right) * width, (1 - bottom) * height)
    cropped = image.crop(tuple(round(edge) for edge in box))
    return ImageEnhance.Brightness(cropped).enhance(rng.uniform(0.85, 1.15))


class Frames:
    """The frames of a page and the work of its main thread, while something is done."""

    def __init__(self, page: Page, devtools: CDPSession) -> None:
        self._page, self._devtools = page, devtools
        self.figures: dict[str, float] = {}

    def __enter__(self) -> "Frames":
        self._before = self._work()
        self._page.evaluate(FRAMES)
        return self

    def __exit__(self, *_: object) -> None:
        stop = "() => { cancelAnimationFrame(window.framing_); return window.frames_; }"
        times = self._page.evaluate(stop)
        after = self._work()
        self.figures["frames per second"] = round(1000 * len(times) / sum(times), 1)
        self.figures["p95 ms"] = round(float(np.percentile(times, 95)), 1)
        for name in WORK:
            spent = 1000 * (after[name] - self._before[name]) / len(times)
            self.figures[f"{name.removesuffix('Duration').lower()} ms per frame"] = round(spent, 2)

    def _work(self) -> dict[str, float]:
        metrics = self._devtools.send("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in metrics}


def measure(index: Path, folder: Path) -> dict[str, Any]:
    cache = folder / "cache"
    command = [sys.executable, "-m", "ddh", "serve", str(index), "--port", "0", "--log", "errors"]
    process = subprocess.Popen(
        [*command, "--cache", str(cache), "--answer-seconds", "600"],
        stdout=subprocess.PIPE,
        text=True,
    )
    figures: dict[str, Any] = {}
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split(" at ")[1].split()[0]
        service = psutil.Process(process.pid)
        with sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            browser.new_page().close()
            for visit in ("first visit", "second visit"):
                page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
                figures[visit] = open_page(page, address)
            devtools = page.context.new_cdp_session(page)
            devtools.send("Performance.enable")
            figures["names ms"] = names(address)
            figures["service MB"] = round(service.memory_info().rss / 1e6)
            figures["scrolling"] = scrolling(page, devtools)
            figures["map"] = mapping(page, devtools, address)
            figures["service MB with map"] = round(service.memory_info().rss / 1e6)
            browser.close()
    finally:
        process.terminate()
        process.wait(60)
    return figures


def open_page(page: Page, address: str) -> dict[str, float]:
    """Seconds until there are cards, pictures on them, and all that the panel and timeline show."""
    found = {}
    begun = time.perf_counter()
    page.goto(address, wait_until="commit")
    for name, there in (
        ("cards s", f"() => document.querySelector('{PICTURES}')"),
        ("pictures s", SHOWN),
        ("timeline s", "() => document.querySelector('.month[data-at]')"),
        ("folders s", "() => document.querySelector('.folders li')"),
    ):
        page.wait_for_function(there, timeout=300_000)
        found[name] = round(time.perf_counter() - begun, 2)
    return found


def scrolling(page: Page, devtools: CDPSession) -> dict[str, Any]:
    """Frames while a wheel turns: slowly, and so fast that everything is new in each frame."""
    page.mouse.move(800, 500)
    figures = {}
    for name, step in (("reading", 10), ("skimming", 40), ("flying", 400)):
        with Frames(page, devtools) as frames:
            for _ in range(120):
                turn_wheel(devtools, 0, step)
        figures[name] = frames.figures
        page.wait_for_timeout(1000)
    return figures


def turn_wheel(devtools: CDPSession, x: float, y: float) -> None:
    """One event of a wheel, no sooner than a person would send it."""
    begun = time.perf_counter()
    place = {"type": "mouseWheel", "x": 800, "y": 450}
    devtools.send("Input.dispatchMouseEvent", {**place, "deltaX": x, "deltaY": y})
    time.sleep(max(0, PERSON - (time.perf_counter() - begun)))


def mapping(page: Page, devtools: CDPSession, address: str) -> dict[str, Any]:
    """Frames while the map is dragged with all points in view, zoomed into, and dragged there."""
    begun = time.perf_counter()
    page.goto(f"{address}#/map")
    page.locator(".legend li").first.wait_for(timeout=600_000)
    figures: dict[str, Any] = {"ready s": round(time.perf_counter() - begun, 2)}
    with Frames(page, devtools) as frames:
        drag(page)
    figures["dragging"] = frames.figures
    with Frames(page, devtools) as frames:
        for _ in range(60):
            turn_wheel(devtools, 0, -18)
        for _ in range(60):
            turn_wheel(devtools, 0, 18)
        for _ in range(60):
            turn_wheel(devtools, 0, -18)
    figures["zooming"] = frames.figures
    page.wait_for_timeout(1500)
    with Frames(page, devtools) as frames:
        drag(page)
    figures["dragging thumbnails"] = frames.figures
    return figures


def drag(page: Page) -> None:
    """Two seconds of a circle with the mouse."""
    page.mouse.move(800, 450)
    page.mouse.down()
    for step in range(120):
        begun = time.perf_counter()
        page.mouse.move(800 + 150 * np.sin(step / 12), 450 + 100 * (np.cos(step / 12) - 1))
        time.sleep(max(0, PERSON - (time.perf_counter() - begun)))
    page.mouse.up()


def names(address: str) -> dict[str, float]:
    """Milliseconds of each query through HTTP, the median of nine."""
    urllib.request.urlopen(f"{address}find?text=x").read()  # the catalog is there
    found = {}
    for query in QUERIES:
        times = []
        for n in range(9):
            text = urllib.parse.quote(f"{query}{' ' * n}")  # not a cached answer
            begun = time.perf_counter()
            urllib.request.urlopen(f"{address}find?text={text}&limit=48").read()
            times.append(1000 * (time.perf_counter() - begun))
        found[query] = round(statistics.median(times), 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--at", type=Path, help="folder of the collection, made where it is new")
    parser.add_argument("--make-only", action="store_true", help="measure nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.at or Path(scratch)
        index = folder / "large.index"
        if not index.exists():
            make_index(folder, options.photos, options.rows)
        if not options.make_only:
            print(json.dumps(measure(index, folder), indent=2))


if __name__ == "__main__":
    main()
