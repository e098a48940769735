"""The service as a process: its socket, its log, and how it stops."""

import asyncio
import logging
import socket
from functools import partial
from typing import Any

import click
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ddh._core.errors import InputError
from ddh.serve.app import create_app
from ddh.serve.request_log import JsonLines
from ddh.serve.settings import Settings

STOP_SECONDS = 15  # for requests that are running when the service is stopped
KEEP_ALIVE_SECONDS = 30
MAX_CONNECTIONS = 1024
MAX_HEAD_BYTES = 64 << 10


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
    app = create_app(location, settings)
    listening = _listen(host, port)
    _set_up_log(logging.INFO if log_requests else logging.WARNING)
    http: Any = partial(LimitedHttp, head_seconds=app.state.service.settings.body_seconds)
    config = uvicorn.Config(
        app,
        http=http,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        limit_concurrency=MAX_CONNECTIONS,
    )
    name, bound, *_ = listening.getsockname()
    address = f"http://{f'[{name}]' if ':' in name else name}:{bound}/"
    service = app.state.service
    click.echo(f"{service.name}: {len(service.index):,} rows at {address}  (Ctrl-C stops)")
    if open_browser:
        click.launch(address)
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


class LimitedHttp(HttpToolsProtocol):
    """HTTP/1.1 with limits on a request's head: its size, and the time it takes to arrive."""

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
