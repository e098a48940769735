"""Figures of the page at 100,000 photos: `python tests/page/large_collection.py FOLDER [--rows N]`.

FOLDER holds photos; rows repeat them in made-up folders, with random codes in clusters and made-up
dates, so that nothing is encoded. Thumbnails are those of the real files, made as they are seen.
The speed of the map is measured by `pytest -s tests/page/test_page_map.py -k hundred`.
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

import numpy as np
import psutil
from page_service import BITS
from playwright.sync_api import Page, sync_playwright

import ddh.index
from ddh.images.formats import picture_extensions
from ddh.index import FileStamp
from ddh.index.collection import Collection

QUERIES = ("img_0099", "lisbon 2014", "canon may", "jpg", "nothing like this", "album 07 2019 june")
FRAMES = """async ([act, count]) => {
  const times = [];
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  let last = await frame();
  for (let i = 0; i < count; i += 1) {
    if (act === "scroll") window.scrollBy(0, 60);
    const now = await frame();
    times.push(now - last);
    last = now;
  }
  return times;
}"""


def make_index(folder: Path, photos: Path, rows: int) -> Path:
    """An index of so many rows over links to the photos."""
    files = sorted(p for p in photos.rglob("*") if p.suffix.lower() in picture_extensions())
    rng = np.random.default_rng(0)
    middles = rng.integers(0, 256, (40, BITS // 8), dtype=np.uint8)
    kinds = rng.integers(0, 40, rows)
    noise = np.packbits(rng.random((rows, BITS)) < 0.08, axis=1)
    places = ("Lisbon", "Paris", "Oslo", "Rome", "Home")
    keys, metadata = [], []
    for number in range(rows):
        year, month = 2005 + number % 20, 1 + (number // 7) % 12
        day = 1 + number % 28
        keys.append(f"album {kinds[number]:02}/{places[number % 5]}/{year}/IMG_{number:06}.jpg")
        taken = f"{year}-{month:02}-{day:02}T12:00:00"
        metadata.append({"taken": taken, "camera": f"Canon EOS {number % 7}D"})
    root = folder / "photos"
    for number, key in enumerate(keys):
        link = root / key
        link.parent.mkdir(parents=True, exist_ok=True)
        link.hardlink_to(files[number % len(files)])
    location = folder / "large.index"
    with ddh.index.open(location, bits=BITS) as index:
        Collection(index).bind_folder(root)
        for start in range(0, rows, 20_000):
            part = slice(start, start + 20_000)
            index.add(
                keys[part],
                middles[kinds[part]] ^ noise[part],
                paths=keys[part],
                stamps=[FileStamp(1_600_000_000_000_000_000, 1)] * len(keys[part]),
                metadata=metadata[part],
            )
    return location


def frame_figures(page: Page, act: str, count: int = 120) -> dict[str, float]:
    times = page.evaluate(FRAMES, [act, count])
    rate = 1000 / statistics.median(times)
    return {
        "frames per second": round(rate, 1),
        "p95 ms": round(float(np.percentile(times, 95)), 1),
    }


def measure(index: Path, folder: Path) -> dict[str, object]:
    cache = folder / "cache"
    command = [sys.executable, "-m", "ddh", "serve", str(index), "--port", "0", "--log", "errors"]
    process = subprocess.Popen(
        [*command, "--cache", str(cache), "--answer-seconds", "600"],
        stdout=subprocess.PIPE,
        text=True,
    )
    figures: dict[str, object] = {}
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split(" at ")[1].split()[0]
        service = psutil.Process(process.pid)
        with sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            begun = time.perf_counter()
            page.goto(address)
            page.locator(".card:not(.placeholder)").first.wait_for(timeout=300_000)
            figures["page ready s"] = round(time.perf_counter() - begun, 2)
            urllib.request.urlopen(f"{address}find?text=x").read()  # the catalog is there
            figures["names ms"] = names(address)
            figures["service MB"] = round(service.memory_info().rss / 1e6)
            figures["scrolling"] = frame_figures(page, "scroll")
            browser.close()
    finally:
        process.terminate()
        process.wait(60)
    return figures


def names(address: str) -> dict[str, float]:
    """Milliseconds of each query through HTTP, the median of nine."""
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.photos.parent) as scratch:
        index = make_index(Path(scratch), options.photos, options.rows)
        print(json.dumps(measure(index, Path(scratch)), indent=2))


if __name__ == "__main__":
    main()
