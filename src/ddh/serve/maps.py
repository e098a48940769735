"""The map of a collection: laid out in the background, kept on disk, told by its progress."""

import hashlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddh.serve.catalog import Survey
from ddh.serve.disk_cache import DiskCache
from ddh.serve.layout import Points, layout

LOG = logging.getLogger("ddh.serve")
RECIPE = b"1"  # changes when the same codes would give another map


class Stopped(Exception):
    """The service ends."""


@dataclass(frozen=True)
class Map:
    """A finished map: a point for each row of its survey."""

    survey: Survey
    points: Points


class Maps:
    """The newest finished map, and the one that is being made."""

    def __init__(
        self, cache: DiskCache, executor: Executor, make: Callable[..., Points] = layout
    ) -> None:
        self._cache, self._executor, self._make = cache, executor, make
        self._lock = threading.Lock()
        self._ready: Map | None = None
        self._making: Survey | None = None
        self._done = 0.0
        self._stopping = False

    def state(self, survey: Survey) -> dict[str, Any]:
        """How far the map of a survey is; asking starts it."""
        colours = list(survey.colours())
        if not len(survey):
            return {"state": "empty", "points": 0, "done": 1.0, "colours": colours}
        with self._lock:
            if self._ready is not None and self._ready.survey is survey:
                return {"state": "ready", "points": len(survey), "done": 1.0, "colours": colours}
            if self._making is None and not self._stopping:
                self._making, self._done = survey, 0.0
                self._executor.submit(self._run, survey)
            return {
                "state": "computing", "points": len(survey), "done": round(self._done, 3),
                "colours": colours,
            }  # fmt: skip

    def ready(self) -> Map | None:
        """The newest finished map."""
        return self._ready

    def stop(self) -> None:
        """Give up what is being made."""
        self._stopping = True

    def _run(self, survey: Survey) -> None:
        try:
            points = self._points(survey)
            with self._lock:
                self._ready = Map(survey, points)
        except Stopped:
            pass
        except Exception:
            LOG.exception("the map could not be made")
        finally:
            with self._lock:
                self._making = None

    def _points(self, survey: Survey) -> Points:
        content = RECIPE + repr(survey.codes.shape).encode() + survey.codes.tobytes()
        name = hashlib.blake2b(content, digest_size=16).hexdigest()
        kept = self._cache.get(name)
        if kept is not None and len(kept) == 8 * len(survey):
            return np.frombuffer(kept, "<f4").reshape(-1, 2)
        points = self._make(survey.codes, self._progress)
        self._cache.put(name, points.astype("<f4").tobytes())
        return points

    def _progress(self, done: float) -> None:
        if self._stopping:
            raise Stopped
        self._done = done
