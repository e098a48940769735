"""The map of a collection: computed in the background, cached on disk."""

import hashlib
import logging
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddh.serve.catalog import Catalog
from ddh.serve.disk_cache import DiskCache
from ddh.serve.layout import Points, layout

LOG = logging.getLogger("ddh.serve")
VERSION = b"1"  # change it when the same codes would give another map


@dataclass(frozen=True)
class Map:
    """A finished map: one point per row of its catalog."""

    catalog: Catalog
    points: Points


class Maps:
    """The newest finished map, and the one that is being computed by a thread of `executor`."""

    def __init__(self, cache: DiskCache, executor: Executor) -> None:
        self._cache, self._executor = cache, executor
        self.finished: Map | None = None
        self._done: float | None = None  # None while nothing is being computed
        self._stopping = False

    def state(self, catalog: Catalog) -> dict[str, Any]:
        """The progress of the map of a catalog; the first call starts it. For one event loop."""
        state, done = ("ready" if len(catalog) else "empty"), 1.0
        if len(catalog) and (self.finished is None or self.finished.catalog is not catalog):
            if self._done is None and not self._stopping:
                self._done = 0.0
                self._executor.submit(self._run, catalog)
            state, done = "computing", round(self._done or 0.0, 3)
        colours = list(catalog.colours())
        return {"state": state, "points": len(catalog), "done": done, "colours": colours}

    def stop(self) -> None:
        """Abandon the map that is being computed."""
        self._stopping = True

    def _run(self, catalog: Catalog) -> None:
        try:
            self.finished = Map(catalog, self._points(catalog))
        except InterruptedError:
            pass
        except Exception:
            LOG.exception("the map could not be computed")
        finally:
            self._done = None

    def _points(self, catalog: Catalog) -> Points:
        content = VERSION + repr(catalog.codes.shape).encode() + catalog.codes.tobytes()
        name = hashlib.blake2b(content, digest_size=16).hexdigest()
        cached = self._cache.get(name)
        if cached is not None and len(cached) == 8 * len(catalog):
            return np.frombuffer(cached, "<f4").reshape(-1, 2)
        points = layout(catalog.codes, self._progress)
        self._cache.put(name, points.astype("<f4").tobytes())
        return points

    def _progress(self, done: float) -> None:
        if self._stopping:
            raise InterruptedError
        self._done = done
