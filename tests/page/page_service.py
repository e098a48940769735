"""Collections, a real `ddh serve` on them, and axe-core, for browser tests and screenshots."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page

import ddh.index
from ddh.images import digits
from ddh.images.exif import photo_facts
from ddh.index import FileStamp
from ddh.index.collection import Collection

BITS = 32
SIDE = 160  # of the files
PATIENCE = 120  # seconds, on a busy machine
PHOTO_FOLDERS = ("Albums/Lisbon", "Albums/Paris", "Phone", "Camera")

DEVICES: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}

AXE = Path(__file__).parents[2] / "page-checks" / "node_modules" / "axe-core" / "axe.min.js"
RUN_AXE = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  const places = (nodes) => nodes.map((each) => each.html.slice(0, 200)).join(" | ");
  return violations.map(({ id, nodes }) => `${id}: ${places(nodes)}`);
}"""


needs_axe = pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not installed: npm --prefix page-checks ci"
)


def accessibility_violations(page: Page) -> list[str]:
    """What axe-core finds on the page, once it has nothing more to load."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(AXE.read_text())  # the page's own policy forbids a script element
    violations: list[str] = page.evaluate(RUN_AXE)
    for _ in range(20):  # what is pale while it waits does not stay so
        if not violations:
            break
        page.wait_for_timeout(200)
        violations = page.evaluate(RUN_AXE)
    return violations


def check_state(page: Page, state: str) -> None:
    """Nothing for axe-core to find, where it is installed, and no need to scroll sideways."""
    page.wait_for_function("() => document.getAnimations().length === 0")  # dialogs fade in
    if AXE.exists():
        assert accessibility_violations(page) == [], state
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), state


@dataclass(frozen=True)
class Collected:
    """A folder of pictures with its model and index."""

    root: Path
    model: Path
    index: Path
    keys: list[str]
    labels: list[int]


def collect_digits(
    folder: Path, count: int, *, epochs: int, size: int = 32, bits: int = BITS
) -> Collected:
    """Write digits as PNG files in folders by class, learn codes for them, and index them."""
    from ddh.hashers import DDH

    data = digits()
    root = folder / "digits"
    labels = [int(label) for label in data.labels[:count]]
    keys = [f"{label}/{i:04}.png" for i, label in enumerate(labels)]
    for key, pixels in zip(keys, data.images.pixels[..., 0], strict=False):
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        framed = Image.fromarray(np.pad(pixels, 1))  # the digits touch the edges of their 8 x 8
        framed.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path)
    files = [str(root / key) for key in keys]
    model = DDH(bits=bits, size=size, epochs=epochs, random_state=0).fit(files)
    model.save(folder / "digits.ddh")
    collected = Collected(root, folder / "digits.ddh", folder / "digits.index", keys, labels)
    with ddh.index.open(collected.index, bits=bits, model_id=model.model_id) as index:
        parity = ["odd" if label % 2 else "even" for label in labels]
        metadata = [
            {"label": label, "parity": each} for label, each in zip(labels, parity, strict=True)
        ]
        index.add(keys, model.encode(files), paths=keys, metadata=metadata)
    return collected


def collect_photos(folder: Path, count: int) -> Path:
    """An index of random pictures in folders, with what cameras write; its codes are random."""
    rng = np.random.default_rng(0)
    root = folder / "photos"
    keys, stamps, metadata = [], [], []
    for number in range(count):
        year, month = 2019 + number % 3, 1 + number % 12
        key = f"{PHOTO_FOLDERS[number % 4]}/{year}/IMG_{number:04}.jpg"
        file = root / key
        file.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[0x010F], exif[0x0110] = "Canon", f"Canon EOS {number % 5}D"
        photo, gps = exif.get_ifd(0x8769), exif.get_ifd(0x8825)
        photo[0x9003] = f"{year}:{month:02}:{1 + number % 28:02} 10:20:30"
        gps[1], gps[2], gps[3], gps[4] = "N", (48.0, 51.0, 30.0), "E", (2.0, 17.0, 40.0)
        blots = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
        blots.resize((400, 300), Image.Resampling.BICUBIC).save(file, exif=exif)
        state = file.stat()
        keys.append(key)
        stamps.append(FileStamp(state.st_mtime_ns, state.st_size))
        metadata.append(photo_facts(file).metadata())
    location = folder / "photos.index"
    codes = rng.integers(0, 256, (count, BITS // 8), dtype=np.uint8)
    with ddh.index.open(location, bits=BITS) as index:
        Collection(index).bind_folder(root)
        index.add(keys, codes, paths=keys, stamps=stamps, metadata=metadata)
    return location


@contextmanager
def serving(index: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[str]:
    """The address of `ddh serve` on a free port, for as long as the block runs."""
    command = [sys.executable, "-m", "ddh", "serve", str(index), "--port", "0", "--log", "errors"]
    command += ["--answer-seconds", str(PATIENCE)]  # the first picture loads the network
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"} | (environment or {}),
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        address = re.search(r"http://\S+", said)
        assert address, f"ddh serve did not start: {said!r}, exit code {process.poll()}"
        yield address.group()
    finally:
        process.terminate()
        process.wait(PATIENCE)
