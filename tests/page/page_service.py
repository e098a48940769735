"""A collection of digits and a real `ddh serve` on it, for browser tests and screenshots."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import ddh.index
from ddh.images import digits

BITS = 32
SIDE = 160  # of the files
PATIENCE = 120  # seconds, on a busy machine


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
