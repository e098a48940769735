"""The service as a process: its socket, its log, and how it stops."""

import asyncio
import logging
import socket
import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import click
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ddh._core.errors import InputError
from ddh._core.output import open_viewer
from ddh.serve.app import create_app
from ddh.serve.request_log import JsonLines
from ddh.serve.settings import Settings

STOP_SECONDS = 15  # for requests that are running when the service is stopped
KEEP_ALIVE_SECONDS = 30
SWITCH_SECONDS = 0.0005  # an answer does not wait longer for a thread that computes
MAX_HEAD_BYTES = 64 << 10
TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\n\r\n"
)  # connections


def run(
    location: str,
    settings: Settings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    open_browser: bool = False,
    log_requests: bool = True,
) -> None:
    """Serve an index until SIGINT or SIGTERM; running requests are finished first.

    Parameters
    ----------
    location : str
        The index, as for `create_app`.
    settings : Settings, optional
        Access, locations and limits.
    host, port : str, int
        Address to listen on; port 0 takes a free one.
    open_browser : bool
        Open the page in the user's browser.
    log_requests : bool
        Log every request, not only errors, as JSON lines on standard error.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    app = create_app(location, settings)
    listening = _listen(host, port)
    _set_up_log(logging.INFO if log_requests else logging.WARNING)
    limits = app.state.service.settings
    http: Any = partial(
        LimitedHttp,
        head_seconds=limits.body_seconds,
        connections=Connections(limits.max_connections, limits.max_connections_per_address),
    )
    config = uvicorn.Config(
        app,
        http=http,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    name, bound, *_ = listening.getsockname()
    address = f"http://{f'[{name}]' if ':' in name else name}:{bound}/"
    service = app.state.service
    click.echo(f"{service.name}: {len(service.index):,} rows at {address}  (Ctrl-C stops)")
    if open_browser:
        open_viewer(address)
    uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error}; choose another --port, 0 takes a free one"
        ) from error


def _set_up_log(level: int) -> None:
    """Log as lines of JSON on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.getLogger("ddh.serve").setLevel(level)
    for name in ("ddh.serve", "uvicorn"):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).propagate = False
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


class Connections:
    """Counts open connections: at most `total`, and at most `per_address` from one address.

    `total` is lowered to a third of the descriptors that this process may open, since an upload
    takes a second one and the index needs some; and one address gets at most half of `total`.
    """

    def __init__(self, total: int, per_address: int) -> None:
        with suppress(ImportError):  # Windows has no such limit
            from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit

            descriptors = getrlimit(RLIMIT_NOFILE)[0]
            total = total if descriptors == RLIM_INFINITY else min(total, descriptors // 3)
        self._total, self._per_address = total, min(per_address, total // 2)
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count a new connection, unless there are too many."""
        if self._open.total() >= self._total or self._open[address] >= self._per_address:
            return False
        self._open[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Forget a connection that was counted."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class LimitedHttp(HttpToolsProtocol):
    """HTTP/1.1 with limits on connections and on a request's head: its size and its time."""

    def __init__(
        self, *args: Any, head_seconds: float, connections: Connections, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._head_seconds, self._head_bytes = head_seconds, 0
        self._head_timer: asyncio.TimerHandle | None = None  # while a head is awaited
        self._counted, self._address = connections, ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else "unknown"
        if self._counted.enter(address):
            self._address = address
            self._await_head()
        else:
            transport.write(TOO_MANY)
            transport.close()

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
        if self._address:
            self._counted.leave(self._address)
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
