"""The map of a collection: computed in the background, cached on disk."""

import hashlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddh.serve.catalog import Catalog
from ddh.serve.disk_cache import DiskCache
from ddh.serve.layout import Points, layout

LOG = logging.getLogger("ddh.serve")
VERSION = b"1"  # change it when the same codes would give another map


class Stopped(Exception):
    """The service is shutting down."""


@dataclass(frozen=True)
class Map:
    """A finished map: one point per row of its catalog."""

    catalog: Catalog
    points: Points


class Maps:
    """The newest finished map, and the one that is being computed."""

    def __init__(
        self, cache: DiskCache, executor: Executor, compute: Callable[..., Points] = layout
    ) -> None:
        self._cache, self._executor, self._compute = cache, executor, compute
        self._lock = threading.Lock()
        self._ready: Map | None = None
        self._computing: Catalog | None = None
        self._done = 0.0
        self._stopping = False

    def state(self, catalog: Catalog) -> dict[str, Any]:
        """The progress of the map of a catalog; the first call starts it."""
        colours = list(catalog.colours())
        if not len(catalog):
            return {"state": "empty", "points": 0, "done": 1.0, "colours": colours}
        with self._lock:
            if self._ready is not None and self._ready.catalog is catalog:
                return {"state": "ready", "points": len(catalog), "done": 1.0, "colours": colours}
            if self._computing is None and not self._stopping:
                self._computing, self._done = catalog, 0.0
                self._executor.submit(self._run, catalog)
            return {
                "state": "computing", "points": len(catalog), "done": round(self._done, 3),
                "colours": colours,
            }  # fmt: skip

    def ready(self) -> Map | None:
        """The newest finished map."""
        return self._ready

    def stop(self) -> None:
        """Abandon the map that is being computed."""
        self._stopping = True

    def _run(self, catalog: Catalog) -> None:
        try:
            points = self._points(catalog)
            with self._lock:
                self._ready = Map(catalog, points)
        except Stopped:
            pass
        except Exception:
            LOG.exception("the map could not be computed")
        finally:
            with self._lock:
                self._computing = None

    def _points(self, catalog: Catalog) -> Points:
        content = VERSION + repr(catalog.codes.shape).encode() + catalog.codes.tobytes()
        name = hashlib.blake2b(content, digest_size=16).hexdigest()
        kept = self._cache.get(name)
        if kept is not None and len(kept) == 8 * len(catalog):
            return np.frombuffer(kept, "<f4").reshape(-1, 2)
        points = self._compute(catalog.codes, self._progress)
        self._cache.put(name, points.astype("<f4").tobytes())
        return points

    def _progress(self, done: float) -> None:
        if self._stopping:
            raise Stopped
        self._done = done
