"""HTTP/1.1 with limits on a request's head: its size, and the time it takes to arrive."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10


class LimitedHttp(HttpToolsProtocol):
    """Uvicorn's protocol, which by itself waits for the end of a head without limits."""

    def __init__(self, *args: Any, head_seconds: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_seconds, self._head_bytes = head_seconds, 0
        self._head_timer: asyncio.TimerHandle | None = None  # while a head is awaited

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(self._head_seconds, self.transport.close)

    def data_received(self, data: bytes) -> None:
        awaited = self._head_timer
        super().data_received(data)
        if awaited is not None and awaited is self._head_timer:  # still not complete
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"the head is larger than {MAX_HEAD_BYTES:,} bytes")

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
