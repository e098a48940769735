"""Load on an HTTP service: a few connections that always have one request under way each."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from ddh._core.errors import DDHError

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"


@dataclass
class Measured:
    """Latencies in seconds, in the order in which requests ended, and how long it all took."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def summary(self) -> dict[str, float]:
        """Requests a second, and the latencies' quantiles in milliseconds."""
        found = np.array(self.latencies) * 1000
        p50, p99 = np.quantile(found, [0.5, 0.99]) if len(found) else (0.0, 0.0)
        return {
            "requests": len(found),
            "per second": round(len(found) / self.seconds, 1),
            "p50 ms": round(float(p50), 2),
            "p99 ms": round(float(p99), 2),
            "max ms": round(float(found.max(initial=0)), 2),
        }


def post(path: str, body: bytes, kind: str = "application/json") -> bytes:
    """A whole request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Client(asyncio.Protocol):
    """One connection: sends the next request as soon as the answer to the last is whole."""

    def __init__(self, requests: Iterator[bytes], until: float, measured: Measured) -> None:
        self._requests, self._until, self._measured = requests, until, measured
        self._received = bytearray()
        self._needed: int | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None or time.perf_counter() >= self._until:
            self._finish(None)
            return
        self._sent = time.perf_counter()
        self._transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._needed is None:
            self._needed = _length(self._received)
        if self._needed is None or len(self._received) < self._needed:
            return
        if self._received[9:11] != b"20":
            self._finish(DDHError(f"the service answers {bytes(self._received[:300])!r}"))
            return
        self._measured.latencies.append(time.perf_counter() - self._sent)
        self._received.clear()
        self._needed = None
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(DDHError(f"the service hung up: {error}"))

    def _finish(self, error: Exception | None) -> None:
        if not self.done.done():
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
            self._transport.close()


def _length(received: bytearray) -> int | None:
    """Bytes of the whole answer, None as long as its head is not whole."""
    end = received.find(HEAD_END)
    if end < 0:
        return None
    head = received[:end].lower()
    at = head.find(LENGTH)
    return end + len(HEAD_END) + (int(head[at + len(LENGTH) :].split(b"\r\n")[0]) if at >= 0 else 0)


async def load(
    port: int, requests: list[bytes], connections: int, seconds: float, *, once: bool = False
) -> Measured:
    """Keep `connections` requests under way for so long, or until each was sent `once`."""
    measured, started = Measured(), time.perf_counter()
    shared = iter(requests) if once else cycle(requests)
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(connections):
        _, client = await loop.create_connection(
            lambda: Client(shared, started + seconds, measured), "127.0.0.1", port
        )
        clients.append(client)
    await asyncio.gather(*(client.done for client in clients))
    measured.seconds = time.perf_counter() - started
    return measured
