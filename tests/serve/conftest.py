"""A small collection with a real model, and the service over it: in process, or its own process."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import ddh.index
from ddh.index import FileStamp
from ddh.serve import Settings, create_app

BITS = 32
LABELS = ("cat", "dog", "fox")


def draw(path: Path, seed: int, size: tuple[int, int] = (64, 48)) -> None:
    """A soft random picture, the same for the same seed at every size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    blots = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    Image.fromarray(blots).resize(size, Image.Resampling.BICUBIC).save(path)


@dataclass(frozen=True)
class Place:
    """Where a collection lies."""

    folder: Path

    @property
    def index(self) -> str:
        return str(self.folder / "p.index")

    @property
    def photos(self) -> Path:
        return self.folder / "photos"

    def open(self, **settings) -> TestClient:
        """The service over it, as `ddh serve` would run it."""
        settings.setdefault("root", self.photos)
        app = create_app(self.index, Settings(**settings))
        return TestClient(app, base_url="http://localhost")

    def rows(self) -> dict[str, ddh.index.Row]:
        with ddh.index.open(self.index) as index:
            return {row.key: row for row in index.items()}


@pytest.fixture(autouse=True, scope="session")
def user_folders(tmp_path_factory) -> Iterator[None]:
    """Caches and records of jobs go to a folder of the tests, never to the user's own."""
    folder = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDH_CACHE", str(folder / "cache"))
        patch.setenv("DDH_STATE", str(folder / "state"))
        patch.delenv("DDH_TOKEN", raising=False)
        yield


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Place:
    """24 pictures in three folders, two of them twice, with the model that encodes them."""
    from ddh.hashers import DDH
    from ddh.images import ImageFolder

    place = Place(tmp_path_factory.mktemp("prepared"))
    for seed in range(22):
        draw(place.photos / ("animals/wild" if seed % 3 else "plants") / f"{seed:02d}.png", seed)
    draw(place.photos / "copies" / "00.png", 0, (96, 72))
    draw(place.photos / "copies" / "01.png", 1, (32, 24))
    pictures = ImageFolder(place.photos)
    model = DDH(bits=BITS, size=64, epochs=2, device="cpu").fit(pictures)
    model.save(place.folder / "small.ddh")
    names, codes = list(pictures.names), model.encode(pictures)
    with ddh.index.open(place.index, bits=BITS, model_id=model.model_id) as index:
        states = [(place.photos / name).stat() for name in names]
        index.add(
            names,
            codes,
            paths=names,
            stamps=[FileStamp(state.st_mtime_ns, state.st_size) for state in states],
            metadata=[{"label": LABELS[i % 3], "number": i} for i in range(len(names))],
        )
        index.remember(model=str(place.folder / "small.ddh"), root=str(place.photos))
    return place


@pytest.fixture
def place(tmp_path, prepared) -> Place:
    """A copy of the collection, to be changed."""
    shutil.copytree(prepared.folder / "photos", tmp_path / "photos", copy_function=shutil.copy2)
    shutil.copytree(prepared.folder / "p.index", tmp_path / "p.index", copy_function=shutil.copy2)
    return Place(tmp_path)


@pytest.fixture(scope="session")
def reader(prepared) -> Iterator[TestClient]:
    """A read-only service that all tests share."""
    with prepared.open() as client:
        yield client


class Running:
    """A real `ddh serve` process."""

    def __init__(self, index: str, *options: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ddh", "serve", index, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        first = self.process.stdout.readline()
        found = re.search(r"http://\S+:(\d+)/", first)
        assert found, first + self.process.stderr.read()
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self, sent: int = signal.SIGTERM) -> list[dict]:
        """Stop it; what it has logged."""
        if self.process.poll() is None:
            self.process.send_signal(sent)
        try:
            _, log = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


@contextlib.contextmanager
def running(index: str, *options: str, **environment: str) -> Iterator[Running]:
    served = Running(index, *options, **environment)
    try:
        yield served
    finally:
        served.stop()
