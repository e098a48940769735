"""Errors as HTTP responses: one status and one message each, nothing about the machine."""

import json
import logging
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ddh._core.errors import DDHError, InputError, MissingDependency
from ddh.index import IndexRecoded

LOG = logging.getLogger("ddh.serve")


def no_such_key(key: str) -> HTTPException:
    """The error of a key that no row has."""
    return HTTPException(404, f"the index holds no row with the key {key[:200]!r}")


def error_response(error: Exception) -> Response:
    """The response to a request that failed; internal causes are logged, not disclosed."""
    status, message = _status_and_message(error)
    headers = dict(getattr(error, "headers", None) or {})
    if status == 503:
        headers["Retry-After"] = "1"
    body = json.dumps({"detail": message}, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status, headers, "application/json")


def _status_and_message(error: Exception) -> tuple[int, str]:
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, RequestValidationError):
        return 422, validation_message(error.errors())
    if isinstance(error, ClientDisconnect):
        return 400, "the client disconnected before its body was complete"
    if isinstance(error, InputError) and not isinstance(error, MissingDependency):
        return 422, str(error)
    if isinstance(error, IndexRecoded):
        return 503, "the codes of the index have just been made anew: try again"
    if isinstance(error, DDHError | OSError):  # such as files of the index that are away
        LOG.error("%s", error, exc_info=error if isinstance(error, OSError) else None)
        return 503, "the service cannot do this now; its log says why"
    LOG.error("unexpected %s", type(error).__name__, exc_info=error)
    return 500, "something went wrong inside the service; its log says what"


def validation_message(problems: Any) -> str:
    """The first few findings of a pydantic validation in one line."""
    parts = []
    for problem in list(problems)[:5]:
        field = ".".join(str(step) for step in problem["loc"] if step != "body")
        parts.append(f"{field}: {problem['msg']}" if field else str(problem["msg"]))
    return "; ".join(parts)
