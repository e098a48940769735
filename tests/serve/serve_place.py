"""A collection for tests, and the service over it: in this process, or in one of its own."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from starlette.testclient import TestClient

import ddh.index
from ddh.serve import Settings, create_app


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
        settings = {"root": self.photos, "answer_seconds": 120.0} | settings
        app = create_app(self.index, Settings(**settings))
        return TestClient(app, base_url="http://localhost")

    def rows(self) -> dict[str, ddh.index.Row]:
        with ddh.index.open(self.index) as index:
            return {row.key: row for row in index.items()}


class Running:
    """A real `ddh serve` process."""

    def __init__(
        self, index: str, *options: str, prefix: tuple[str, ...] = (), **environment: str
    ) -> None:
        # A pipe that nobody reads would stop it.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "ddh", "serve", index, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        first = self.process.stdout.readline()
        found = re.search(r"http://\S+:(\d+)/", first)
        assert found, first + str(self.stop())
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self, sent: int = signal.SIGTERM) -> list[dict]:
        """Stop it; what it has logged."""
        if self.process.poll() is None:
            self.process.send_signal(sent)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.process.stdout.close()
        self._log.seek(0)
        return [json.loads(line) for line in self._log if line.startswith("{")]


@contextlib.contextmanager
def running(
    index: str, *options: str, prefix: tuple[str, ...] = (), **environment: str
) -> Iterator[Running]:
    served = Running(index, *options, prefix=prefix, **environment)
    try:
        yield served
    finally:
        served.stop()
