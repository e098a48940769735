"""The service as a process: its socket, its log, and how it stops."""

import logging
import socket
from functools import partial
from typing import Any

import click
import uvicorn

from ddh._core.errors import InputError
from ddh.serve.app import create_app
from ddh.serve.protocol import LimitedHttp
from ddh.serve.request_log import JsonLines
from ddh.serve.settings import Settings

STOP_SECONDS = 15  # for requests that are running when the service is stopped
KEEP_ALIVE_SECONDS = 30
MAX_CONNECTIONS = 1024


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
    address = _address(listening)
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


def _address(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _set_up_log(level: int) -> None:
    """Log as lines of JSON on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.getLogger("ddh.serve").setLevel(level)
    for name in ("ddh.serve", "uvicorn"):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).propagate = False
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
