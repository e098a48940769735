"""One line of JSON in the log and one count in the metrics per request."""

import itertools
import json
import logging
import re
import secrets
import time
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ddh.serve.metrics import Metrics

LOG = logging.getLogger("ddh.serve")

MAX_PATH = 500  # characters of a path in the log
GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class RequestLog:
    """Middleware that gives every request an id and records how it ended."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._prefix, self._numbers = secrets.token_hex(4), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        request_id = self._request_id(scope)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.answered(_route(scope), status, seconds)
            if LOG.isEnabledFor(logging.INFO):
                fields = {
                    "id": request_id,
                    "method": scope["method"],
                    "path": scope["path"][:MAX_PATH],
                    "status": status,
                    "ms": round(1000 * seconds, 2),
                    "client": (scope.get("client") or [None])[0],
                }
                LOG.info("request", extra={"fields": fields})

    def _request_id(self, scope: Scope) -> str:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        if GIVEN_ID.fullmatch(given):
            return given.decode()
        return f"{self._prefix}-{next(self._numbers)}"


def _route(scope: Scope) -> str:
    """The pattern of the route, so that a million keys are one series in the metrics."""
    return getattr(scope.get("route"), "path", None) or scope.get("ddh.route") or "other"


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)
