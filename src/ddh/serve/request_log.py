"""One line of JSON in the log and one count in the metrics per request."""

import itertools
import json
import logging
import re
import secrets
from datetime import UTC, datetime
from typing import Any

from starlette.types import Scope

from ddh.serve.metrics import Metrics

LOG = logging.getLogger("ddh.serve")

MAX_PATH = 500  # characters of a path in the log
GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class RequestLog:
    """Gives every request an id, and records how it ended."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._prefix, self._numbers = secrets.token_hex(4), itertools.count(1)

    def request_id(self, scope: Scope) -> str:
        """The id that a request brings along, or a new one."""
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        if GIVEN_ID.fullmatch(given):
            return given.decode()
        return f"{self._prefix}-{next(self._numbers)}"

    def record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        """Record a response, by the pattern of its route: a million keys are one series."""
        route = getattr(scope.get("route"), "path", None) or scope.get("ddh.route") or "other"
        self._metrics.answered(route, status, seconds)
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
