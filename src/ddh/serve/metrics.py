"""Prometheus metrics, in a registry per service."""

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters and histograms of one service; `rows` is called at each scrape."""

    def __init__(self, rows: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry, buckets=LATENCIES)
        self._requests = counter(
            "ddh_requests", "Requests by route and status.", ["route", "status"]
        )
        self._seconds = histogram(
            "ddh_request_seconds", "Time from the request's head to the answer's end, by route.",
            ["route"],
        )  # fmt: skip
        self._batches = histogram(
            "ddh_search_batch", "Searches answered by one pass over the codes.", buckets=BATCHES
        )
        self._searching = counter("ddh_search_seconds", "Time spent in passes over the codes.")
        self._encoding = histogram(
            "ddh_encode_seconds", "Time of one batch of pictures through the network."
        )
        self._encoded = counter("ddh_encoded_pictures", "Pictures that went through the network.")
        Gauge("ddh_index_rows", "Rows of the index.", registry=self.registry).set_function(rows)
        self._by_route: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Record one response."""
        found = self._by_route.get((route, status))
        if found is None:
            found = self._requests.labels(route, str(status)), self._seconds.labels(route)
            self._by_route[route, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def searched(self, seconds: float, searches: int) -> None:
        """Record one batch of searches."""
        self._searching.inc(seconds)
        self._batches.observe(searches)

    def encoded(self, seconds: float, pictures: int) -> None:
        """Record one batch of encoded pictures."""
        self._encoding.observe(seconds)
        self._encoded.inc(pictures)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)
